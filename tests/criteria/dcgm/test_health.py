"""Health checks: exit status 0 whatever they saw, and `Healthy` from engines that saw nothing."""

from typing import Any

import pytest

from chaos_gpu.criteria.dcgm.reader import read_output
from chaos_gpu.criteria.dcgm.report import Report
from chaos_gpu.errors import UsageError
from tests.criteria.dcgm.corpus import RUNS, as_bytes


def health(overall: Any, **groups: Any) -> Report:
    return read_output(as_bytes({"body": {"Overall Health": {"value": overall}} | groups, "header": ["x"]}), 0)


def gpus(*each: tuple[str, dict[str, str]]) -> dict[str, Any]:
    """GPUs 0, 1, …: their own value, and their systems'."""
    children = {
        str(number): {
            "value": value,
            "children": {"Errors": {"children": {k: {"value": v} for k, v in systems.items()}}},
        }
        for number, (value, systems) in enumerate(each)
    }
    return {"children": children}


def rows(report: Report) -> list[tuple[str, str | None, str]]:
    return [(result.test, result.entity, str(result.status)) for result in report.reading.results]


def test_a_real_failure_with_its_folded_text() -> None:
    run = [run for run in RUNS if "Internal error" in run.stdout and "-j" in run.argv][1]
    report = read_output(run.stdout.encode(), run.rc)
    assert (run.rc, report.verdict, report.action) == (0, "fail", "triage")
    assert rows(report) == [("Internal error", "GPU 0", "Fail"), ("Memory system", "GPU 1", "Fail")]
    assert [each.errors[0].category for each in report.reading.results] == [None, "memory"]
    assert (
        report.reading.results[0]
        .errors[0]
        .text.startswith(
            "GPU 0 has fallen off the bus Please re-seat the GPU, check for thermal and power issues, and verify"
        )
    )


def test_healthy_without_a_gpu_is_no_pass() -> None:
    report = health("Healthy")
    assert (report.verdict, report.action) == ("inconclusive", "none")
    assert "paused" in report.reasons[0]
    assert health("Healthy", GPU={"children": {}}).verdict == "inconclusive"
    assert health("Healthy", NvSwitch=gpus(("Healthy", {}))).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("overall", "each", "verdict"),
    [
        ("Healthy", [("Healthy", {})], "pass"),
        ("Warning", [("Warning", {"PCIe system": "Warning"})], "warn"),
        ("Failure", [("Failure", {"PCIe system": "Warning", "Thermal system": "Failure"})], "fail"),
        ("Healthy", [("Healthy", {}), ("Failure", {})], "fail"),
        ("Healthy", [("Healthy", {"Power system": "Failure"})], "fail"),
        ("Failure", [("Warning", {"PCIe system": "Warning"})], "fail"),
        ("Failure", [], "fail"),
        ("Warning", [], "inconclusive"),
        ("Sunny", [("Healthy", {})], "inconclusive"),
        (None, [("Healthy", {})], "inconclusive"),
        ("Healthy", [("Sunny", {})], "inconclusive"),
    ],
)
def test_the_worst_of_engine_entities_and_systems(overall: Any, each: list[Any], verdict: str) -> None:
    assert health(overall, GPU=gpus(*each)).verdict == verdict


def test_an_entity_is_told_once_unless_its_systems_do_not_explain_it() -> None:
    assert rows(health("Failure", GPU=gpus(("Failure", {"Thermal system": "Failure"})))) == [
        ("Thermal system", "GPU 0", "Fail")
    ]
    assert rows(health("Failure", GPU=gpus(("Failure", {"Thermal system": "Warning"})))) == [
        ("Thermal system", "GPU 0", "Warn"),
        ("health", "GPU 0", "Fail"),
    ]
    assert rows(health("Failure")) == [("health", None, "Fail")]


@pytest.mark.parametrize(
    "body",
    [
        {"Overall Health": "Healthy"},
        {"Overall Health": {}, "GPU": []},
        {"Overall Health": {}, "GPU": {"children": []}},
        {"Overall Health": {}, "GPU": {"children": {"0": 1}}},
        {
            "Overall Health": {},
            "GPU": {"children": {"0": {"children": {"Errors": {"children": {"x": {"overflow": "y"}}}}}}},
        },
    ],
)
def test_another_structure_is_an_error(body: Any) -> None:
    with pytest.raises(UsageError):
        read_output(as_bytes({"body": body}))
