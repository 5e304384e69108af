"""What a command comes to does not depend on who reads what it prints."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.test_run import FATAL, Chaos, chaos
from tests.criteria.xid.corpus import XID
from tests.report.journals import journal, verdict
from tests.support.checkpoint_layouts import hf_trainer

__all__ = ["chaos"]
PROGRAM = (sys.executable, "-P", "-m", "chaos_gpu")
WITH_CHAOS = """
import pathlib, sys
from chaos_gpu.cli import main, run
chaos = pathlib.Path(sys.argv.pop(1))
run.chaos_program = lambda: chaos
sys.exit(main.main())
"""
LIMIT_S = 60


def ending(argv: Sequence[str], unread: Sequence[str], **given: str) -> int:
    """Run a command whose named streams are pipes that nobody reads; return its exit code."""
    read, write = os.pipe()
    os.close(read)
    streams = {name: write if name in unread else subprocess.DEVNULL for name in ("stdout", "stderr")}
    done = subprocess.run(argv, **streams, env={**os.environ, **given}, timeout=LIMIT_S, check=False)  # type: ignore[call-overload]
    os.close(write)
    return int(done.returncode)


def shell(line: str, cwd: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a line whose `$CG` is the command."""
    env = {**os.environ, "CG": " ".join(PROGRAM), **given}
    argv = ["/bin/sh", "-c", line]
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(("torn", "code"), [(False, 0), (True, 1)])
def test_a_checkpoint_is_what_it_is_whoever_reads(
    tmp_path: Path, options: Sequence[str], torn: bool, code: int
) -> None:
    hf_trainer(tmp_path, 5)
    (member,) = tmp_path.iterdir()
    if torn:
        (member / "trainer_state.json").unlink()
    argv = [*PROGRAM, "explain", "checkpoint", "--exit-code", *options, str(member)]
    assert ending(argv, ["stdout"]) == ending(argv, ["stdout", "stderr"]) == ending(argv, []) == code


def test_a_followed_log_is_left_with_its_reader(tmp_path: Path) -> None:
    done = shell(f"(while echo '{XID}'; do :; done) 2>/dev/null | $CG explain xid --json | head -1", tmp_path)
    assert json.loads(done.stdout)["code"] == 79
    assert done.stderr == ""


@pytest.mark.parametrize("unread", [["stderr"], ["stdout"], ["stdout", "stderr"]])
@pytest.mark.parametrize(("outcome", "code"), [("pass", 0), ("fail", 1)])
def test_a_run_goes_on_when_nobody_looks(chaos: Chaos, unread: Sequence[str], outcome: str, code: int) -> None:
    chaos.leaves(journal(planned={"DEV-02": 1}, verdicts=[verdict("DEV-02", outcome)]))
    argv = [sys.executable, "-P", "-c", WITH_CHAOS, str(chaos.program), "run", "--run-dir", "run", FATAL]
    assert ending(argv, unread) == code
    assert Path("run/report.html").exists()


def test_a_report_that_cannot_be_kept_changes_no_outcome(chaos: Chaos) -> None:
    chaos.leaves(journal(planned={"DEV-02": 1}, verdicts=[verdict("DEV-02", "fail")]))
    Path("run/report.html").mkdir(parents=True)
    argv = [sys.executable, "-P", "-c", WITH_CHAOS, str(chaos.program), "run", "--run-dir", "run", FATAL]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert "warning: cannot write run/report.html" in done.stderr
    assert Path("run/junit.xml").exists()


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("$CG explain xid <&-", 4, "standard input is closed"),
        ("$CG explain dcgm <&-", 4, "standard input is closed"),
        ("$CG explain xid --json log >&-", 0, ""),
        ("$CG explain xid log >&- 2>&-", 0, ""),
        ("$CG explain xid log >/dev/full", 2, "not written whole: No space left on device"),
        ("$CG explain xid --json log >/dev/full", 2, "not written whole: No space left on device"),
        ("$CG explain dcgm --json none >/dev/full", 4, "there is no file none"),
        ("PYTHONIOENCODING=ascii $CG explain xid log", 0, ""),
    ],
)
def test_streams_that_are_not_there(tmp_path: Path, line: str, code: int, told: str) -> None:
    (tmp_path / "log").write_text(f"{XID}\n{XID}\n")
    done = shell(line, tmp_path)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "internal error" not in done.stderr


def test_json_is_json_in_any_encoding(tmp_path: Path) -> None:
    hf_trainer(tmp_path / "저장", 5)
    for encoding in ("latin-1", "ascii", "utf-8"):
        done = shell("$CG explain checkpoint --json 저장", tmp_path, PYTHONIOENCODING=encoding)
        assert json.loads(done.stdout)["path"].endswith("저장"), encoding


@pytest.mark.parametrize("given", ["none", "binary"])
def test_what_is_no_text_is_said_in_json_too(tmp_path: Path, given: str) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    done = shell(f"$CG explain dcgm --json {given}", tmp_path)
    assert done.returncode == 4
    assert json.loads(done.stdout)["verdict"] == "inconclusive"


def test_a_log_that_begins_with_zeros_is_read(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\0" * 100_000 + f"\n{XID}\n".encode())
    done = shell("$CG explain xid --json log", tmp_path)
    assert json.loads(done.stdout)["line"] == 2
