"""`chaos-gpu run` around a stand-in for chaos: what it keeps, prints and returns, whatever chaos does."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from chaos_gpu.cli import aftermath
from chaos_gpu.cli import run as command
from chaos_gpu.cli.main import main
from tests.report.journals import journal, verdict

FATAL, APPLICATION = "device/xid-fatal-cordons-node", "device/xid-application-error-keeps-node"
# Notes how it was called, prints as chaos does, writes the journal it was given, ends as it was told.
CHAOS = """#!{python}
import json, os, pathlib, sys, time
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
with (here / "calls").open("a") as file:
    file.write(json.dumps([arguments, os.environ["CHAOS_GPU_RUN"]]) + "\\n")
print("\\x1b[32m[2026-11-29 12:00:00 INFO]\\x1b[0m Action: xid-48")
print("[2026-11-29 12:00:00 INFO] something else")
print("[2026-11-29 12:00:00 ERROR]   => failed: no such thing")
text = here / "journal"
if text.exists():
    pathlib.Path(arguments[arguments.index("--journal-path") + 1]).write_text(text.read_text())
wait = here / "wait"
deadline = time.monotonic() + 60
while wait.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
sys.exit(int((here / "exit").read_text()) if (here / "exit").exists() else 0)
"""


class Chaos:
    """The stand-in, and what it was asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "chaos"
        self.program.write_text(CHAOS.format(python=sys.executable))
        self.program.chmod(0o755)

    def leaves(self, text: Any, exit_code: int = 0) -> None:
        (self.directory / "journal").write_text(text if isinstance(text, str) else json.dumps(text))
        (self.directory / "exit").write_text(str(exit_code))

    @property
    def calls(self) -> list[tuple[list[str], str]]:
        path = self.directory / "calls"
        return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def chaos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chaos:
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("CHAOS_GPU_RUN", raising=False)
    stand_in = Chaos(tmp_path / "bin")
    monkeypatch.setattr(command, "chaos_program", lambda: stand_in.program)
    return stand_in


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], None]:
    """Decide what the cluster says of a run without a journal."""

    def decide(code: int, reason: str) -> None:
        monkeypatch.setattr(
            aftermath,
            "outcome_without_journal",
            lambda run_id, found: (code, f"{reason} {bool(run_id and 'cordon_s' in found)}"),
        )

    return decide


def test_a_run_keeps_everything_in_one_directory(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    chaos.leaves(journal())
    assert main(["run", FATAL]) == 0
    (directory,) = Path("chaos-gpu-runs").iterdir()
    assert directory.name.endswith("Z-device-xid-fatal-cordons-node")
    assert {path.name for path in directory.iterdir()} == {"console.log", "journal.json", "junit.xml", "report.html"}
    shown = capsys.readouterr()
    assert shown.out == f"pass  {FATAL}  12.3 s  report: {directory}/report.html\n"
    assert shown.err == "  Action: xid-48\n    => failed: no such thing\n"
    ET.parse(directory / "junit.xml")


def test_chaos_is_called_as_a_user_would_call_it(chaos: Chaos) -> None:
    chaos.leaves(journal())
    assert main(["run", FATAL, "--run-dir", "r", "--var", "node=n", "--var", "cordon_s:float=2"]) == 0
    ((arguments, run_id),) = chaos.calls
    assert arguments[:4] == ["--no-version-check", "--log-file", "r/chaostoolkit.log", "run"]
    assert arguments[-5:-1] == ["--var", "node=n", "--var", "cordon_s:float=2"]
    assert Path(arguments[-1]).is_absolute()
    assert arguments[arguments.index("--journal-path") + 1] == "r/journal.json"
    assert run_id


def test_each_run_has_its_own_id_and_directory(chaos: Chaos) -> None:
    chaos.leaves(journal())
    assert main(["run", FATAL, FATAL, APPLICATION, "--run-dir", "all"]) == 0
    assert len({run_id for _, run_id in chaos.calls}) == 3
    assert {path.name for path in Path("all").iterdir()} == {
        "device-xid-fatal-cordons-node",
        "device-xid-fatal-cordons-node-2",
        "device-xid-application-error-keeps-node",
    }


def test_a_given_run_id_is_used_once(chaos: Chaos, monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.leaves(journal())
    monkeypatch.setenv("CHAOS_GPU_RUN", "mine")
    assert main(["run", FATAL]) == 0
    assert chaos.calls[0][1] == "mine"
    assert main(["run", FATAL, APPLICATION]) == 4
    assert len(chaos.calls) == 1


def test_json_and_junit_for_programs(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    chaos.leaves(journal(verdicts=[verdict(outcome="fail", reason="late")]))
    assert main(["run", FATAL, "--json", "--run-dir", "r", "--junit", "all.xml"]) == 1
    shown = capsys.readouterr()
    data = json.loads(shown.out)
    assert (data["outcome"], data["exit_code"]) == ("fail", 1)
    assert data["runs"][0]["name"] == FATAL
    assert data["runs"][0]["run_dir"] == "r"
    assert data["runs"][0]["criteria"][0]["verdicts"][0]["reason"] == "late"
    assert shown.err == ""
    assert ET.parse("all.xml").getroot().get("failures") == "1"


def test_reasons_are_printed_when_it_is_no_pass(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    chaos.leaves(journal(verdicts=[verdict(outcome="fail", reason="late", remedy="hurry")]))
    assert main(["run", FATAL, "--run-dir", "r"]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == ["      DEV-02 fail: late", "        hurry"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "device/nothing"],
        ["run", FATAL, "--var", "nonsense"],
        ["run", FATAL, "--var", "cordonn_s=7"],
        ["run", FATAL, "device/nothing"],
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(chaos: Chaos, arguments: list[str]) -> None:
    assert main(arguments) == 4
    assert chaos.calls == []
    assert list(Path.cwd().iterdir()) == []


def test_a_directory_with_a_run_in_it_is_not_written_over(chaos: Chaos, capsys: pytest.CaptureFixture[str]) -> None:
    chaos.leaves(journal())
    assert main(["run", FATAL, "--run-dir", "r"]) == 0
    assert main(["run", FATAL, "--run-dir", "r"]) == 4
    assert "--run-dir" in capsys.readouterr().err
    Path("file").write_text("")
    assert main(["run", FATAL, "--run-dir", "file/r"]) == 4


@pytest.mark.parametrize("code", [2, 3])
def test_without_a_journal_the_cluster_says(
    chaos: Chaos, left: Callable[[int, str], None], capsys: pytest.CaptureFixture[str], code: int
) -> None:
    left(code, "as the ledger says")
    assert main(["run", FATAL, "--run-dir", "r"]) == code
    out = capsys.readouterr().out
    assert "as the ledger says True" in out
    assert "chaos ended with exit code 0" in out


@pytest.mark.parametrize("text", [json.dumps(journal())[:300], json.dumps({**journal(), "chaos_gpu": None})])
def test_a_journal_without_the_guards_word_is_checked_against_the_cluster(
    chaos: Chaos, left: Callable[[int, str], None], text: str
) -> None:
    chaos.leaves(text, exit_code=1)
    left(3, "something is left")
    assert main(["run", FATAL, "--run-dir", "r"]) == 3
    left(2, "nothing is left")
    assert main(["run", FATAL, "--run-dir", "s"]) == 2


def test_the_worst_of_several_counts(chaos: Chaos, left: Callable[[int, str], None]) -> None:
    chaos.leaves(journal(signal="SIGTERM"))
    left(3, "left")
    assert main(["run", FATAL, APPLICATION, "--run-dir", "r"]) == 2
    (chaos.directory / "journal").unlink()
    assert main(["run", FATAL, APPLICATION, "--run-dir", "s"]) == 3


def test_after_a_signal_no_further_experiment_is_started(
    chaos: Chaos, left: Callable[[int, str], None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left(2, "nothing is left")
    (chaos.directory / "wait").touch()
    started = chaos.directory / "calls"

    def interrupt(shown: Any) -> None:
        if started.exists():
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("chaos_gpu.cli.progress.Progress.look", interrupt)
    assert main(["run", FATAL, APPLICATION, "--run-dir", "r"]) == 2
    assert len(chaos.calls) == 1
    out = capsys.readouterr().out
    assert "chaos was killed by signal 15" in out
    assert "not started: SIGTERM came before" in out
