"""Probes of layer 2, device health: what the platform and its detectors do about an injected Xid."""

import time
from typing import Any, Dict, List

from chaos_gpu.criteria import device
from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.timeline import Landed, Timeline
from chaos_gpu.criteria.xid.policy import Action, Expectation
from chaos_gpu.faults.coverage import coverage_of
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

__all__ = ["detectors_see", "node_kept", "policy_followed", "time_to_cordon", "xid_detected"]


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
    return run.publish([run.record("DEV-06", _left_alone(run, fault))])


def policy_followed(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Judge whether the platform does what its policy calls for on this code, whatever that is (DEV-06).

    Waits for a cordon for twice the limit at most (configuration `cordon_s`, seconds); where the policy leaves the
    node alone it watches as `node_kept` does. The verdict says what the policy expects, why, and by which document.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that the Xid was injected under.

    Returns: {verdicts}.
    Raises: NotLanded when the fault did not land.
    """
    run = armed_run(configuration)
    landed, limit_s = landed_of(run, fault), run.settings.cordon_s
    obstacle = run.injection(fault).plan.obstacles.get("DEV-06")
    if obstacle:
        judgement = inconclusive(obstacle.why, {}, obstacle.remedy)
    elif _expectation(run, landed).action is Action.NONE:
        judgement = _left_alone(run, fault)
    else:
        wait_for_cordon(run, landed, until_s=landed.at_s + 2 * limit_s)
        judgement = _policy_action(run, landed, timeline(run, landed), limit_s)
    written = {key: run.injection(fault).plan.facts.get(key, "") for key in ("form", "variant", "transport")}
    judgement = judgement._replace(evidence={**judgement.evidence, "written": written})
    return run.publish([run.record("DEV-06", judgement)])


def detectors_see(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Find out which detectors of the cluster see this fault as it was written, by what, and how soon. Judges nothing.

    Waits until all have seen it that can show it, and for the condition's limit at most (configuration `condition_s`,
    seconds). `chaos-gpu report` puts what all calls found into one table.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that it was injected under.

    Returns: {coverage}: {fault, code, form, variant, transport, node, limit_s, detectors: [{detector, seen, by,
        seconds, error_s, why}]}; `seen` is null where it cannot be told.
    Raises: NotLanded when the fault did not land.
    """
    return {"coverage": coverage_of(armed_run(configuration), fault)}


def _left_alone(run: Run, fault: str) -> Judgement:
    landed, window_s = landed_of(run, fault), run.settings.cordon_s
    cordoned_s = wait_for_cordon(run, landed, until_s=landed.at_s + window_s + run.watch_delay_s + landed.error_s)
    if cordoned_s is not None:  # what it was for may be written a moment later
        _watch_hold(run, cordoned_s + run.settings.hold_s + watch_delay_s(run, landed))
    seen = timeline(run, landed)
    return _with_positive_control(run, fault, seen, _policy_action(run, landed, seen, window_s))


def _expectation(run: Run, landed: Landed) -> Expectation:
    said = landed.text.partition(f": {landed.code}, ")[2]
    return run.settings.expectation_for(landed.code, said)


def _policy_action(run: Run, landed: Landed, seen: Timeline, window_s: float) -> Judgement:
    expected = _expectation(run, landed)
    judgement = device.judge_policy_action(landed, seen, expected.action, window_s)
    policy = {"why": expected.why, "document": expected.document}
    return judgement._replace(evidence={**judgement.evidence, "policy": policy})


def _with_positive_control(run: Run, fault: str, seen: Timeline, judgement: Judgement) -> Judgement:
    landed = landed_of(run, fault)
    if judgement.outcome is not Outcome.PASS or _expectation(run, landed).action is not Action.NONE:
        return judgement
    signs = events_naming(run, fault) or _conditions_naming(landed, seen)
    if not signs:
        return inconclusive(
            f"{landed.name} on {landed.node}: the node was left alone, but nothing shows that a detector saw it",
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
