"""Wait for what a platform does about a node's health: a job runs on, a diagnostic ends, the node returns."""

import time

from chaos_gpu.cluster.watch import Change
from chaos_gpu.criteria.health.diagnosis import R3, Diagnosis, Job, diagnoses
from chaos_gpu.criteria.health.record import Record, Result
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.errors import ApiError, ApiUnavailable
from chaos_gpu.faults.names import pods_path
from chaos_gpu.faults.observe import schedulable
from chaos_gpu.faults.records import epoch_offset_s, read_records, wait_for_records
from chaos_gpu.faults.run import Run


def see_running(run: Run, fault: str) -> bool:
    """See whether a job of ours still runs, and note when; one that is told to end does not count."""
    injection = run.injection(fault)
    asked_s = time.monotonic()
    assert injection.plan.pod is not None  # noqa: S101 - a job is a pod
    try:
        pod = run.api.find(f"{pods_path()}/{injection.plan.pod['metadata']['name']}")
    except (ApiError, ApiUnavailable):
        return False
    runs = pod is not None and pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    if runs:
        injection.running_s = asked_s
    return runs


def job_of(run: Run, fault: str, ended_by_us: bool) -> Job:
    """Say what is known of a job of ours."""
    running_s = run.injection(fault).running_s
    return Job(fault, running_s or 0.0, ended_by_us=ended_by_us and running_s is not None)


def done_on(run: Run, landed: Landed, records: list[Record] | None = None) -> tuple[Diagnosis, ...]:
    """Return the diagnoses of the fault's node, on the runner's clock."""
    found = read_records(run.api, run.settings) if records is None else records
    return diagnoses(found, landed.node, epoch_offset_s())


def await_decision(run: Run, landed: Landed, from_s: float) -> list[Record]:
    """Wait for r3 and for what the platform does about it; return the records as read last.

    Args:
        run: the armed run.
        landed: the fault.
        from_s: when the node's job was over (monotonic).
    """
    settings = run.settings

    def over(records: list[Record]) -> bool:
        return bool(_r3(run, landed, records)) or returned_s(run, landed) is not None

    records = wait_for_records(run.api, settings, over, from_s + settings.diagnosis_s, run.pause)
    r3 = _r3(run, landed, records)
    if r3 and r3[-1].result is Result.PASS:
        _await_return(run, landed, r3[-1].ended_s + settings.uncordon_s)
    elif r3:
        run.pause(max(0.0, r3[-1].ended_s + settings.hold_s + run.watch_delay_s - time.monotonic()) + 0.01)
    return read_records(run.api, settings)


def returned_s(run: Run, landed: Landed) -> float | None:
    """Return when the target was seen in service again after its first cordon since the fault, or None."""
    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    return _returned_s(list(run.recorder.changes), landed)


def _returned_s(changes: list[Change], landed: Landed) -> float | None:
    out = False
    for change in changes:
        if change.object["metadata"]["uid"] == landed.node_uid and change.at_s >= landed.at_s - landed.error_s:
            if out and schedulable(change.object):
                return change.at_s
            out = out or not schedulable(change.object)
    return None


def _r3(run: Run, landed: Landed, records: list[Record]) -> list[Diagnosis]:
    since_s = landed.at_s - landed.error_s - run.settings.skew_s
    return [each for each in done_on(run, landed, records) if each.level >= R3 and each.ended_s >= since_s]


def _await_return(run: Run, landed: Landed, until_s: float) -> None:
    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    run.recorder.wait_for(lambda changes: _returned_s(changes, landed) is not None, until_s)
    run.check()
