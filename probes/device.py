"""Probes of layer 2, device health: what the platform does about an injected Xid."""

import time
from typing import Any, Dict, List

from chaos_gpu.criteria import device
from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.timeline import Landed, Timeline
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.faults.observe import (
    events_naming,
    landed_of,
    timeline,
    wait_for_condition,
    wait_for_cordon,
    watch_delay_s,
)
from chaos_gpu.faults.run import Run, armed_run
from chaos_gpu.verdict import Judgement, Outcome, Verdict, inconclusive

__all__ = ["node_kept", "time_to_cordon", "xid_detected"]


def xid_detected(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether a detector turns a node condition unhealthy that names the injected record (DEV-02).

    Waits for twice the condition's limit at most (configuration `condition_s`, seconds).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the Xid was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    landed, limit_s = landed_of(run, fault), run.settings.condition_s
    conditions = run.injection(fault).plan.conditions
    wait_for_condition(run, landed, conditions, landed.at_s + 2 * limit_s)
    judgement = device.judge_detection(landed, timeline(run, landed), conditions, limit_s)
    return run.publish([run.record("DEV-02", judgement)])


def time_to_cordon(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether, how fast and for how long the platform cordons the right node (DEV-02, DEV-06, DEV-07).

    The time runs from the record's kernel time to the cordon seen by a watch; the verdict states its own error. Waits
    for twice the limit at most (configuration `cordon_s`, seconds), and for `hold_s` after the cordon.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the Xid was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    landed, settings = landed_of(run, fault), run.settings
    cordoned_s = wait_for_cordon(run, landed, until_s=landed.at_s + 2 * settings.cordon_s)
    if cordoned_s is not None:
        _watch_hold(run, cordoned_s + settings.hold_s + watch_delay_s(run, landed))
    seen = timeline(run, landed)
    policy = _policy_action(run, landed, seen, settings.cordon_s)
    verdicts = [
        run.record("DEV-02", device.judge_cordon_target(landed, seen, settings.cordon_s, settings.hold_s)),
        run.record("DEV-06", policy),
        run.record("DEV-07", device.judge_time_to_cordon(landed, seen, settings.cordon_s, _earlier_s(run.verdicts))),
    ]
    return run.publish(verdicts)


def node_kept(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether the platform leaves a node in service on an application's error (DEV-06).

    "Nothing happened" counts only if a detector has shown that it saw the record: by an Event or a condition naming it.
    Watches for the whole window (configuration `cordon_s`, seconds), and for `hold_s` after a cordon.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the Xid was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    landed, window_s = landed_of(run, fault), run.settings.cordon_s
    cordoned_s = wait_for_cordon(run, landed, until_s=landed.at_s + window_s + run.watch_delay_s + landed.error_s)
    if cordoned_s is not None:  # what it was for may be written a moment later
        _watch_hold(run, cordoned_s + run.settings.hold_s + watch_delay_s(run, landed))
    seen = timeline(run, landed)
    judgement = _with_positive_control(run, fault, seen, _policy_action(run, landed, seen, window_s))
    return run.publish([run.record("DEV-06", judgement)])


def _policy_action(run: Run, landed: Landed, seen: Timeline, window_s: float) -> Judgement:
    return device.judge_policy_action(landed, seen, run.settings.action_for(landed.code), window_s)


def _with_positive_control(run: Run, fault: str, seen: Timeline, judgement: Judgement) -> Judgement:
    landed = landed_of(run, fault)
    if judgement.outcome is not Outcome.PASS or run.settings.action_for(landed.code) is not Action.NONE:
        return judgement
    signs = events_naming(run, fault) or _conditions_naming(landed, seen)
    if not signs:
        return inconclusive(
            f"Xid {landed.code} on {landed.node}: the node was left alone, but nothing shows that a detector saw it",
            judgement.evidence,
            "let the detector report application errors as Events, or use a record form that it can see",
        )
    return judgement._replace(evidence={**judgement.evidence, "seen_by_detector": signs[:3]})


def _conditions_naming(landed: Landed, seen: Timeline) -> List[str]:
    of_target = (state for state in seen.states if state.uid == landed.node_uid and state.at_s >= landed.at_s)
    told = (f"{reason} {message}" for state in of_target for _, reason, message in state.conditions.values())
    return list(dict.fromkeys(text for text in told if names_record(text, landed, on_target=True)))


def _watch_hold(run: Run, until_s: float) -> None:
    run.pause(max(0.0, until_s - time.monotonic()) + 0.01)


def _earlier_s(verdicts: List[Verdict]) -> List[float]:
    measured = [verdict.evidence.get("seconds") for verdict in verdicts if verdict.criterion == "DEV-07"]
    return [seconds for seconds in measured if isinstance(seconds, float)]
