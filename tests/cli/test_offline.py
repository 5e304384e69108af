"""`verdict`, `report` and `criteria`: what needs no cluster."""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from chaos_gpu.cli.main import main
from chaos_gpu.criteria.registry import criteria, markdown
from tests.report.journals import journal, verdict


def keep(directory: Path, content: Any) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "journal.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (journal(), 0),
        (journal(verdicts=[verdict(outcome="fail")]), 1),
        (journal(verdicts=[]), 2),
        (journal(recovery={"restored": [], "open": ["x"]}), 3),
        (journal(refused={"reason": "x", "remedy": "y"}), 4),
        (json.dumps(journal())[:99], 2),
        ("no journal", 4),
    ],
)
def test_verdict_is_the_exit_code(tmp_path: Path, content: Any, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep(tmp_path, content)
    assert main(["verdict", str(path)]) == code
    text = capsys.readouterr().out
    assert main(["verdict", str(tmp_path), "--json"]) == code
    data = json.loads(capsys.readouterr().out)
    assert data["exit_code"] == data["runs"][0]["exit_code"] == code
    assert text.startswith(f"{data['outcome']}  {path}  ")
    assert all(reason["reason"] in text for reason in data["runs"][0]["reasons"])


def test_verdict_of_many_is_the_worst(tmp_path: Path) -> None:
    keep(tmp_path / "a", journal())
    keep(tmp_path / "b", journal(verdicts=[verdict(outcome="fail")]))
    assert main(["verdict", str(tmp_path)]) == 1
    assert main(["verdict", str(tmp_path / "a"), str(tmp_path / "a")]) == 0


def test_verdict_of_nothing_is_usage(tmp_path: Path) -> None:
    assert main(["verdict"]) == 4
    assert main(["verdict", str(tmp_path)]) == 4
    assert main(["verdict", str(tmp_path / "nothing")]) == 4


@pytest.mark.parametrize("form", ["text", "json", "junit", "html"])
def test_report_in_every_form(tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path / "my-run", journal())
    assert main(["report", str(tmp_path / "my-run"), "--format", form]) == 0
    printed = capsys.readouterr().out
    assert "my-run" in printed
    if form == "json":
        assert json.loads(printed)[0]["outcome"] == "pass"
    if form == "junit":
        assert ET.fromstring(printed).get("tests") == "1"
    target = tmp_path / "out"
    assert main(["report", str(tmp_path / "my-run"), "--format", form, "--output", str(target)]) == 0
    assert target.read_text() == printed


def test_report_of_a_failed_run_is_still_a_report(tmp_path: Path) -> None:
    keep(tmp_path, journal(verdicts=[verdict(outcome="fail")]))
    assert main(["report", str(tmp_path)]) == 0
    assert main(["report", str(tmp_path), "--format", "pdf"]) == 4
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "no" / "where")]) == 4


def test_criteria_for_people_for_programs_and_for_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["criteria", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [each.as_json() for each in criteria()]
    assert main(["criteria", "--markdown"]) == 0
    assert capsys.readouterr().out == markdown()
    assert main(["criteria"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if re.match("[A-Z]+-[0-9]", line)] == [
        each.id for each in criteria()
    ]
    assert main(["criteria", "dev-07", "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)] == ["DEV-07"]
    assert main(["criteria", "NOPE"]) == 4
    assert "DEV-02" in capsys.readouterr().err
