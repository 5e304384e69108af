"""`chaos-gpu prove`: reads outcomes off runs, and believes nothing else. (On the lab itself: test_matrix.)"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.cli import prove as command
from chaos_gpu.cli.main import main
from chaos_gpu.criteria.registry import RECOVERY, Cell, matrix

FATAL, APPLICATION = "device/xid-fatal-cordons-node", "device/xid-application-error-keeps-node"


def said(outcome: str, **criteria: str) -> dict[str, Any]:
    """What `chaos-gpu run --json` says of one run."""
    judged = [
        {
            "id": name.replace("_", "-"),
            "outcome": found,
            "planned": 1,
            "verdicts": [{"outcome": found, "reason": f"{found} because"}],
        }
        for name, found in criteria.items()
    ]
    return {"runs": [{"outcome": outcome, "reasons": [{"reason": "the run says", "remedy": ""}], "criteria": judged}]}


def expected_run(cell: Cell) -> dict[str, Any]:
    """What a run says that is as the registry expects."""
    cells = [each for each in matrix() if (each.experiment, each.defect) == (cell.experiment, cell.defect)]
    judged = {each.criterion.replace("-", "_"): each.expected for each in cells if each.criterion != RECOVERY}
    return said("not recovered" if cells[0].criterion == RECOVERY else cells[0].expected, **judged)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> dict[str | None, Any]:
    """Instead of a lab: for each defect, what the run prints; by default what is expected."""
    other: dict[str | None, Any] = {}

    def stand_in(cell: Cell, run_dir: Path) -> list[str]:
        output = other.get(cell.defect, expected_run(cell))
        text = output if isinstance(output, str) else json.dumps(output)
        return [
            sys.executable,
            "-c",
            f"import sys; print({text!r}); print('said on stderr', file=sys.stderr); sys.exit(3)",
        ]

    monkeypatch.setattr(command, "_command", stand_in)
    return other


def test_every_cell_as_expected(runs: dict[str | None, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "--json", "--jobs", "2"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert [list(cell) for cell in data["cells"]] == [
        ["criterion", "experiment", "defect", "expected", "outcome", "reason", "seconds", "where"]
    ] * len(matrix())
    assert {(c["criterion"], c["experiment"], c["defect"], c["expected"]) for c in data["cells"]} == set(matrix())
    assert all(cell["outcome"] == cell["expected"] for cell in data["cells"])


@pytest.mark.parametrize(
    ("defect", "output", "outcome", "reason"),
    [
        ("detector-slow", said("pass", DEV_02="pass", DEV_06="pass", DEV_07="pass"), "pass", "pass because"),
        ("detector-slow", said("refused"), "refused", "the run says"),
        ("detector-slow", "not JSON", "internal error", "no result, exit code 3: said on stderr"),
        ("detector-slow", {"runs": []}, "internal error", "no result"),
        ("detector-never-returns", said("pass", DEV_02="pass", DEV_06="pass", DEV_07="pass"), "pass", "the run says"),
        (None, said("not recovered", DEV_02="pass", DEV_06="pass", DEV_07="pass"), "not recovered", "the run says"),
    ],
)
def test_one_that_is_not(
    runs: dict[str | None, Any],
    capsys: pytest.CaptureFixture[str],
    defect: str | None,
    output: Any,
    outcome: str,
    reason: str,
) -> None:
    runs[defect] = output
    assert main(["prove", FATAL, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    wrong = [cell for cell in data["cells"] if cell["outcome"] != cell["expected"]]
    assert data["ok"] is False
    assert {(cell["defect"], cell["outcome"]) for cell in wrong} == {(defect, outcome)}
    assert all(cell["reason"].startswith(reason) for cell in wrong)


def test_only_the_experiments_asked_for(runs: dict[str | None, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", APPLICATION, "--json"]) == 0
    assert {cell["experiment"] for cell in json.loads(capsys.readouterr().out)["cells"]} == {APPLICATION}
    assert main(["prove", "device/nothing"]) == 4
    assert FATAL in capsys.readouterr().err


def test_for_people(runs: dict[str | None, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", APPLICATION]) == 0
    assert "every cell is as expected" in capsys.readouterr().out
    runs[None] = said("fail", DEV_06="fail")
    assert main(["prove", APPLICATION]) == 1
    out = capsys.readouterr().out
    assert "  WRONG  healthy              DEV-06     fail, expected pass: " in out
    assert "1 of 3 cells are not as expected" in out


def test_only_the_defects_asked_for(runs: dict[str | None, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", FATAL, "--json", "--defect", "detector-slow", "--defect", "healthy"]) == 0
    assert {cell["defect"] for cell in json.loads(capsys.readouterr().out)["cells"]} == {None, "detector-slow"}
    assert main(["prove", APPLICATION, "--defect", "detector-slow"]) == 4
    assert "detector-cordons-13" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("defect", "planted"),
    [
        (None, []),
        ("detector-slow", ["--only", "detector", "--defect", "detector-slow"]),
        ("without:detector", ["--only", "detector", "--without", "detector"]),
    ],
)
def test_each_pair_gets_a_lab_of_its_own(defect: str | None, planted: list[str], tmp_path: Path) -> None:
    arguments = command._command(Cell("DEV-07", FATAL, defect, "fail"), tmp_path)
    ours = [sys.executable, "-P", "-m", "chaos_gpu"]
    assert arguments == [*ours, "lab", "run", *planted, "--", *ours, "run", FATAL, "--json", "--run-dir", str(tmp_path)]
