"""What a person does first: run an experiment by its name, from the installed wheel, away from the checkout."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

FATAL, APPLICATION = "device/xid-fatal-cordons-node", "device/xid-application-error-keeps-node"


def in_lab(*options: str) -> list[str]:
    """The command line that starts a lab around what follows."""
    return ["-m", "chaos_gpu", "lab", "run", *options, "--", "chaos-gpu", "run", "--json"]


def test_both_experiments_pass_on_a_healthy_platform(run: Callable[..., str], tmp_path: Path) -> None:
    printed = json.loads(run("python", *in_lab(), FATAL, APPLICATION))
    assert (printed["outcome"], printed["exit_code"]) == ("pass", 0)
    assert [each["name"] for each in printed["runs"]] == [FATAL, APPLICATION]
    for each in printed["runs"]:
        directory = tmp_path / each["run_dir"]
        assert {"journal.json", "report.html", "junit.xml"} <= {file.name for file in directory.iterdir()}


def test_a_missed_code_is_a_failure_that_names_it(run: Callable[..., str]) -> None:
    printed = json.loads(run("python", *in_lab("--defect", "detector-ignores-74"), FATAL, code=1))
    assert printed["outcome"] == "fail"
    assert "Xid 74" in json.dumps(printed["runs"][0])


def test_without_a_detector_nothing_is_concluded(run: Callable[..., str]) -> None:
    printed = json.loads(run("python", *in_lab("--without", "detector"), FATAL, code=2))
    assert printed["outcome"] == "inconclusive"
