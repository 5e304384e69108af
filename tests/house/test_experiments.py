"""What every experiment that we ship must have, so that it cannot leave a fault behind or judge nothing."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos_gpu.criteria.registry import REAL_GPUS, matrix

pytestmark = pytest.mark.smoke

REPO = Path(__file__).parents[2]
EXPERIMENTS = sorted((REPO / "experiments").rglob("*.yaml"))
PAGE_HEADINGS = ("Rights", "Blast radius", "Duration", "Undo", "What it does not show")


def name_of(path: Path) -> str:
    return path.relative_to(REPO / "experiments").with_suffix("").as_posix()


@pytest.fixture(params=EXPERIMENTS, ids=name_of)
def path(request: pytest.FixtureRequest) -> Path:
    return request.param


@pytest.fixture
def experiment(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def steps(experiment: dict[str, Any]) -> list[dict[str, Any]]:
    return [*experiment["steady-state-hypothesis"]["probes"], *experiment["method"], *experiment["rollbacks"]]


def calls(activities: list[dict[str, Any]], func: str) -> list[dict[str, Any]]:
    """The arguments of each call of one function."""
    return [each["provider"].get("arguments", {}) for each in activities if each["provider"]["func"] == func]


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)


def test_the_first_two_are_here() -> None:
    assert {"device/xid-fatal-cordons-node", "device/xid-application-error-keeps-node"} <= set(
        map(name_of, EXPERIMENTS)
    )


def test_it_is_valid(run: Callable[..., str], path: Path) -> None:
    run("chaos", "--no-version-check", "validate", str(path))


def test_rollbacks_are_always_played_and_said_so_in_block_style(experiment: dict[str, Any], path: Path) -> None:
    assert experiment["runtime"]["rollbacks"]["strategy"] == "always"
    assert re.search(r"^  rollbacks:\n    strategy: always$", path.read_text(), re.MULTILINE)


def test_the_guard_stands_before_the_whole_experiment(experiment: dict[str, Any]) -> None:
    modules = [control["provider"]["module"] for control in experiment["controls"]]
    assert "chaos_gpu.controls.guard" in modules
    assert not [step["name"] for step in steps(experiment) if "controls" in step]


def test_it_can_be_started_with_an_empty_environment(experiment: dict[str, Any]) -> None:
    for key, value in experiment["configuration"].items():
        if isinstance(value, dict) and value.get("type") == "env":
            assert "default" in value, key


def test_every_reference_is_to_its_own_configuration(experiment: dict[str, Any]) -> None:
    used = {name for text in strings(experiment) for name in re.findall(r"\$\{([^}]*)\}", text)}
    assert used <= set(experiment["configuration"])


def test_hypothesis_judges_health_and_promises(experiment: dict[str, Any]) -> None:
    probes = experiment["steady-state-hypothesis"]["probes"]
    assert [probe["provider"]["func"] for probe in probes] == ["platform_ready", "criteria_hold"]
    assert all(probe["tolerance"] == 1 for probe in probes)
    (arguments,) = calls(probes, "criteria_hold")
    assert arguments["criteria"]


def test_nothing_runs_behind_the_back_of_a_signal(experiment: dict[str, Any]) -> None:
    """A background action is not interrupted by a signal, and a pause after an interrupted one is still slept."""
    assert not [step["name"] for step in steps(experiment) if step.get("background") or step.get("pauses")]


def test_every_fault_has_one_name_and_is_taken_back(experiment: dict[str, Any]) -> None:
    method = experiment["method"]
    injected = [
        step["provider"]["arguments"]["fault"]
        for step in method
        if step["type"] == "action" and step["provider"]["module"] != "chaos_gpu.actions.run"
    ]
    assert injected or all(step["type"] == "probe" for step in method)  # one that only looks has nothing to take back
    assert len(set(injected)) == len(injected)
    assert [call["fault"] for call in calls(method, "revert")] == injected
    assert [call["fault"] for call in calls(method, "recovered")] == injected
    assert calls(experiment["rollbacks"], "revert_all") == [{}]


def test_it_says_what_it_is_for(experiment: dict[str, Any]) -> None:
    assert experiment["title"]
    assert experiment["tags"]
    (arguments,) = calls(experiment["steady-state-hypothesis"]["probes"], "criteria_hold")
    for criterion in arguments["criteria"]:
        assert criterion in experiment["description"]


def test_it_has_a_page(path: Path) -> None:
    page = (REPO / "docs" / "experiments" / name_of(path)).with_suffix(".md").read_text()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [heading for heading in PAGE_HEADINGS if heading not in headings] == []
    sections = re.split(r"^## .*$", page, flags=re.MULTILINE)[1:]
    assert all(section.strip() for section in sections)


def test_it_is_proven_or_declared_to_be_for_real_gpus_only(path: Path) -> None:
    """What no lab can run says so, with the reason, wherever a user looks for it."""
    name = name_of(path)
    assert (name in {cell.experiment for cell in matrix()}) != (name in REAL_GPUS)
    if name in REAL_GPUS:
        page = " ".join((REPO / "docs" / "experiments" / f"{name}.md").read_text().split())
        assert f"For real GPUs only: {REAL_GPUS[name]}." in page
        rows = [line for file in ("README.md", "docs/README.md") for line in (REPO / file).read_text().splitlines()]
        (here, there) = [row for row in rows if row.startswith("|") and name.rpartition("/")[2] in row]
        assert all("for real GPUs only" in row for row in (here, there))


def test_what_is_for_real_gpus_only_ships() -> None:
    assert set(REAL_GPUS) <= set(map(name_of, EXPERIMENTS))


def test_every_page_has_its_experiment() -> None:
    pages = {
        page.relative_to(REPO / "docs" / "experiments").with_suffix("").as_posix()
        for page in (REPO / "docs" / "experiments").glob("*/*.md")
    }
    assert pages == set(map(name_of, EXPERIMENTS))
