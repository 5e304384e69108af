"""`.ci/venv` on odd machines: it takes an interpreter that really runs, or says what is missing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
TOOLS = ("sh", "cat", "cp", "dirname", "find", "grep", "mkdir", "mktemp", "rm", "sed", "tr")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with the common tools and no Python, and a checkout with only the script."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        (tools / name).symlink_to(shutil.which(name) or name)
    (tmp_path / "a checkout" / ".ci").mkdir(parents=True)
    shutil.copy(REPO / ".ci" / "venv", tmp_path / "a checkout" / ".ci")
    return tmp_path


def program(machine: Path, name: str, script: str) -> None:
    file = machine / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def make_venv(machine: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    script = machine / "a checkout" / ".ci" / "venv"
    environ = {"PATH": str(machine / "bin"), "HOME": str(machine), **env}
    return subprocess.run([script], env=environ, capture_output=True, text=True, timeout=60)


def test_without_a_fit_python_it_says_what_to_install(machine: Path) -> None:
    program(machine, "python3.12", "echo 'command not found' >&2; exit 127")
    program(machine, "python3", "exit 1")
    done = make_venv(machine)
    assert done.returncode == 1
    assert "no Python of 3.11 or newer" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr
    assert not (machine / "a checkout" / ".venv").exists()


def test_a_named_python_that_does_not_run_is_not_replaced_by_another(machine: Path) -> None:
    program(machine, "python3.11", f'exec "{sys.executable}" "$@"')
    done = make_venv(machine, PYTHON="python3.13")
    assert done.returncode == 1
    assert "PYTHON=python3.13" in done.stderr


def test_the_newest_that_really_runs_is_taken(machine: Path) -> None:
    log = machine / "made-with"
    program(machine, "python3.13", "exit 127")
    for name in ("python3.12", "python3.11"):
        # Answers the question whether it runs; instead of making an environment, tells that it was asked to.
        program(
            machine, name, f'case "$1" in -m) echo {name} >"{log}"; exit 9;; *) exec "{sys.executable}" "$@";; esac'
        )
    assert make_venv(machine).returncode == 9
    assert log.read_text() == "python3.12\n"
