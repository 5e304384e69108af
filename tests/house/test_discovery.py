"""`chaos discover` shows each activity with types that a person can use."""

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.smoke

KIND = {"actions": "action", "probes": "probe"}


@pytest.fixture
def discovered(run: Callable[..., str], tmp_path: Path) -> list[dict[str, Any]]:
    file = tmp_path / "discovery.json"
    run("chaos", "--no-version-check", "discover", "chaostoolkit-gpu", "--no-install", "--discovery-path", str(file))
    discovery = json.loads(file.read_text())
    assert discovery["extension"]["name"] == "chaostoolkit-gpu"
    return discovery["activities"]


def exported(path: Path) -> list[str]:
    """The names in a module's `__all__`, read without importing it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    pytest.fail(f"{path} has no __all__: discovery would list nothing of it")


def test_every_exported_activity_is_listed_as_what_it_is(repo: Path, discovered: list[dict[str, Any]]) -> None:
    expected = {
        (kind, f"chaos_gpu.{top}.{path.stem}", name)
        for top, kind in KIND.items()
        for path in (repo / top).glob("[!_]*.py")
        for name in exported(path)
    }
    assert {(each["type"], each["mod"], each["name"]) for each in discovered} == expected


def test_every_argument_has_a_type_and_every_activity_its_documentation(discovered: list[dict[str, Any]]) -> None:
    for each in discovered:
        types = {argument["name"]: argument.get("type", "none") for argument in each["arguments"]}
        types["return"] = each.get("return_type", "none")
        assert not {"object", "none"} & set(types.values()), (each["name"], types)
        assert each["doc"], each["name"]


def test_what_the_experiments_call_is_discovered(repo: Path, discovered: list[dict[str, Any]]) -> None:
    known = {(each["type"], each["mod"], each["name"]) for each in discovered}
    for path in (repo / "experiments").rglob("*.yaml"):
        experiment = yaml.safe_load(path.read_text())
        steps = [*experiment["steady-state-hypothesis"]["probes"], *experiment["method"], *experiment["rollbacks"]]
        for step in steps:
            provider = step["provider"]
            if provider["module"].startswith("chaos_gpu."):
                assert (step["type"], provider["module"], provider["func"]) in known, f"{path}: {step['name']}"
