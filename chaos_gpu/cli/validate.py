"""See before a run whether an experiment can run at all: what is wrong in its text is refused, not tried."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from typing import Any, get_type_hints

from chaoslib import convert_vars, substitute
from chaoslib.configuration import load_configuration
from chaoslib.exceptions import ChaosException
from chaoslib.experiment import ensure_experiment_is_valid
from chaoslib.secret import load_secrets
from pydantic import TypeAdapter, ValidationError

from chaos_gpu.errors import UsageError
from chaos_gpu.faults.activities import GUARD

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_OURS = "chaos_gpu."
_INJECTED = ("configuration", "secrets")
_STUMBLES = (ValueError, TypeError, AttributeError, LookupError)
"""What Chaos Toolkit raises where it does not expect the kind of value that a file has, instead of complaining."""


def validate(experiment: dict[str, Any], variables: Sequence[str] = ()) -> dict[str, Any]:
    """Check an experiment as `chaos validate` does, and then what that does not: guard, `${…}`, types of arguments.

    Args:
        experiment: as loaded from its file.
        variables: `key=value` or `key:type=value`, as given to `--var`.

    Returns: its configuration, resolved.

    Raises:
        UsageError: something is wrong; the message says where, the remedy what to do.
    """
    _check_shape(experiment)
    guard_arguments(experiment)
    try:
        given = convert_vars(list(variables))
        _check_known(given, experiment)
        ensure_experiment_is_valid(experiment)
        configuration = load_configuration(experiment.get("configuration", {}), given)
        secrets = load_secrets(experiment.get("secrets", {}), configuration)
    except (ChaosException, *_STUMBLES) as error:
        raise UsageError(
            f"not a valid experiment: {error}", remedy="chaos-gpu experiments show NAME shows one that is"
        ) from error
    _check_variables(experiment, {*configuration, *(key for group in secrets.values() for key in group)})
    for name, provider in _providers(experiment):
        if str(provider.get("module", "")).startswith(_OURS):
            _check_types(name, provider, substitute(provider.get("arguments") or {}, configuration, secrets))
    return dict(configuration)


def guard_arguments(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the experiment's guard. Raises UsageError when it has none at its top level."""
    for control in document.get("controls") or ():
        provider = control.get("provider") or {}
        if provider.get("module") == GUARD:
            return dict(provider.get("arguments") or {})
    raise UsageError("the experiment has no guard", remedy=f"declare {GUARD} under `controls` at its top")


def _check_known(given: Mapping[str, Any], experiment: Mapping[str, Any]) -> None:
    """Refuse a --var that changes nothing: who gave it believes that it did."""
    known = list(experiment.get("configuration") or {})
    for key in given:
        if key not in known:
            near = get_close_matches(key, known, 1)
            raise UsageError(
                f"--var {key}: the experiment's configuration has no such key",
                remedy=f"did you mean {near[0]}?" if near else f"its keys: {', '.join(known)}",
            )


def _check_shape(experiment: Mapping[str, Any]) -> None:
    """Refuse what neither Chaos Toolkit's own validation nor ours can walk through."""
    kinds = {"controls": list, "method": list, "rollbacks": list, "configuration": dict, "secrets": dict}
    for key, kind in {**kinds, "steady-state-hypothesis": dict}.items():
        _require(experiment.get(key, kind()), kind, key)
    hypothesis = experiment.get("steady-state-hypothesis") or {}
    parts = {key: experiment.get(key, []) for key in ("controls", "method", "rollbacks")}
    for where, items in {**parts, "probes": _require(hypothesis.get("probes", []), list, "probes")}.items():
        for item in items:
            _require(item, dict, f"an entry of {where}")
            provider = _require(item.get("provider", {}), dict, f"provider of an entry of {where}")
            _require(provider.get("arguments") or {}, dict, f"arguments of an entry of {where}")


def _require(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        is_not = "a mapping" if kind is dict else "a list"
        raise UsageError(
            f"not a valid experiment: `{what}` is not {is_not}", remedy="chaos-gpu experiments show has one"
        )
    return value


def _check_variables(experiment: Mapping[str, Any], known: set[str]) -> None:
    """Refuse a `${…}` that nothing resolves: Chaos Toolkit would hand it to the activity as it stands."""
    for where in ("steady-state-hypothesis", "method", "rollbacks", "controls"):
        unknown = sorted({name for text in _texts(experiment.get(where)) for name in _VARIABLE.findall(text)} - known)
        if unknown:
            names = ", ".join(f"${{{name}}}" for name in unknown)
            raise UsageError(f"{names} in `{where}` is not resolved", remedy="declare it under `configuration`")


def _check_types(activity: str, provider: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuse an argument of another type than our function declares."""
    function = getattr(import_module(provider["module"]), provider["func"])
    hints = get_type_hints(function)
    for name in signature(function).parameters:
        if name in _INJECTED or name not in arguments or name not in hints:
            continue
        try:
            TypeAdapter(hints[name]).validate_python(arguments[name], strict=True)
        except ValidationError as error:
            said = error.errors(include_input=False, include_url=False)[0]["msg"]
            raise UsageError(
                f"activity {activity!r}: argument {name!r} of {provider['func']}: {said}",
                remedy=f"chaos discover or the documentation of {provider['module']} shows the types",
            ) from error


def _providers(experiment: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    hypothesis = experiment.get("steady-state-hypothesis") or {}
    for activity in (*hypothesis.get("probes", []), *experiment.get("method", []), *experiment.get("rollbacks", [])):
        provider = activity.get("provider") or {}
        if provider.get("type") == "python":
            yield str(activity.get("name")), provider


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
