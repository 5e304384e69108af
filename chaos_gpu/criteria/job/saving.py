"""Whether saves are quick, enough of them are kept, and one fits into a preemption's grace period (CKPT-05 to -07)."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from chaos_gpu.criteria.job.story import Kill, Saved
from chaos_gpu.verdict import Judgement, failed, inconclusive, passed

FACTOR, EARLIER = 2.0, 2
"""Without a limit of its own, a save may take twice the median of at least two earlier ones."""


def judge_save_time(saves: Sequence[Saved], blocked_s: Mapping[int, float], limit_s: float = 0.0) -> Judgement:
    """CKPT-05: every save is all there within its limit, first byte to last change, measured by its files.

    Args:
        saves: of one training, oldest first; interrupted ones are none.
        blocked_s: step → how long the training stood still for its save, as it says itself.
        limit_s: seconds; 0 for twice the median of the earlier saves.

    Source: GPU platform verification, job layer, save time.
    """
    taken = [save.seconds for save in saves]
    evidence = {
        "durable_s": [round(each, 3) for each in taken],
        "blocked_s": [round(each, 3) for each in blocked_s.values()],
        "bytes": [save.size_bytes for save in saves],
        "limit_s": limit_s or None,
    }
    judged = range(EARLIER, len(taken)) if not limit_s else range(len(taken))
    if not judged:
        return inconclusive(f"{len(taken)} saves were seen: too few to judge by", evidence, "set CHAOS_GPU_SAVE_S")
    for number in judged:
        allowed_s = limit_s or FACTOR * median(taken[:number])
        if taken[number] > allowed_s:
            reason = f"the save of step {saves[number].step} took {taken[number]:.3g} s, allowed are {allowed_s:.3g} s"
            return failed(reason, evidence)
    blocked = f", training blocked for {max(blocked_s.values()):.3g} s at most" if blocked_s else ""
    return passed(f"{len(judged)} saves, {max(taken):.3g} s at most until all was there{blocked}", evidence)


def judge_retention(saves: Sequence[Saved], kill: Kill, keep: int, settle: int = 2) -> Judgement:
    """CKPT-06: as many complete checkpoints as declared, at least one at every instant, no leftovers for long.

    Args:
        saves: of one training, oldest first, with what the store held at every look.
        kill: the interruption, which may have left something behind.
        keep: how many complete checkpoints are declared to be kept.
        settle: after so many saves since the kill, leftovers must be gone.

    Source: ours; leftovers and gaps as found in the projects of facts §3.
    """
    since = [save for save in saves if save.begun_s >= kill.at_s]
    evidence: dict[str, Any] = {
        "kept": [save.kept for save in saves],
        "least": min((save.least for save in saves), default=None),
        "garbage": dict(saves[-1].garbage) if saves else {},
        "declared": keep,
        "saves_since_kill": len(since),
    }
    if any(save.least < 1 for save in saves):
        remedy = "remove an old checkpoint only after the new one is all there"
        return failed("at an instant the store held no complete checkpoint", evidence, remedy)
    if len(since) < max(settle, 1) or len(saves) < keep:
        return inconclusive(f"{len(since)} saves since the kill, {settle} are needed", evidence)
    wrong = [save for save in saves[keep:] if save.kept != keep] if keep else []
    if wrong:
        return failed(f"after step {wrong[0].step} it keeps {wrong[0].kept} complete, declared are {keep}", evidence)
    left = since[-1].garbage
    if left:
        names = ", ".join(sorted(left)[:5])
        reason = f"{sum(left.values())} bytes are left of interrupted saves, {len(since)} saves later: {names}"
        return failed(reason, evidence, "remove what an interrupted save has left when the training starts again")
    return passed(f"{keep or 'some'} complete kept, never fewer than {evidence['least']}, nothing left over", evidence)


def _after(seconds: float, kill: Kill) -> float:
    return round(seconds - kill.at_s, 3)


def judge_grace(saves: Sequence[Saved], kill: Kill, ended_s: float | None) -> Judgement:
    """CKPT-07: told to end, the training saves and ends by itself before its grace period is over.

    Args:
        saves: of one training, oldest first.
        kill: when the pod was asked to go, and the grace period that it has.
        ended_s: when its processes had ended (the node's clock), None if they had not.

    Source: GPU platform verification, scheduling layer, D-SCHED-05 (grace period); facts §6.5.
    """
    deadline_s = kill.at_s + kill.grace_s
    last = next((each for each in saves if each.begun_s >= kill.at_s and each.complete == "yes"), None)
    evidence = {
        "grace_s": kill.grace_s,
        "ended_after_s": None if ended_s is None else _after(ended_s, kill),
        "saved_after_s": None if last is None else _after(last.durable_s, kill),
        "step": last.step if last else None,
        "saves": [
            {"step": each.step, "begun_s": _after(each.begun_s, kill), "durable_s": _after(each.durable_s, kill)}
            for each in saves
        ],
        "kill": kill.as_json(),
    }
    if kill.grace_s <= 0:
        return inconclusive("the grace period of the pod is not known", evidence)
    if ended_s is None:
        return inconclusive("the processes were not seen to end", evidence)
    remedy = "save on SIGTERM at once, and give the pod a grace period of one step and one save, with room to spare"
    if ended_s >= deadline_s:
        return failed(
            f"it was still running at the end of its {kill.grace_s:g} s of grace, and was killed", evidence, remedy
        )
    if last is None or last.durable_s > ended_s:
        return failed(f"it ended after {ended_s - kill.at_s:.3g} s and saved nothing", evidence, remedy)
    evidence["slack_s"] = round(deadline_s - last.durable_s, 3)
    saved = f"step {last.step} was saved {last.durable_s - kill.at_s:.3g} s after the request"
    return passed(f"{saved}, {evidence['slack_s']:g} s before the end of the grace period", evidence)
