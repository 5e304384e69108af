"""Whether a killed training goes on from the right place, with everything, as if nothing had been (CKPT-01 to -04)."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

from chaos_gpu.criteria.job.story import Attempt, Saved, Step, Story
from chaos_gpu.verdict import Judgement, failed, inconclusive, passed

COMPONENTS = ("model", "optimizer", "scheduler", "rng", "data", "scaler")
SHOWN = 12
GONE = "the logs of starts since the kill ({}) were gone before they could be read"
BAND = 3.0
"""How far outside of what the references have a loss may be, in units of the most that they are apart at any step. Of
three runs that differ by chance, the third is beyond the band of the other two in 2 % of all cases at most, for losses
that drift apart; at each step for itself, it would be outside of twice their distance in a third of all cases."""


def judge_resume(story: Story) -> Judgement:
    """CKPT-01: killed in the middle of a save, the training resumes from the newest complete checkpoint.

    Args:
        story: of a training that was killed while the frozen store showed an uncommitted save; else nothing is shown.

    Source: GPU platform verification, job layer, atomic save.
    """
    kill = story.kill
    evidence = {"kill": kill.as_json(), **_after(story)}
    if not kill.uncommitted:
        return inconclusive(
            "the save had committed when the training was killed, or went on until it ended", evidence, "try again"
        )
    if not kill.newest or kill.newest_step is None:
        return inconclusive("the store held no complete checkpoint when the training was killed", evidence)
    if story.lost:
        return inconclusive(GONE.format(story.lost), evidence)
    if not story.new_steps:
        return failed(_no_new_step(story), evidence, f"resume from {kill.newest}, the newest complete checkpoint")
    resumed = next((each.resumed for each in story.after if each.steps), None)
    if resumed and resumed.source.rstrip("/").rpartition("/")[2] in kill.torn:
        remedy = "a checkpoint gets its name only when all of it is there; choose among complete ones"
        return failed(f"it resumed from {resumed.source}, which is torn", evidence, remedy)
    first = story.new_steps[0].step
    from_step = resumed.step if resumed and resumed.step is not None else first - 1
    if from_step != kill.newest_step:
        reason = f"it resumed from step {from_step}, the newest complete checkpoint is {kill.newest}"
        return failed(f"{reason} (step {kill.newest_step})", evidence)
    how = f"it resumed from {kill.newest} (step {kill.newest_step})"
    return passed(f"killed at {kill.place.get('fraction', 0):.0%} of a save, {how}", evidence)


def _no_new_step(story: Story) -> str:
    if any(attempt.exit_code == 0 for attempt in story.after):
        return "it ended with exit code 0 and did no new step: the work is lost and the Job looks finished"
    if story.failed:
        return f"no new step after the kill: a crash loop, until the Job was given up ({story.failed})"
    if story.restarts:
        return f"no new step after the kill, started again {story.restarts} times: a crash loop"
    return "no new step after the kill: it was not started again"


def judge_steps(story: Story) -> Judgement:
    """CKPT-02: the first new step follows the saved one, then one by one; together they cover the reference once.

    Source: GPU platform verification, job layer, step continuity.
    """
    saved, new = story.kill.newest_step, [each.step for each in story.new_steps]
    done_before = [each.step for each in story.before.steps] if story.before else []
    lost = sum(saved is not None and step > saved for step in done_before)
    evidence = {"saved": saved, "new_steps": _span(new), "lost_steps": lost, **_after(story)}
    if saved is None:
        return inconclusive("the store held no complete checkpoint when the training was killed", evidence)
    if story.lost:
        return inconclusive(GONE.format(story.lost), evidence)
    if not new:
        return failed("no new step after the kill", evidence)
    if new[0] != saved + 1:
        return failed(f"the first new step is {new[0]}, the saved one was {saved}", evidence)
    for one, other in pairwise(new):
        if other != one + 1:
            return failed(f"step {other} follows step {one}", evidence)
    wanted = [each.step for each in story.references[0].steps] if story.references else []
    told = saved == 0 or any(step <= saved for step in done_before)  # the checkpoint proves that there were some
    if not wanted or story.before is None or not told:
        missing = "no reference run" if not wanted else "the log up to the kill is gone"
        return inconclusive(f"{missing}: whether every step was done once is not known", evidence)
    done = Counter([step for step in done_before if step <= saved] + new)
    wrong = sorted(step for step in set(wanted) | set(done) if done[step] != 1 or step not in wanted)
    if wrong and story.finished:
        return failed(f"steps not done exactly once, as in the reference run: {wrong[:SHOWN]}", evidence)
    if wrong:
        return inconclusive(f"it did not come to its end; the last new step is {new[-1]}", evidence)
    return passed(
        f"steps {saved + 1} to {new[-1]} follow the saved {saved}; each of {len(wanted)} was done once", evidence
    )


def judge_state(story: Story, components: Sequence[str] = COMPONENTS) -> Judgement:
    """CKPT-03: the first save after the resume holds every component, each bit as the reference run has it.

    Values that differ between two references say nothing; a training of which any do cannot be shown to be complete.

    Args:
        story: with the saves of all trainings.
        components: which a checkpoint must have.

    Source: GPU platform verification, job layer, state completeness.
    """
    first = next((save for save in story.new_saves if save.complete == "yes"), None)
    if first is None:
        reason = "no complete checkpoint was saved after the kill"
        return failed(reason, _after(story)) if not story.new_steps else inconclusive(reason, _after(story))
    evidence: dict[str, Any] = {
        "step": first.step,
        "components": list(first.components),
        "values": len(first.crcs or ()),
    }
    missing = [each for each in components if each not in first.components]
    if missing:
        remedy = f"save and restore {', '.join(missing)} too"
        return failed(f"the checkpoint of step {first.step} lacks {', '.join(missing)}", evidence, remedy)
    if first.step is None:
        return inconclusive("the checkpoint does not say its step: there is nothing to compare it with", evidence)
    twin = _at(story.reference_saves, first.step)
    if twin is None:
        return inconclusive(f"the reference run has no complete checkpoint of step {first.step}", evidence)
    if set(twin.components) != set(first.components):
        return failed(f"the reference run's checkpoint has {', '.join(twin.components)}", evidence)
    if not first.crcs or not twin.crcs:
        return inconclusive("these checkpoints hold no CRCs to compare states by", evidence)
    others = [found.crcs for each in story.other_saves if (found := _at(each, first.step)) and found.crcs]
    by_chance = {name for name, crc in twin.crcs.items() if any(each.get(name, crc) != crc for each in others)}
    return _compared(first, twin, first.crcs, twin.crcs, by_chance, evidence)


def _at(saves: Iterable[Saved], step: int | None) -> Saved | None:
    return next((save for save in saves if save.step == step and save.complete == "yes"), None)


def _compared(
    first: Saved,
    twin: Saved,
    ours: Mapping[str, int],
    theirs: Mapping[str, int],
    by_chance: set[str],
    evidence: dict[str, Any],
) -> Judgement:
    """Compare value by value; what has no CRC, or differs between references, is not compared, and proves nothing."""
    blind = _blind(first, twin)
    names = ({*ours, *theirs} if not blind else ours.keys() & theirs.keys()) - by_chance
    differs = sorted(name for name in names if ours.get(name) != theirs.get(name))
    if differs:
        parts = ", ".join(dict.fromkeys(name.split(".")[0] for name in differs))
        evidence["differs"] = differs[:SHOWN]
        return failed(f"at step {first.step}, {len(differs)} of {len(theirs)} values differ, in {parts}", evidence)
    if blind:
        reason = f"at step {first.step} what could be compared is equal; there are no CRCs of {', '.join(blind)}"
        return inconclusive(reason, evidence)
    if by_chance:
        evidence["by_chance"] = sorted(by_chance)[:SHOWN]
        reason = f"at step {first.step}, {len(by_chance)} of {len(theirs)} values differ between the reference runs"
        return inconclusive(f"{reason}: the training is not repeatable; the others are equal", evidence)
    return passed(f"at step {first.step} all {len(theirs)} values equal the reference run's, bit for bit", evidence)


def _blind(*saves: Saved) -> list[str]:
    """Name what two saves cannot be compared by: components without a CRC, and values of which one knows none."""
    found = set[str]()
    for save in saves:
        proven = {name.split(".")[0] for name in save.crcs or ()}
        found |= {each for each in save.components if each not in proven}
    several = max(save.without_crc for save in saves)
    return sorted(found) + ([f"{several} values"] if several and not found else [])


def judge_loss(story: Story) -> Judgement:
    """CKPT-04: learning rate exactly, and loss, as in the reference run over the same steps.

    The loss must be equal where the references are at every step (one alone counts as repeatable); where two or more
    differ among themselves, it must lie between them, give or take `BAND` times the most that they are apart at any of
    the steps. A loss alone would miss a lost scheduler.

    Source: GPU platform verification, job layer, loss continuity; comparison of omitted components, facts §5.4.
    """
    references = [_by_step(each) for each in story.references]
    new = story.new_steps
    common = [step for step in new if references and all(step.step in each for each in references)]
    evidence: dict[str, Any] = {"common_steps": _span([each.step for each in common]), "references": len(references)}
    if not new:
        return failed("no new step after the kill", evidence)
    if not common:
        return inconclusive("no step in common with a reference run", evidence)
    lasts = [max(each) for each in references]
    unknown = [step.step for step in new if step not in common and step.step <= min(lasts)]
    if unknown:
        return inconclusive(f"a reference run's log lacks steps: {unknown[:SHOWN]}", evidence)
    if any(each.lr is None for step in common for each in (step, *(known[step.step] for known in references))):
        return inconclusive("the training does not log its learning rate (`lr`)", evidence)
    evidence["apart"] = apart = _most_apart([[each[step.step].loss for each in references] for step in common])
    for step in common:
        wanted = [each[step.step] for each in references]
        rates = [each.lr for each in wanted]
        if step.lr not in rates:
            reason = f"at step {step.step} the learning rate is {step.lr:.6g}, in the reference run {rates[0]:.6g}"
            return failed(reason, evidence, "save and restore the learning rate schedule")
        if not _within(step.loss, [each.loss for each in wanted], BAND * apart):
            losses = ", ".join(f"{each.loss:.6g}" for each in wanted)
            return failed(f"at step {step.step} the loss is {step.loss:.6g}, in the reference run {losses}", evidence)
    which = "the reference run" if len(references) == 1 else f"{len(references)} reference runs"
    band = f"; these differ by up to {apart:.3g}, the loss is allowed {BAND:g} times that" if apart else ""
    return passed(f"loss and learning rate of {len(common)} steps are those of {which}{band}", evidence)


def _most_apart(losses: Sequence[Sequence[float]]) -> float:
    """Return the largest distance between references at one step; what is not finite is no measure."""
    return max((max(each) - min(each) for each in losses if all(map(isfinite, each))), default=0.0)


def _within(loss: float, wanted: Sequence[float], band: float) -> bool:
    if loss != loss or any(each != each for each in wanted):  # NaN
        return all(each != each for each in (loss, *wanted))
    return min(wanted) - band <= loss <= max(wanted) + band


def _by_step(attempt: Attempt) -> dict[int, Step]:
    return {each.step: each for each in attempt.steps}


def _after(story: Story) -> dict[str, Any]:
    runs = [
        {
            "resumed": each.resumed._asdict() if each.resumed else None,
            "steps": _span([step.step for step in each.steps]),
            "exit_code": each.exit_code,
        }
        for each in story.after
    ]
    return {"after": runs[-SHOWN:], "restarts": story.restarts, "job_failed": story.failed, "finished": story.finished}


def _span(steps: Iterable[int]) -> list[int]:
    """Return the first and the last of some steps."""
    found = list(steps)
    return [found[0], found[-1]] if found else []
