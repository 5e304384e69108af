"""Before a node takes work it needs an r2 that passed (DEV-01).

A fleet in which every node has its r2 shows nothing: only a node that lacks it can be admitted wrongly. So this judges
one node that was put into that situation, from then on.

Source: GPU platform verification, layer 2, "node health policy": r2 Pass required; Warn after an operator's check.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from chaos_gpu.criteria.health.diagnosis import REMEDY_WATCH, Diagnosis, since
from chaos_gpu.criteria.health.record import Result
from chaos_gpu.criteria.timeline import Landed, Scene, Timeline, evidence_of
from chaos_gpu.verdict import Judgement, failed, inconclusive, passed

R2 = 2
REMEDY_ADMISSION = "let the platform keep a node unschedulable until its r2 has passed, or a warning is confirmed"
REMEDY_SLOW = "look at a change of the node's r2 sooner, or state a longer limit: CHAOS_GPU_CORDON_S"
REMEDY_BEFORE = "choose a node that is in service: only there can a withdrawn r2 show anything"


class Standing(StrEnum):
    """What the platform was told of the node's r2."""

    NONE = "none"
    WARN = "warn"
    FAIL = "fail"


SITUATIONS = {
    Standing.NONE: "without an r2",
    Standing.WARN: "whose r2 warns, not confirmed by an operator",
    Standing.FAIL: "whose r2 failed",
}


def judge_admission(
    standing: Standing,
    landed: Landed,
    timeline: Timeline,
    done: Sequence[Diagnosis],
    limit_s: float,
    hold_s: float,
    records_error_s: float,
) -> Judgement:
    """DEV-01: a node that lacks its r2 becomes unschedulable in time, and stays so until it has it.

    Args:
        standing: what the node lacks.
        landed: the change by which it came to lack it.
        timeline: the nodes around that change.
        done: the node's diagnoses.
        limit_s: longest time from the change to the node's being unschedulable.
        hold_s: shortest time for which it must be seen to stay so.
        records_error_s: how far the clocks of records and runner may be apart.
    """
    scene = Scene.of(landed, timeline)
    node = f"{landed.node}, {SITUATIONS[standing]},"
    evidence = evidence_of(scene) | {"standing": standing.value, "limit_s": limit_s, "hold_s": hold_s}
    if not scene.clocks_known or scene.before is None:
        return inconclusive(f"{node} was not seen before", evidence, REMEDY_WATCH)
    if not scene.before.schedulable:
        return inconclusive(f"{node} was not in service before", evidence, REMEDY_BEFORE)
    episode = next(iter(scene.cordons()), None)
    if episode is None:
        return _stayed(scene, node, limit_s, evidence)
    told = f"{node} was taken out of service after {scene.measure(episode.from_s)}, limit {limit_s:g} s"
    if not (in_time := scene.measure(episode.from_s).within(limit_s)):
        near = inconclusive(f"{told}: within its own error of the limit", evidence, REMEDY_WATCH)
        return near if in_time is None else failed(told, evidence, REMEDY_SLOW)
    if episode.end is not None:
        return _let_in(told, episode.end.at_s + records_error_s, since(done, landed, records_error_s), evidence)
    if scene.held(episode, hold_s) is not True:
        return inconclusive(f"{told}, but not watched for {hold_s:g} s", evidence, REMEDY_WATCH)
    return passed(f"{told}, and stayed out", evidence)


def _stayed(scene: Scene, node: str, limit_s: float, evidence: dict[str, Any]) -> Judgement:
    if scene.unwatched(limit_s):
        return inconclusive(f"{node} was not watched all of {limit_s:g} s", evidence, REMEDY_WATCH)
    return failed(f"{node} stayed in service for {scene.observed_s:.3f} s", evidence, REMEDY_ADMISSION)


def _let_in(told: str, until_s: float, done: Sequence[Diagnosis], evidence: dict[str, Any]) -> Judgement:
    """Judge a node that came back: an r2 must have passed first, or a warning been confirmed."""
    grounds = [each for each in done if each.level >= R2 and each.ended_s <= until_s and _admits(each)]
    if not grounds:
        return failed(f"{told}, but let in again without an r2 that passed", evidence, REMEDY_ADMISSION)
    return passed(f"{told}, and let in again after its r{grounds[-1].level}", evidence)


def _admits(each: Diagnosis) -> bool:
    return each.result is Result.PASS or (each.result is Result.WARN and each.confirmed)
