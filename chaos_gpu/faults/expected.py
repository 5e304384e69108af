"""What a judging probe takes for granted about its fault, held against the policy before anything is injected.

A probe that waits for a cordon says nothing about a code on which the policy calls for none, and the other way round:
its verdict would be on the choice of the probe, not on the platform.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from chaos_gpu.criteria.xid.policy import Action, Expectation
from chaos_gpu.criteria.xid.record import Form
from chaos_gpu.errors import UsageError
from chaos_gpu.faults import application_xid, xid
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.settings import Settings

TAKES_FOR_GRANTED: Mapping[str, Action | None] = MappingProxyType(
    {
        "chaos_gpu.probes.device.xid_detected": Action.CORDON,
        "chaos_gpu.probes.device.time_to_cordon": Action.CORDON,
        "chaos_gpu.probes.health.cordoned_during_job": Action.CORDON,
        "chaos_gpu.probes.health.diagnosed": Action.CORDON,
        "chaos_gpu.probes.device.node_kept": Action.NONE,
        "chaos_gpu.probes.device.policy_followed": None,
    }
)
"""Probe that judges what the platform does about an Xid → the action that it waits for; None for either."""

XIDS = (xid.KIND, application_xid.KIND)
"""The kinds of fault that are an Xid."""
_DONE = {Action.CORDON: "cordoned", Action.NONE: "left in service"}
_INSTEAD = {
    Action.NONE: "judge it by node_kept or policy_followed",
    Action.CORDON: "judge it by time_to_cordon or policy_followed",
}


def check_expected(activities: Iterable[Mapping[str, Any]], plans: Mapping[str, Plan], settings: Settings) -> None:
    """Refuse a probe that could only judge wrongly: its fault is no Xid, or the policy calls for another action.

    Args:
        activities: of the method, arguments filled in.
        plans: by fault.
        settings: with the site's policy.

    Raises: UsageError with the reason and the probe that fits.
    """
    for activity in activities:
        provider = activity["provider"]
        function = f"{provider.get('module')}.{provider.get('func')}"
        if function not in TAKES_FOR_GRANTED:
            continue
        plan = plans.get(provider["arguments"].get("fault"))
        if plan is None:  # its arguments are checked elsewhere
            continue
        _check(f"activity {activity.get('name')!r}: {provider['func']}", TAKES_FOR_GRANTED[function], plan, settings)


def expected_of(plan: Plan, settings: Settings) -> Expectation:
    """Say what the policy calls for on the Xid that a plan is about, by what its record will say."""
    code = int(plan.facts["code"])
    return settings.expectation_for(code, str(plan.facts.get("text", "")).partition(f": {code}, ")[2])


def _check(probe: str, action: Action | None, plan: Plan, settings: Settings) -> None:
    if plan.kind not in XIDS:
        raise UsageError(
            f"{probe} judges an Xid, and fault {plan.fault!r} is none ({plan.kind})",
            remedy="judge it by a probe of its kind: chaos-gpu criteria lists them",
        )
    if action is None or plan.facts["form"] == Form.SXID:  # of these no policy speaks; the hypothesis says so
        return
    expected = expected_of(plan, settings)
    if expected.action is not action:
        raise UsageError(
            f"{probe} waits for a node that is {_DONE[action]}; on Xid {expected.code} the policy has it"
            f" {_DONE[expected.action]}: {expected.why}",
            remedy=f"{_INSTEAD[expected.action]}, inject another code, or state the site's policy: CHAOS_GPU_POLICY",
        )
