"""Layer 2, device health: what the platform does about an Xid, judged from one timeline (DEV-02, DEV-06, DEV-07).

Every judge compares measured times with their own error: what lies within it of a limit is inconclusive, and so is what
may have happened while nobody watched, unless the rest of the evidence decides anyway.

Source: GPU platform verification, layer 2, "node health policy".
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from chaos_gpu.criteria.attribution import episode_names_record, names_record
from chaos_gpu.criteria.timeline import (
    Episode,
    Landed,
    NodeState,
    Scene,
    Timeline,
    evidence_of,
)
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.verdict import Judgement, failed, inconclusive, passed

__all__ = [
    "Landed",
    "NodeState",
    "Timeline",
    "judge_cordon_target",
    "judge_detection",
    "judge_policy_action",
    "judge_time_to_cordon",
]

TOLD_CHARS = 4_096
"""So much of a condition's message goes into the evidence; some detectors append to it for ever."""

REMEDY_WATCH = "repeat the experiment: the watch on the nodes was interrupted or ended too early"
REMEDY_BEFORE = "make the node schedulable and healthy first, and choose one that nobody else works on"
REMEDY_DETECTOR = "see whether the detector runs on the node and reads this form of record; look into its log"
REMEDY_CORDON = "see whether the detector's policy acts on this code, and its right to patch nodes; look into its log"
REMEDY_ATTRIBUTION = "let the detector write into its condition or annotation which record it acts on: code and GPU"
REMEDY_FOREIGN = "repeat the experiment when nobody else cordons nodes"
REMEDY_SLOW = "shorten the detector's poll interval, or state a longer limit: CHAOS_GPU_CORDON_S"
REMEDY_SLOW_CONDITION = "shorten the detector's poll interval, or state a longer limit: CHAOS_GPU_CONDITION_S"
REMEDY_CLOCKS = "repeat the experiment: the clocks of node and runner could not be compared closely enough"


def judge_detection(landed: Landed, timeline: Timeline, profile_conditions: Sequence[str], limit_s: float) -> Judgement:
    """DEV-02, "the record names the GPU": a condition of the detector turns unhealthy and says which record.

    Args:
        landed: the record, read back.
        timeline: the nodes around it.
        profile_conditions: the detector's condition types; `Type` is unhealthy when True, `Type=False` when False.
        limit_s: longest time from record to condition.
    """
    scene = Scene.of(landed, timeline)
    evidence = evidence_of(scene) | {"conditions": list(profile_conditions), "limit_s": limit_s}
    what = f"{landed.name} on {landed.node}"
    if not profile_conditions:
        return inconclusive(f"{what}: no detector profile names a condition", evidence, REMEDY_DETECTOR)
    if not scene.clocks_known or scene.before is None:
        return _cannot_say(scene, evidence)
    for state in scene.after:
        name, by = condition_naming(state, landed, profile_conditions)
        if by:
            told = evidence | {"named_by": by, "condition": name, "told": _told(state, name)[:TOLD_CHARS]}
            return _timed(scene, state.at_s, limit_s, f"{what}: condition {name}", told, REMEDY_SLOW_CONDITION)
    return _undetected(scene, profile_conditions, limit_s, evidence)


def judge_cordon_target(landed: Landed, timeline: Timeline, limit_s: float, hold_s: float) -> Judgement:
    """DEV-02: the record's node, and no other, becomes unschedulable because of it, in time, and stays so.

    Args:
        landed: the record, read back.
        timeline: all GPU nodes around it.
        limit_s: longest time from record to cordon.
        hold_s: shortest time for which the node must stay unschedulable.
    """
    scene = Scene.of(landed, timeline)
    elsewhere = scene.cordons_elsewhere()
    noted = [episode.node for episode in elsewhere]
    evidence = evidence_of(scene) | {"limit_s": limit_s, "hold_s": hold_s, "cordoned_elsewhere": noted}
    what = f"{landed.name} on {landed.node}"
    wrong = _wrong_node(scene)
    if wrong:
        where = f"{what}: {wrong} was cordoned because of it"
        return failed(where, evidence | {"wrong_node": wrong}, "map the record's GPU to the node that wrote it")
    if not scene.clocks_known or scene.before is None or not scene.before.schedulable:
        return _cannot_say(scene, evidence)
    episode, by = _cordon_naming(scene)
    if episode is None:
        return _not_ours(scene, limit_s, evidence)
    timed = _timed(scene, episode.from_s, limit_s, f"{what}: cordoned", evidence | {"named_by": by})
    held = scene.held(episode, hold_s)
    if held is False:
        lasted = f"{what}: uncordoned {episode.seconds:.3f} s after the cordon, not held for {hold_s:g} s"
        return failed(lasted, timed.evidence, "keep the node out of service until it was repaired or checked")
    if held is None and timed.outcome == "pass":
        return inconclusive(f"{what}: cordoned, but not watched for {hold_s:g} s", timed.evidence, REMEDY_WATCH)
    return timed


def judge_policy_action(landed: Landed, timeline: Timeline, expected: str, window_s: float) -> Judgement:
    """DEV-06: the platform's action for this code equals the policy's.

    That a detector runs on the node, so that "nothing happened" means something, is for the caller to know.

    Args:
        landed: the record, read back.
        timeline: all GPU nodes around it.
        expected: `cordon` or `none`.
        window_s: how long the platform has to act, or must leave the node alone.
    """
    scene = Scene.of(landed, timeline)
    action = Action(expected)
    evidence = evidence_of(scene) | {"expected": action.value, "window_s": window_s}
    if action is Action.NONE:
        return _left_alone(scene, window_s, evidence)
    if not scene.clocks_known or scene.before is None or not scene.before.schedulable:
        return _cannot_say(scene, evidence)
    evidence |= {"limit_s": window_s}
    episode, by = _cordon_naming(scene)
    what = f"{landed.name} on {landed.node}, policy cordon:"
    if episode is not None:
        return _timed(scene, episode.from_s, window_s, f"{what} cordoned", evidence | {"named_by": by})
    if scene.cordons():
        return inconclusive(f"{what} cordoned, but nothing says that it was for this", evidence, REMEDY_ATTRIBUTION)
    return _never(scene, window_s, what, evidence)


def judge_time_to_cordon(
    landed: Landed, timeline: Timeline, limit_s: float, earlier_s: Sequence[float] = ()
) -> Judgement:
    """DEV-07: the time from the record in the kernel log to the cordon seen by a watch.

    Args:
        landed: the record, read back.
        timeline: the nodes around it, best watched for twice the limit.
        limit_s: longest time from record to cordon.
        earlier_s: what earlier repetitions of this run measured, for worst and median.
    """
    scene = Scene.of(landed, timeline)
    evidence = evidence_of(scene) | {"limit_s": limit_s, "error_s": round(scene.error_s, 6)}
    what = f"{landed.name} on {landed.node}"
    if not scene.clocks_known or scene.before is None or not scene.before.schedulable:
        return _cannot_say(scene, evidence)
    episode, by = _cordon_naming(scene)
    if episode is None and scene.cordons():
        return inconclusive(f"{what}: cordoned, but nothing says that it was for this", evidence, REMEDY_ATTRIBUTION)
    if episode is None:
        return _never(scene, limit_s, f"{what}:", evidence | {"repetitions": _repetitions(earlier_s)})
    every_s = [*earlier_s, scene.measure(episode.from_s).seconds]
    repetitions = _repetitions(every_s)
    timed = _timed(
        scene, episode.from_s, limit_s, f"{what}: cordoned", evidence | {"named_by": by, "repetitions": repetitions}
    )
    summary = f"; worst {max(every_s):.3f} s, median {median(every_s):.3f} s of {len(every_s)}"
    return timed._replace(reason=timed.reason + summary)


def _cannot_say(scene: Scene, evidence: dict[str, Any]) -> Judgement:
    """Say which precondition of every judge was not met."""
    what = f"{scene.landed.name} on {scene.landed.node}"
    if not scene.clocks_known:
        return inconclusive(f"{what}: the record's time on our clock is unknown", evidence, REMEDY_CLOCKS)
    if scene.before is None:
        return inconclusive(f"{what}: the node was not seen before the record", evidence, REMEDY_WATCH)
    return inconclusive(f"{what}: the node was unschedulable before the record", evidence, REMEDY_BEFORE)


def _timed(
    scene: Scene, seen_s: float, limit_s: float, what: str, evidence: dict[str, Any], slow: str = REMEDY_SLOW
) -> Judgement:
    """Judge a reaction that was seen by its time alone."""
    measured = scene.measure(seen_s)
    evidence = evidence | {"seconds": round(measured.seconds, 6), "error_s": round(measured.error_s, 6)}
    reason = f"{what} after {measured}, limit {limit_s:g} s"
    within = measured.within(limit_s)
    if within:
        return passed(reason, evidence)
    if within is False:
        return failed(reason, evidence, slow)
    if measured.seconds - measured.error_s > limit_s:
        return inconclusive(f"{reason}: may have come sooner, while nobody watched", evidence, REMEDY_WATCH)
    return inconclusive(f"{reason}: within its own error of the limit", evidence, REMEDY_CLOCKS)


def _never(scene: Scene, limit_s: float, what: str, evidence: dict[str, Any]) -> Judgement:
    """Judge a cordon of the target that was not seen at all."""
    if scene.unwatched(limit_s):
        return inconclusive(
            f"{what} no cordon seen, but the node was not watched all of {limit_s:g} s", evidence, REMEDY_WATCH
        )
    twice = scene.observed_s >= 2 * limit_s
    span = f"2 × the limit of {limit_s:g} s" if twice else f"{scene.observed_s:.3f} s, limit {limit_s:g} s"
    return failed(f"{what} not cordoned within {span}", evidence, REMEDY_CORDON)


def _not_ours(scene: Scene, limit_s: float, evidence: dict[str, Any]) -> Judgement:
    """DEV-02 without a cordon that names the record: there was none, or it was for something else, or unexplained."""
    what = f"{scene.landed.name} on {scene.landed.node}:"
    cordons = scene.cordons()
    if not cordons:
        return _never(scene, limit_s, what, evidence)
    foreign = next((s.attribution for episode in cordons for s in episode.states if s.attribution), "")
    if foreign:
        told = evidence | {"attribution": foreign}
        return inconclusive(f"{what} cordoned for something else", told, REMEDY_FOREIGN)
    if scene.unwatched(limit_s):
        return inconclusive(f"{what} cordoned, but not watched all of {limit_s:g} s", evidence, REMEDY_WATCH)
    return failed(f"{what} cordoned, but nothing on the node names the record", evidence, REMEDY_ATTRIBUTION)


def _left_alone(scene: Scene, window_s: float, evidence: dict[str, Any]) -> Judgement:
    """DEV-06 for a code on which the platform must not act."""
    what = f"{scene.landed.name} on {scene.landed.node}, policy none:"
    episode, by = _cordon_naming(scene)
    wrong = _wrong_node(scene)
    if episode is not None or wrong:
        node = wrong or scene.landed.node
        when = f" after {scene.measure(episode.from_s)}" if episode is not None else ""
        remedy = "take the code out of the codes on which the detector cordons: the application's fault, not the GPU's"
        told = evidence | {"named_by": by, "cordoned": node}
        return failed(f"{what} {node} was cordoned because of it{when}", told, remedy)
    if not scene.clocks_known or scene.before is None or not scene.before.schedulable:
        return _cannot_say(scene, evidence)
    if scene.cordons():
        return inconclusive(f"{what} cordoned, but nothing says what for", evidence, REMEDY_FOREIGN)
    if scene.unwatched(window_s):
        return inconclusive(f"{what} not watched all of {window_s:g} s", evidence, REMEDY_WATCH)
    return passed(f"{what} schedulable for all of {window_s:g} s", evidence)


def _undetected(scene: Scene, conditions: Sequence[str], limit_s: float, evidence: dict[str, Any]) -> Judgement:
    """DEV-02 without a condition that names the record."""
    what = f"{scene.landed.name} on {scene.landed.node}:"
    latched = _unhealthy(scene.before, conditions) if scene.before else []
    if latched:
        reason = f"{what} {', '.join(latched)} was unhealthy before the record, and never named it"
        return inconclusive(reason, evidence, REMEDY_BEFORE)
    if scene.unwatched(limit_s):
        return inconclusive(f"{what} not watched all of {limit_s:g} s", evidence, REMEDY_WATCH)
    turned = sorted({name for state in scene.after for name in _unhealthy(state, conditions)})
    if turned:
        reason = f"{what} {', '.join(turned)} turned unhealthy, but names neither the record nor its code and GPU"
        return failed(reason, evidence, REMEDY_ATTRIBUTION)
    misplaced = _misplaced(scene, conditions)
    where = f"; {misplaced} has it instead" if misplaced else ""
    names = ", ".join(conditions)
    return failed(f"{what} {names} did not turn unhealthy within {limit_s:g} s{where}", evidence, REMEDY_DETECTOR)


def _unhealthy(state: NodeState, conditions: Sequence[str]) -> list[str]:
    """Return which of the profile's conditions are unhealthy; absent and Unknown are not."""
    split = [condition.partition("=") for condition in conditions]
    return [name for name, _, bad in split if state.conditions.get(name, ("",))[0] == (bad or "True")]


def condition_naming(state: NodeState, landed: Landed, conditions: Sequence[str]) -> tuple[str, str]:
    """Return the first unhealthy condition that names the record itself or through the attribution, and by what."""
    for name in _unhealthy(state, conditions):
        for text in (_told(state, name), state.attribution):
            by = names_record(text, landed, on_target=state.node == landed.node)
            if by:
                return name, by
    return "", ""


def _told(state: NodeState, condition: str) -> str:
    _, reason, message = state.conditions[condition]
    return f"{reason} {message}"


def _cordon_naming(scene: Scene) -> tuple[Episode | None, str]:
    """Return the target's first cordon that names the record, and by what."""
    named = ((episode, episode_names_record(episode, scene.landed)) for episode in scene.cordons())
    return next((pair for pair in named if pair[1]), (None, ""))


def _wrong_node(scene: Scene) -> str:
    """Return another node that was cordoned because of our record, or ""."""
    episodes = scene.cordons_elsewhere()
    return next((episode.node for episode in episodes if episode_names_record(episode, scene.landed)), "")


def _misplaced(scene: Scene, conditions: Sequence[str]) -> str:
    """Return another node whose condition names our record, or ""."""
    states = (state for other in scene.others.values() for state in other)
    return next((state.node for state in states if condition_naming(state, scene.landed, conditions)[1]), "")


def _repetitions(every_s: Sequence[float]) -> dict[str, Any]:
    seconds = [round(value, 6) for value in every_s]
    return {
        "seconds": seconds,
        "worst_s": max(seconds, default=None),
        "median_s": median(seconds) if seconds else None,
    }
