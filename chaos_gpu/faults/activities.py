"""What an experiment's own text asks for, checked before anything else: the guard, arguments, targets."""

from collections.abc import Mapping
from importlib import import_module
from inspect import signature
from typing import Any

from chaoslib import substitute

from chaos_gpu.errors import Refused, UsageError
from chaos_gpu.faults.kinds import kind_of

Activity = dict[str, Any]

GUARD = "chaos_gpu.controls.guard"
OURS = "chaos_gpu."
SELECTING = ("name", "label_selector", "label_selectors", "field_selector", "name_pattern", "pod_label_selector")
"""Arguments by which an action of chaostoolkit-kubernetes is told what to hit; without any it hits everything."""


def check_guard_is_whole(experiment: Mapping[str, Any]) -> None:
    """Refuse a guard that Chaos Toolkit would apply to a part of the run only."""
    for control in experiment.get("controls") or ():
        if (control.get("provider") or {}).get("module") != GUARD:
            continue
        if control.get("scope") or not control.get("automatic", True):
            raise UsageError(
                "the guard would see a part of the run only", remedy="remove its `scope` and `automatic: false`"
            )


def resolved(experiment: Mapping[str, Any], configuration: dict[str, Any], secrets: dict[str, Any]) -> list[Activity]:
    """Return the activities of the method with their arguments filled in, having checked all activities.

    Raises: UsageError when a `${…}` stays unresolved (Chaos Toolkit would hand it on as it is) or an activity is not
    where it belongs; Refused for one that would hit everything.
    """
    probes = (experiment.get("steady-state-hypothesis") or {}).get("probes") or []
    method, rollbacks = experiment.get("method") or [], experiment.get("rollbacks") or []
    elsewhere = [_resolve(each, configuration, secrets) for each in [*probes, *rollbacks]]
    found = [_resolve(each, configuration, secrets) for each in method]
    for activity in [*elsewhere, *found]:
        _check_has_target(activity)
        if activity.get("background") and _module(activity).startswith(OURS):
            raise UsageError(f"{_name(activity)}: it cannot run in the background", "remove `background`")
    for activity in elsewhere:
        if kind_of(activity):
            raise UsageError(f"{_name(activity)}: only the method may inject a fault", "move it into `method`")
    check_references([*elsewhere, *found])
    return found


def check_references(activities: list[Activity]) -> None:
    """Refuse a probe or action on a fault that nothing injects: it could only fail, after the others were injected."""
    injected = {each["provider"]["arguments"].get("fault") for each in activities if kind_of(each)}
    for activity in activities:
        if not _module(activity).startswith(OURS):  # a process takes its arguments as a list, or as one text
            continue
        fault = activity["provider"]["arguments"].get("fault")
        if fault is not None and fault not in injected:
            names = ", ".join(sorted(map(str, injected))) or "none"
            raise UsageError(f"{_name(activity)}: no activity injects fault {fault!r}", f"those injected: {names}")


def _resolve(activity: Activity, configuration: dict[str, Any], secrets: dict[str, Any]) -> Activity:
    provider = activity.get("provider") or {}
    arguments = substitute(provider.get("arguments") or {}, configuration, secrets)
    if "${" in str(arguments):
        raise UsageError(
            f"{_name(activity)}: an argument still holds an unresolved ${{…}}",
            remedy="declare it under `configuration`, with a default",
        )
    return {**activity, "provider": {**provider, "arguments": arguments}}


def _check_has_target(activity: Activity) -> None:
    """Refuse an action that would hit everything: chaostoolkit-kubernetes takes "no selector" for "all"."""
    module, provider = _module(activity), activity["provider"]
    if activity.get("type") != "action" or not module.startswith("chaosk8s."):
        return
    selecting = _selecting(module, str(provider.get("func")))
    given = [key for key in selecting if str(provider["arguments"].get(key) or "").strip()]
    if selecting and not given:
        raise Refused(
            f"{_name(activity)} ({module}.{provider.get('func')}) names no target: it would hit all",
            remedy=f"give it one of {', '.join(selecting)}",
        )


def _selecting(module: str, function: str) -> list[str]:
    """List the arguments by which this action chooses; none for one that makes something, or that is not there."""
    try:
        accepted = signature(getattr(import_module(module), function)).parameters
    except (ImportError, AttributeError, TypeError):
        return []
    makes = function.startswith(("create_", "apply_"))
    return [] if makes else [key for key in SELECTING if key in accepted]


def _module(activity: Activity) -> str:
    return str((activity.get("provider") or {}).get("module", ""))


def _name(activity: Activity) -> str:
    return f"activity {activity.get('name')!r}"
