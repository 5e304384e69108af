"""The registry: complete, true to the experiments that ship, and the only place where a criterion is written down."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.registry import JUDGES, LAYERS, RECOVERY, Cell, criteria, criterion, markdown, matrix, owed
from chaos_gpu.errors import UsageError

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted({name for each in criteria() for name in each.experiments})


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "experiments" / f"{name}.yaml").read_text())
    return loaded


def probe(name: str, func: str, **more: Any) -> dict[str, Any]:
    provider = {"type": "python", "module": "chaos_gpu.probes.device", "func": func}
    return {"name": name, "type": "probe", "provider": provider, **more}


def test_json_has_the_promised_keys() -> None:
    keys = ["id", "layer", "statement", "source", "thresholds", "probes", "experiments", "defects"]
    for each in criteria():
        data = each.as_json()
        assert list(data) == keys
        assert all(isinstance(item, str) for key in ("probes", "experiments", "defects") for item in data[key])
        assert all(set(threshold) == {"name", "default", "unit", "env"} for threshold in data["thresholds"])


@pytest.mark.parametrize("path", sorted(JUDGES))
def test_every_judging_probe_exists(path: str) -> None:
    module, _, function = path.rpartition(".")
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_judges_exactly_what_the_registry_says(name: str) -> None:
    assert sorted(owed(load(name))) == sorted(each.id for each in criteria() if name in each.experiments)


def test_what_the_shipped_experiments_owe() -> None:
    assert owed(load("device/xid-fatal-cordons-node")) == {"DEV-02": 6, "DEV-06": 3, "DEV-07": 3}
    assert owed(load("device/xid-application-error-keeps-node")) == {"DEV-06": 1}
    assert owed(load("device/admission-needs-diagnostics")) == {"DEV-01": 3}
    assert owed(load("device/xid-during-job-runs-diagnostics")) == {"DEV-02": 2, "DEV-03": 1, "DEV-05": 1}
    assert owed(load("device/idle-nodes-are-diagnosed-weekly")) == {"DEV-04": 1}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_thresholds_are_the_experiments_own_defaults(name: str) -> None:
    configuration = load(name)["configuration"].values()
    defaults = {value["key"]: value["default"] for value in configuration if value.get("type") == "env"}
    for each in criteria():
        for threshold in each.thresholds if name in each.experiments else ():
            assert defaults[threshold.env] == threshold.default, f"{each.id} {threshold.name}"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_hypothesis_asks_for_the_criteria_that_are_judged(name: str) -> None:
    probes = load(name)["steady-state-hypothesis"]["probes"]
    asked = next(p["provider"]["arguments"]["criteria"] for p in probes if p["provider"]["func"] == "criteria_hold")
    assert sorted(asked) == sorted(owed(load(name)))


def test_calls_are_counted_and_references_resolved() -> None:
    method = [
        probe("a", "xid_detected"),
        probe("b", "time_to_cordon"),
        {"ref": "a"},
        {"ref": "nothing"},
        probe("c", "something_else"),
        {"name": "d", "type": "action", "provider": {"type": "process", "path": "true"}},
    ]
    assert owed({"method": method}) == {"DEV-02": 3, "DEV-06": 1, "DEV-07": 1}


ANYTHING = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.fixed_dictionaries({}, optional={"ref": inner, "name": inner, "provider": inner, "module": inner})
    ),
    max_leaves=6,
)


@given(ANYTHING)
def test_what_calls_no_probe_of_ours_owes_nothing(method: Any) -> None:
    assert owed({"method": method}) == {}
    assert owed({"method": [method]}) == {}


def test_lookup() -> None:
    assert criterion("dev-02").id == "DEV-02"
    with pytest.raises(UsageError, match=r"no criterion 'DEV-99'\n.*DEV-02"):
        criterion("DEV-99")


def test_the_matrix_has_a_healthy_cell_a_cell_for_every_defect_and_one_without_what_it_needs() -> None:
    cells = matrix()
    needs = {name: components for layer in LAYERS for name, components in layer.needs.items()}
    assert len(set(cells)) == len(cells)
    for each in criteria():
        for name in each.experiments:
            assert Cell(each.id, name, None, "pass") in cells
            without = [f"without:{need}" for need in needs.get(name, ())]
            assert all(Cell(each.id, name, planted, "inconclusive") in cells for planted in without)
            assert each.catches[name]
            assert all(Cell(each.id, name, defect, "fail") in cells for defect in each.catches[name])
    assert Cell(RECOVERY, "device/xid-fatal-cordons-node", "detector-never-returns", "not recovered") in cells


def test_every_planted_defect_of_the_lab_is_in_the_matrix_and_no_other() -> None:
    from chaos_gpu.lab.defects import DEFECTS

    planted = {cell.defect for cell in matrix() if cell.defect and not cell.defect.startswith("without:")}
    assert planted == {defect.name for defect in DEFECTS}


def test_the_documented_table_is_fresh() -> None:
    page = (ROOT / "docs" / "criteria.md").read_text()
    assert markdown() in page, "chaos-gpu criteria --markdown"
    assert len(re.findall(r"^\| [A-Z]", page, re.MULTILINE)) == len(criteria())
