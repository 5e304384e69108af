"""The entry point: quick help, and an exit code for everything that can happen."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from chaos_gpu import __version__, errors
from chaos_gpu.cli import main as entry
from chaos_gpu.report.fold import EXIT_CODES, Ending

HELP_IMPORTS_NOTHING = """
import sys
from chaos_gpu.cli.main import main
code = main(["--help"])
heavy = {"chaoslib", "kubernetes", "pydantic", "aiohttp", "rich"} & set(sys.modules)
sys.exit(f"imported for help: {heavy}" if heavy else code)
"""

CRASH = """
import sys
from chaos_gpu.cli import main as entry
entry.COMMANDS["crash"] = entry.Row("no_such_module:command", "fail to import")
sys.exit(entry.main(["crash"]))
"""


@pytest.fixture(autouse=True)
def _own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main() replaces it; put back afterwards


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], int]:
    """Run a command that ends by raising, or by returning, what it is given."""

    def invoke(ending: object) -> int:
        @click.command()
        def command() -> object:
            if isinstance(ending, BaseException):
                raise ending
            return ending

        monkeypatch.setitem(sys.modules, "made_for_a_test", SimpleNamespace(command=command))
        monkeypatch.setitem(entry.COMMANDS, "end", entry.Row("made_for_a_test:command", "end as told"))
        return entry.main(["end"])

    return invoke


@pytest.mark.parametrize("name", entry.COMMANDS)
def test_every_command_of_the_table_exists_under_its_name(name: str) -> None:
    module, _, attribute = entry.COMMANDS[name].target.partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.help, "its own --help says what it does"
    assert 0 < len(entry.COMMANDS[name].summary) <= 80


def test_help_names_every_command_and_imports_none(run: Callable[..., str]) -> None:
    printed = run("python", "-c", HELP_IMPORTS_NOTHING)
    assert all(name in printed for name in entry.COMMANDS)
    assert "Exit codes: 0 pass" in printed


@pytest.mark.smoke
def test_the_module_is_the_program(run: Callable[..., str]) -> None:
    assert run("python", "-m", "chaos_gpu", "--version").strip() == f"chaos-gpu, version {__version__}"


@pytest.mark.parametrize(
    ("ending", "code", "said"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (1, 1, ""),
        (3, 3, ""),
        (
            errors.UsageError("no such code: 999", "chaos-gpu criteria"),
            4,
            "error: no such code: 999\n       chaos-gpu c",
        ),
        (errors.Refused("another run is active", "wait"), 4, "refused: another run is active\n         wait\n"),
        (errors.ApiUnavailable("no answer in 30 s"), 4, "error: no answer in 30 s\n"),
        (errors.Forbidden("401", status=401), 4, "error: 401\n"),
        (errors.TargetError("no node matched"), 4, "error: no node matched\n"),
        (errors.NotLanded("not seen"), 2, "error: not seen\n"),
        (errors.NotRecovered("gpu-node-0 is cordoned"), 3, "error: gpu-node-0 is cordoned\n"),
        (click.UsageError("bad option"), 4, "bad option"),
        (KeyboardInterrupt(), 2, "interrupted\n"),
    ],
    ids=repr,
)
def test_exit_codes(
    ends_with: Callable[[object], int], capsys: pytest.CaptureFixture[str], ending: object, code: int, said: str
) -> None:
    assert ends_with(ending) == code
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_the_codes_are_those_of_the_report() -> None:
    """Written twice, since `--help` must not wait for the report's imports."""
    assert {ending.name: code for ending, code in EXIT_CODES.items()} == {
        name: getattr(entry, name) for name in Ending.__members__
    }


@pytest.mark.parametrize("args", [["no-such-command"], ["--no-such-option"], []])
def test_usage_errors_are_4(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(args) == 4
    assert "Usage: chaos-gpu" in capsys.readouterr().err


def test_a_bug_exits_5_and_leaves_its_traceback_to_its_owner_only(tmp_path: Path, site: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(site), "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", CRASH], env=environ, capture_output=True, text=True, timeout=60)
    (log,) = tmp_path.glob("chaos-gpu-*.log")
    assert done.returncode == 5
    assert done.stderr.startswith("internal error: ModuleNotFoundError: No module named 'no_such_module'\n")
    assert str(log) in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_bug_is_told_even_where_nothing_can_be_written(tmp_path: Path, site: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(site)}
    code = CRASH.replace("import sys", "import sys, tempfile; tempfile.tempdir = '/dev/null'", 1)
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 5
    assert "Traceback" in done.stderr


def test_a_reader_that_went_away_is_no_failure(site: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(site)}
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "chaos_gpu", "--help"], env=environ, stdout=writing, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")
