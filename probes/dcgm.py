"""Probes of layer 2, device health: what DCGM says, and whom it reaches."""

import time
from collections.abc import Callable
from typing import Any, Dict

from chaos_gpu.criteria.dcgm import reach
from chaos_gpu.criteria.dcgm.injection import Injection
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.errors import TargetError, UsageError
from chaos_gpu.faults.dcgm_pods import ask
from chaos_gpu.faults.observe import landed_of, timeline, wait_for_cordon
from chaos_gpu.faults.run import Run, armed_run
from chaos_gpu.faults.targets import foreign_work
from chaos_gpu.verdict import Judgement, Outcome

__all__ = [
    "diagnosis_reads_right",
    "error_exported",
    "error_gone",
    "health_grades_right",
    "health_sees_error",
    "platform_acts_on_error",
]

_DISCOVERY = {"discovery": ["discovery", "-l"]}
_HEALTH = {**_DISCOVERY, "health": ["health", "-g", "0", "-c", "-j"]}
_COMMAND_S = 30.0


def diagnosis_reads_right(configuration: Dict[str, Any], fault: str, level: int = 1) -> Dict[str, Any]:
    """Run a diagnosis by the dcgmi of a fault's node, and judge whether its result can be relied upon (DEV-08).

    Level 1 takes seconds; 2 minutes, 3 up to half an hour, 4 hours, and from 2 on the node's GPUs must be idle.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a fault of this experiment, injected or not yet: its node is asked.
        level: 1 to 4.

    Returns: {verdicts}.
    Raises: NotLanded when dcgmi could not be run there, UsageError for a level that there is not, TargetError from
    level 2 on when work has come to the node that is not part of the run.
    """
    run = armed_run(configuration)
    if level not in (1, 2, 3, 4):
        raise UsageError(f"there is no level {level!r}", remedy="one of 1, 2, 3, 4")
    node = run.planned(fault).target.node
    if level > 1:
        _require_idle(run, node, level)
    commands = {**_DISCOVERY, "diag": ["diag", "-r", str(level), "-j"]}
    seen = ask(run, f"{fault}-r{level}", node, commands, limit_s=run.settings.diagnosis_s)
    uuids = [str(gpu["uuid"]) for gpu in seen.gpus]
    judged = reach.judge_diagnosis(seen.said["diag"], seen.said["discovery"], uuids, level)
    return run.publish([run.record("DEV-08", judged)])


def health_grades_right(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether DCGM's health calls an injected error what it is, a warning or a failure (DEV-08).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that a DCGM error was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land, or dcgmi could not be run there.
    """
    run = armed_run(configuration)
    return run.publish([run.record("DEV-08", _by_health(run, fault, "grade", reach.judge_grade))])


def health_sees_error(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether DCGM's health watch sees an injected error (DEV-09).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that a DCGM error was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land, or dcgmi could not be run there.
    """
    run = armed_run(configuration)
    return run.publish([run.record("DEV-09", _by_health(run, fault, "watch", reach.judge_health_watch))])


def error_exported(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether dcgm-exporter shows an injected error (DEV-09).

    Asks again until it does, for `condition_s` at most (configuration, seconds).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that a DCGM error was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land, or the exporter could not be asked.
    """
    run = armed_run(configuration)
    landed, sample = landed_of(run, fault), _sample(run, fault)

    def look(number: int) -> Judgement:
        seen = ask(run, f"{fault}-metric-{number}", landed.node, {}, metrics=True, limit_s=_COMMAND_S)
        prior, injected = float(landed.evidence["prior"]), float(landed.evidence["value"])
        return reach.judge_exported(seen.page, sample, landed.gpu_uuid, prior, injected)

    return run.publish([run.record("DEV-09", _until_passed(run, look, run.settings.condition_s))])


def platform_acts_on_error(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether the platform cordons the node of an injected DCGM error, because of it and in time (DEV-09).

    Waits for the limit, and half of it more, at most (configuration `cordon_s`, seconds).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that a DCGM error was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    landed, limit_s = landed_of(run, fault), run.settings.cordon_s
    wait_for_cordon(run, landed, until_s=landed.at_s + 1.5 * limit_s)
    judged = reach.judge_reaction(landed, timeline(run, landed), _sample(run, fault), limit_s)
    return run.publish([run.record("DEV-09", judged)])


def error_gone(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether DCGM and its exporter tell of an error no more after it was reverted (DEV-09).

    A rule on the change of a counter fires once more when the change leaves its window of a minute. So this asks again
    until all is well, for `echo_s` at most (configuration, seconds: health's window and one poll).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that a DCGM error was injected under, and reverted.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land, or dcgmi could not be run there.
    """
    run = armed_run(configuration)
    landed, sample = landed_of(run, fault), _sample(run, fault)
    if sample.grows:
        run.pause(run.settings.echo_s)  # well at first, and then the echo: only what is well after it counts

    def look(number: int) -> Judgement:
        seen = ask(run, f"{fault}-gone-{number}", landed.node, _HEALTH, metrics=True, limit_s=_COMMAND_S)
        health, discovery = seen.said["health"], seen.said["discovery"]
        return reach.judge_restored(health, discovery, seen.page, sample, landed.gpu_uuid, _put(landed))

    return run.publish([run.record("DEV-09", _until_passed(run, look, run.settings.echo_s))])


def _by_health(run: Run, fault: str, name: str, judge: Callable[..., Judgement]) -> Judgement:
    """Ask the node's health once, and have it judged against what it said before the injection."""
    landed, sample = landed_of(run, fault), _sample(run, fault)
    seen = ask(run, f"{fault}-{name}", landed.node, _HEALTH, limit_s=_COMMAND_S)
    health, discovery, before = seen.said["health"], seen.said["discovery"], str(landed.evidence["health_before"])
    return judge(health, discovery, sample, landed.gpu_uuid, before)


def _put(landed: Landed) -> reach.Put:
    told = landed.evidence
    return reach.Put(float(told["prior"]), float(told["value"]), str(told["health_before"]), bool(told["watch_set"]))


def _until_passed(run: Run, look: Callable[[int], Judgement], limit_s: float) -> Judgement:
    """Look again until it passes or the time is over; there is a first look in any case."""
    end_s, number = time.monotonic() + limit_s, 1
    judged = look(number)
    while judged.outcome is not Outcome.PASS and time.monotonic() < end_s:
        run.pause(0.5)
        number += 1
        judged = look(number)
    return judged


def _require_idle(run: Run, node: str, level: int) -> None:
    """See that a node runs no foreign work now: there was none when the run was armed, and some may have come."""
    work = [] if run.guard.allow_foreign_work else foreign_work(run.api, node)
    if work:
        raise TargetError(
            f"r{level} uses every GPU of {node}, which runs {', '.join(work[:3])}, not part of this run",
            remedy="repeat it when the node is idle, or cordon the node before",
        )


def _sample(run: Run, fault: str) -> Injection:
    facts = run.injection(fault).plan.facts
    return Injection(str(facts["error"]), int(facts["field"]), float(facts["value"]))
