"""Probes of the node health policy: admission, diagnosis after an Xid, the weekly diagnosis, records."""

import time
from datetime import UTC, datetime
from typing import Any, Dict

from chaos_gpu.criteria.health.admission import Standing, judge_admission
from chaos_gpu.criteria.health.diagnosis import R3, judge_cordon_during_job, judge_diagnosis, since
from chaos_gpu.criteria.health.keeping import Judged, judge_records
from chaos_gpu.criteria.health.weekly import REMEDY_CLOCKS, Node, judge_weekly
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.faults.diagnosis import await_decision, done_on, job_of, returned_s, see_running
from chaos_gpu.faults.observe import landed_of, timeline, wait_for_cordon, watch_delay_s
from chaos_gpu.faults.records import epoch_offset_s, obstacle, read_records, skew_problem
from chaos_gpu.faults.run import Run, armed_run
from chaos_gpu.faults.targets import gpu_nodes, whole_gpus, work_by_node
from chaos_gpu.verdict import Judgement, inconclusive

__all__ = ["admission_held", "cordoned_during_job", "diagnosed", "idle_nodes_diagnosed"]


def admission_held(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether a node that lost its r2 is kept from new work until it has one again (DEV-01).

    Waits for twice the limit at most (configuration `cordon_s`, seconds), and for `hold_s` after the cordon.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the r2 was withdrawn under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land; ApiError and ApiUnavailable when there are no records to read.
    """
    run = armed_run(configuration)
    landed, settings = landed_of(run, fault), run.settings
    _watch_cordon(run, landed, settings.hold_s)
    standing = Standing(run.injection(fault).plan.facts["standing"])
    done, seen = done_on(run, landed), timeline(run, landed)
    judged = judge_admission(standing, landed, seen, done, settings.cordon_s, settings.hold_s, settings.skew_s)
    return run.publish([run.record("DEV-01", judged)])


def cordoned_during_job(configuration: Dict[str, Any], fault: str, job: str, seconds: float = 0.0) -> Dict[str, Any]:
    """Judge whether an Xid during a job cordons the node at once, and lets the job run on (DEV-02).

    Waits for twice the limit at most (configuration `cordon_s`, seconds), and for `hold_s` after the cordon.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the Xid was injected under.
        job: the name that the job was started under.
        seconds: so long after the cordon the job must be seen to run on, if that is longer.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land; ApiError and ApiUnavailable when there are no records to read.
    """
    run = armed_run(configuration)
    landed = landed_of(run, fault)
    _watch_cordon(run, landed, max(run.settings.hold_s, seconds) + run.settings.skew_s)
    return run.publish([run.record("DEV-02", _under_job(run, landed, job, ended_by_us=see_running(run, job)))])


def diagnosed(configuration: Dict[str, Any], fault: str, job: str) -> Dict[str, Any]:
    """Judge what follows once the job has ended: r3, the decision, and the records of it (DEV-02, DEV-03, DEV-05).

    Waits for the record of r3 (configuration `diagnosis_s`, seconds, at most) and, if it passed, for the node's return
    (`uncordon_s`).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the Xid was injected under.
        job: the name that the job was started under; end it with `revert` before.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land; ApiError and ApiUnavailable when there are no records to read.
    """
    run = armed_run(configuration)
    landed, settings = landed_of(run, fault), run.settings
    records = await_decision(run, landed, from_s=time.monotonic())
    seen, done = timeline(run, landed), done_on(run, landed, records)
    limits = (settings.diagnosis_s, settings.uncordon_s, settings.hold_s, settings.skew_s)
    order = judge_diagnosis(landed, seen, job_of(run, job, ended_by_us=True), done, *limits)
    decided = any(each.level >= R3 for each in since(done, landed, settings.skew_s))
    returned = returned_s(run, landed) is not None
    judged = Judged(
        node=landed.node,
        gpus=frozenset(gpu["uuid"] for gpu in landed_of(run, job).evidence.get("gpus", ()) if gpu.get("uuid")),
        level=R3,
        since=datetime.fromtimestamp(landed.at_s + epoch_offset_s(), UTC),
        in_service=returned if decided or returned else None,
    )
    verdicts = [
        run.record("DEV-02", _under_job(run, landed, job, ended_by_us=True)),
        run.record("DEV-03", order),
        run.record("DEV-05", judge_records(records, judged, settings.skew_s)),
    ]
    return run.publish(verdicts)


def idle_nodes_diagnosed(configuration: Dict[str, Any]) -> Dict[str, Any]:
    """Judge whether each idle GPU node has a record of r2 that is at most a week old (DEV-04).

    Looks once; changes nothing. Pods that hold GPUs make a node busy.

    Returns: {verdicts}.
    Raises: ApiError and ApiUnavailable when the nodes cannot be listed.
    """
    run = armed_run(configuration)
    return run.publish([run.record("DEV-04", _weekly(run))])


def _weekly(run: Run) -> Judgement:
    lacking = obstacle(run.api, run.settings)
    if lacking:
        return inconclusive(lacking.why, {}, lacking.remedy)
    problem, measured = skew_problem(run.api, run.settings)
    clock = {"server_ahead_s": round(measured.offset_s, 3), "error_s": round(measured.error_s, 3)}
    if problem:
        return inconclusive(problem, {"clock": clock}, REMEDY_CLOCKS)
    work = work_by_node(run.api)
    found = {node["metadata"]["name"]: node for node in gpu_nodes(run.api, run.settings.selector)}
    nodes = [Node(name, tuple(work.get(name, ())), whole_gpus(node)) for name, node in found.items()]
    settings = run.settings
    records = read_records(run.api, settings)
    judged = judge_weekly(nodes, records, datetime.now(UTC), settings.skew_s, settings.r2_days)
    return judged._replace(evidence={**judged.evidence, "clock": clock})


def _under_job(run: Run, landed: Landed, job: str, ended_by_us: bool) -> Judgement:
    settings = run.settings
    return judge_cordon_during_job(
        landed,
        timeline(run, landed),
        job_of(run, job, ended_by_us),
        done_on(run, landed),
        settings.cordon_s,
        settings.hold_s,
        settings.skew_s,
    )


def _watch_cordon(run: Run, landed: Landed, hold_s: float) -> None:
    """Wait for the cordon, twice its limit at most, and watch on for a while after it."""
    cordoned_s = wait_for_cordon(run, landed, until_s=landed.at_s + 2 * run.settings.cordon_s)
    if cordoned_s is not None:
        until_s = cordoned_s + hold_s + watch_delay_s(run, landed)
        run.pause(max(0.0, until_s - time.monotonic()) + 0.01)
