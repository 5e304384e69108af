"""After an Xid: cordon at once, r3 when the node's job has ended, then the decision (DEV-02 under a job, DEV-03).

Records bear the time of the platform's clock, the nodes are watched by the runner's: `records_error_s` says how far
the two may be apart. What lies within it is never held against the platform, nor for it.

Source: GPU platform verification, layer 2, "node health policy": Xid → cordon → r3 → Pass returns, Fail isolates.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chaos_gpu.criteria.attribution import episode_names_record
from chaos_gpu.criteria.device import judge_cordon_target
from chaos_gpu.criteria.health.record import Record, Result, worst_result
from chaos_gpu.criteria.timeline import Episode, Landed, Scene, Timeline, evidence_of
from chaos_gpu.verdict import Judgement, Outcome, failed, inconclusive, passed

R3 = 3
REMEDY_ORDER = "let the platform run r3 after the cordon, on an idle node, and decide by its result only"
REMEDY_BUSY = "let the platform wait for the end of the node's jobs before r3: it takes all GPUs, and disturbs the job"
REMEDY_WATCH = "repeat the experiment: the watch on the nodes was interrupted or ended too early"
REMEDY_RECORDS = "let the platform's records say when a diagnostic started and ended, and with which result"
REMEDY_JOB = "repeat the experiment: the job must run until it is ended on purpose"
REMEDY_SLOW = "see what the diagnostic waits for, or state a longer limit: CHAOS_GPU_DIAGNOSIS_S"
REMEDY_RETURN = "let the platform return a node that passed, or state a longer limit: CHAOS_GPU_UNCORDON_S"


@dataclass(frozen=True)
class Diagnosis:
    """One run of the diagnostic on one node, its times on the runner's clock (s)."""

    level: int
    result: Result | None
    """The worst of its GPUs; None where a record's cannot be read."""
    ended_s: float
    started_s: float | None = None
    confirmed: bool = False
    records: tuple[Record, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Job:
    """A job on the target node, by the runner's clock (s)."""

    name: str
    running_until_s: float
    """Last moment at which it was seen to run, and not yet told to end."""
    ended_by_us: bool
    """Whether it ran until it was ended on purpose."""


def diagnoses(records: Iterable[Record], node: str, offset_s: float) -> tuple[Diagnosis, ...]:
    """Put the records of one node together to runs of the diagnostic, in the order of their ends.

    Args:
        records: of all nodes.
        node: the one asked for.
        offset_s: seconds since the epoch minus the runner's monotonic seconds.
    """
    runs: dict[tuple[int, float], list[Record]] = {}
    for record in records:
        if record.node == node and record.level and record.ended_at:
            begun = record.started_at or record.ended_at
            runs.setdefault((record.level, begun.timestamp()), []).append(record)
    found = [_run(level, of_run, offset_s) for (level, _), of_run in runs.items()]
    return tuple(sorted(found, key=lambda each: each.ended_s))


def _run(level: int, records: Sequence[Record], offset_s: float) -> Diagnosis:
    ended = max(record.ended_at.timestamp() for record in records if record.ended_at)
    started = next((record.started_at.timestamp() for record in records if record.started_at), None)
    return Diagnosis(
        level=level,
        result=worst_result([record.result for record in records]),
        ended_s=ended - offset_s,
        started_s=None if started is None else started - offset_s,
        confirmed=any(record.confirmed_by for record in records),
        records=tuple(records),
    )


def judge_cordon_during_job(
    landed: Landed,
    timeline: Timeline,
    job: Job,
    done: Sequence[Diagnosis],
    limit_s: float,
    hold_s: float,
    records_error_s: float,
) -> Judgement:
    """DEV-02 under a job: the node is cordoned at once, while the job runs on, and no r3 starts before its end.

    Args:
        landed: the Xid's record, read back.
        timeline: all GPU nodes around it.
        job: our own, on the record's node.
        done: the node's diagnoses.
        limit_s: longest time from record to cordon.
        hold_s: shortest time for which the node must stay unschedulable.
        records_error_s: how far the clocks of records and runner may be apart.
    """
    judged = judge_cordon_target(landed, timeline, limit_s, hold_s)
    evidence = judged.evidence | _job_evidence(job, landed, done)
    if judged.outcome is not Outcome.PASS:
        return judged._replace(evidence=evidence)
    early = _while_busy(since(done, landed, records_error_s), job, records_error_s)
    if early is not None:
        told = f"{job.name} ran at least until {job.running_until_s - landed.at_s:.3f} s after the Xid"
        return failed(f"r3 on {landed.node} did not wait for the job: {told}", evidence, REMEDY_BUSY)
    cordoned_s = Scene.of(landed, timeline).cordons()[0].from_s
    if cordoned_s > job.running_until_s or not job.ended_by_us:
        return inconclusive(f"{judged.reason}; {job.name} was not seen to run that long", evidence, REMEDY_JOB)
    return passed(f"{judged.reason}, while {job.name} ran on; no r3 before its end", evidence)


def judge_diagnosis(
    landed: Landed,
    timeline: Timeline,
    job: Job,
    done: Sequence[Diagnosis],
    limit_s: float,
    return_s: float,
    hold_s: float,
    records_error_s: float,
) -> Judgement:
    """DEV-03: cordon, then r3 once the node is idle, then the decision by its result.

    Args:
        landed: the Xid's record, read back.
        timeline: the nodes from before it until the decision, or until all limits have passed.
        job: our own, on the record's node.
        done: the node's diagnoses.
        limit_s: longest time from the end of the job to the end of r3.
        return_s: longest time from an r3 that passed to the node's return.
        hold_s: shortest time for which a node that did not pass must be seen to stay out of service.
        records_error_s: how far the clocks of records and runner may be apart.
    """
    scene = Scene.of(landed, timeline)
    r3 = [each for each in since(done, landed, records_error_s) if each.level >= R3]
    evidence = evidence_of(scene) | _job_evidence(job, landed, r3)
    evidence |= {"limit_s": limit_s, "return_s": return_s, "records_error_s": records_error_s}
    if not scene.clocks_known or scene.before is None or not scene.before.schedulable:
        return inconclusive(f"{landed.node}: not seen in service before the Xid", evidence, REMEDY_WATCH)
    episode = next((each for each in scene.cordons() if episode_names_record(each, landed)), None)
    if episode is None:
        return _no_cordon(scene, evidence)
    if _while_busy(r3, job, records_error_s) is not None:
        return failed(f"r3 ran on {landed.node} while {job.name} still ran", evidence, REMEDY_BUSY)
    if not job.ended_by_us:
        return inconclusive(f"{job.name} ended before it was told to", evidence, REMEDY_JOB)
    if not r3:
        return _no_diagnosis(scene, episode, job, limit_s, evidence)
    return _decided(scene, episode, r3, return_s, hold_s, records_error_s, evidence)


def since(done: Sequence[Diagnosis], landed: Landed, records_error_s: float) -> list[Diagnosis]:
    """Return the diagnoses that ended after the fault, as far as the clocks can tell."""
    return [each for each in done if each.ended_s + records_error_s >= landed.at_s - landed.error_s]


def _while_busy(done: Iterable[Diagnosis], job: Job, records_error_s: float) -> Diagnosis | None:
    """Return an r3 that surely started while the job ran; one of unknown start at least ended while it ran."""
    starts = ((each, each.ended_s if each.started_s is None else each.started_s) for each in done if each.level >= R3)
    return next((each for each, start_s in starts if start_s + records_error_s < job.running_until_s), None)


def _no_cordon(scene: Scene, evidence: dict[str, Any]) -> Judgement:
    node = scene.landed.node
    if scene.cordons():
        return inconclusive(f"{node} was cordoned, but nothing says that it was for the Xid", evidence, REMEDY_ORDER)
    if scene.timeline.gaps:
        return inconclusive(f"{node}: no cordon seen, and the watch was interrupted", evidence, REMEDY_WATCH)
    return failed(f"{node} was not cordoned: there is no order of cordon, r3 and decision", evidence, REMEDY_ORDER)


def _no_diagnosis(scene: Scene, episode: Episode, job: Job, limit_s: float, evidence: dict[str, Any]) -> Judgement:
    node = scene.landed.node
    if episode.end is not None:
        return failed(f"{node} was returned without r3", evidence, REMEDY_ORDER)
    waited_s = scene.timeline.until_s - job.running_until_s
    if waited_s < limit_s:
        return inconclusive(f"{node}: no record of r3 yet, {waited_s:.3f} s after the job", evidence, REMEDY_WATCH)
    return failed(f"{node}: no record of r3 within {limit_s:g} s after the job", evidence, REMEDY_SLOW)


def _decided(
    scene: Scene,
    episode: Episode,
    r3: Sequence[Diagnosis],
    return_s: float,
    hold_s: float,
    records_error_s: float,
    evidence: dict[str, Any],
) -> Judgement:
    """Judge order and decision, where there was a cordon and an r3."""
    node, error_s = scene.landed.node, records_error_s + scene.timeline.watch_delay_s
    first, end = r3[0], episode.end
    begun_s = first.started_s
    if begun_s is not None and begun_s + error_s < episode.from_s:
        return failed(f"r3 on {node} started before the cordon", evidence, REMEDY_ORDER)
    if end is not None and end.at_s + error_s < first.ended_s:
        return failed(f"{node} was returned before r3 had ended", evidence, REMEDY_ORDER)
    before_return = [each for each in r3 if end is None or each.ended_s <= end.at_s + error_s]
    decisive = before_return[-1] if before_return else first
    if decisive.result is None or decisive.result is Result.SKIP:
        return inconclusive(f"{node}: no record says what r3 came to", evidence, REMEDY_RECORDS)
    if decisive.result is Result.PASS:
        judged = _passed_r3(scene, decisive, end is not None, return_s, evidence)
    else:
        judged = _not_passed_r3(scene, decisive, end is not None, hold_s, evidence)
    if begun_s is None and judged.outcome is Outcome.PASS:
        return inconclusive(f"{judged.reason}; no record says when r3 started", evidence, REMEDY_RECORDS)
    return judged


def _passed_r3(
    scene: Scene, decisive: Diagnosis, returned: bool, return_s: float, evidence: dict[str, Any]
) -> Judgement:
    node = scene.landed.node
    if returned:
        return passed(f"{node}: cordoned, r3 passed, returned", evidence)
    waited_s = scene.timeline.until_s - decisive.ended_s
    if waited_s < return_s:
        return inconclusive(f"{node}: r3 passed, not returned {waited_s:.3f} s later", evidence, REMEDY_WATCH)
    return failed(f"{node}: r3 passed, but it was not returned within {return_s:g} s", evidence, REMEDY_RETURN)


def _not_passed_r3(
    scene: Scene, decisive: Diagnosis, returned: bool, hold_s: float, evidence: dict[str, Any]
) -> Judgement:
    node, result = scene.landed.node, decisive.result
    confirmed = result is Result.WARN and decisive.confirmed
    if returned and not confirmed:
        return failed(f"{node} was returned though r3 says {result}", evidence, REMEDY_ORDER)
    if returned:
        return passed(f"{node}: cordoned, r3 says {result}, returned on an operator's word", evidence)
    if scene.timeline.until_s - decisive.ended_s < hold_s:
        return inconclusive(f"{node}: r3 says {result}, not watched for {hold_s:g} s", evidence, REMEDY_WATCH)
    return passed(f"{node}: cordoned, r3 says {result}, kept out of service", evidence)


def _job_evidence(job: Job, landed: Landed, done: Iterable[Diagnosis]) -> dict[str, Any]:
    def after(seconds: float | None) -> float | None:
        return None if seconds is None else round(seconds - landed.at_s, 6)

    told = [
        {
            "level": f"r{each.level}",
            "result": each.result and each.result.value,
            "started_after_s": after(each.started_s),
            "ended_after_s": after(each.ended_s),
            "gpus": len(each.records),
        }
        for each in done
    ]
    return {
        "job": {
            "name": job.name,
            "running_until_after_s": after(job.running_until_s),
            "ended_on_purpose": job.ended_by_us,
        },
        "diagnoses": told,
    }
