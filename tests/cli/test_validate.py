"""What is wrong in an experiment's text is refused before anything starts, with a word on what to do."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from chaos_gpu.cli.experiments import load_experiment, shipped
from chaos_gpu.cli.validate import validate
from chaos_gpu.errors import UsageError

Experiment = dict[str, Any]


def set_argument(experiment: Experiment, value: Any, name: str = "code") -> None:
    experiment["method"][0]["provider"]["arguments"][name] = value


def drop(*keys: str) -> Callable[[Experiment], None]:
    return lambda experiment: [experiment.pop(key) for key in keys] and None


@pytest.fixture
def experiment() -> Experiment:
    return load_experiment("device/xid-fatal-cordons-node")


@pytest.mark.parametrize("name", sorted(shipped()))
def test_what_ships_is_valid(name: str) -> None:
    validate(load_experiment(name))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("title"), "title"),
        (drop("description"), "description"),
        (drop("method"), "method"),
        (drop("controls"), "no guard"),
        (lambda e: e["controls"][0]["provider"].update(module="chaosaddons.controls.safeguards"), "no guard"),
        (lambda e: e.update(controls={"name": "guard"}), "`controls` is not a list"),
        (lambda e: e.update(method=[1]), "an entry of method` is not a mapping"),
        (lambda e: e.update(method=[{"provider": "x"}]), "provider of an entry of method` is not a mapping"),
        (lambda e: e.update(configuration=[]), "`configuration` is not a mapping"),
        (lambda e: e.update({"steady-state-hypothesis": [1]}), "`steady-state-hypothesis` is not a mapping"),
        (lambda e: e["steady-state-hypothesis"].update(probes={}), "`probes` is not a list"),
        (lambda e: e["steady-state-hypothesis"].update(probes=["x"]), "an entry of probes` is not a mapping"),
        (lambda e: e["method"][0]["provider"].update(func="inject_nothing"), "inject_nothing"),
        (lambda e: e["method"][0]["provider"].update(module="chaos_gpu.actions.nothing"), "chaos_gpu.actions.nothing"),
        (lambda e: set_argument(e, 1, "no_such_argument"), "no_such_argument"),
        (lambda e: set_argument(e, "forty-eight"), r"'xid-48': argument 'code' of inject_xid: .*integer"),
        (lambda e: set_argument(e, "48"), "argument 'code'"),
        (lambda e: set_argument(e, True), "argument 'code'"),
        (lambda e: set_argument(e, None, "fault"), "argument 'fault' of inject_xid: .*string"),
        (lambda e: set_argument(e, "${missing}"), r"\$\{missing\} in `method` is not resolved"),
        (lambda e: e["controls"][0]["provider"]["arguments"].update(nodes="${n}"), r"\$\{n\} in `controls`"),
        (lambda e: e["configuration"].update(run={"type": "env", "key": "NOT_SET_ANYWHERE"}), "NOT_SET_ANYWHERE"),
    ],
)
def test_what_is_wrong_is_refused(experiment: Experiment, change: Callable[[Experiment], None], said: str) -> None:
    change(experiment)
    with pytest.raises(UsageError, match=said):
        validate(experiment)


def test_variables_are_resolved_and_then_checked(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    set_argument(experiment, "${code}")
    experiment["configuration"]["code"] = {"type": "env", "key": "A_CODE", "default": 48, "env_var_type": "int"}
    validate(experiment)
    validate(experiment, ["code:int=74"])
    with pytest.raises(UsageError, match="argument 'code'"):
        validate(experiment, ["code=74"])
    monkeypatch.setenv("A_CODE", "x")
    with pytest.raises(UsageError):
        validate(experiment)


@pytest.mark.parametrize("variable", ["nonsense", "a:strange=1"])
def test_a_malformed_variable_is_refused(experiment: Experiment, variable: str) -> None:
    with pytest.raises(UsageError):
        validate(experiment, [variable])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Walk to everything in a document, but the document itself."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, found in inside:
        yield from places(found, (*path, key))


BASE = load_experiment("device/xid-application-error-keeps-node")


def refusals(junk: Any) -> Iterator[UsageError]:
    """Put something in every place of an experiment, one after the other, and tell what is refused."""
    for path in places(BASE):
        document: Any = deepcopy(BASE)
        inside = document
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = junk
        try:
            validate(document)
        except UsageError as refused:
            yield refused


@pytest.mark.parametrize("junk", [None, 3, "x", [], {}, [1], {"a": {"b": 1}}], ids=repr)
def test_whatever_stands_anywhere_is_fine_or_refused_with_a_remedy(junk: Any) -> None:
    assert [str(refused) for refused in refusals(junk) if not refused.remedy] == []
