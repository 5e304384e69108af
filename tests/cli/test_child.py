"""The leash: signals reach the child once each, and it does not outlive us."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos_gpu.cli.child import Relay, chaos_program, run_child
from chaos_gpu.errors import UsageError

# Says that it is ready, then notes every signal; leaves on the file "end".
NOTES = """
import pathlib, signal, sys, time
notes, end = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
def note(number, frame):
    with notes.open("a") as file:
        file.write(signal.Signals(number).name + "\\n")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, note)
notes.touch()
deadline = time.monotonic() + 60
while not end.exists() and time.monotonic() < deadline:
    time.sleep(0.01)
"""
DEADLINE_S = 60


def wait_for(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def start(arguments: list[str], console: Path, relay: Relay, look: Callable[[], None] = lambda: None) -> int:
    return run_child(arguments, dict(os.environ), console, relay, look)


def test_each_signal_is_relayed_once_and_the_child_decides_when_to_end(tmp_path: Path) -> None:
    notes, end = tmp_path / "notes", tmp_path / "end"
    sent: list[signal.Signals] = []

    def look() -> None:
        if not notes.exists():
            return
        if not sent:
            for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGINT):
                sent.append(number)
                os.kill(os.getpid(), number)
        elif len(notes.read_text().split()) >= 3:
            end.touch()

    with Relay() as relay:
        code = start([sys.executable, "-c", NOTES, str(notes), str(end)], tmp_path / "console", relay, look)
    assert code == 0
    assert sorted(notes.read_text().split()) == ["SIGHUP", "SIGINT", "SIGTERM"]
    assert sorted(relay.seen) == [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]


def test_afterwards_signals_mean_what_they_meant_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    with Relay():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before


def test_a_signal_from_before_the_child_reaches_it(tmp_path: Path) -> None:
    with Relay() as relay:
        os.kill(os.getpid(), signal.SIGTERM)
        code = start([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "console", relay)
    assert code == -signal.SIGTERM


def test_it_has_a_session_of_its_own_no_input_and_writes_to_the_file(tmp_path: Path) -> None:
    code = "import os, sys; print(os.getsid(0) == os.getpid(), sys.stdin.read() == ''); sys.exit(7)"
    with Relay() as relay:
        assert start([sys.executable, "-c", code], tmp_path / "console", relay) == 7
    assert (tmp_path / "console").read_text() == "True True\n"


def test_when_we_are_killed_it_is_told_to_stop(tmp_path: Path) -> None:
    notes, end = tmp_path / "notes", tmp_path / "end"
    child = [sys.executable, "-c", NOTES, str(notes), str(end)]
    code = (
        "import os, sys, pathlib; from chaos_gpu.cli.child import Relay, run_child\n"
        f"console = pathlib.Path({str(tmp_path / 'console')!r})\n"
        f"with Relay() as relay: run_child({child!r}, dict(os.environ), console, relay, lambda: None)"
    )
    parent = subprocess.Popen([sys.executable, "-P", "-c", code])
    try:
        wait_for(notes.exists)
    finally:
        parent.kill()
        parent.wait()
    wait_for(notes.read_text)
    end.touch()
    assert notes.read_text() == "SIGTERM\n"


def test_the_leash_does_not_start_what_nobody_waits_for() -> None:
    leash = [sys.executable, "-P", "-m", "chaos_gpu.cli.leash", "1", sys.executable, "-c", "print('started')"]
    done = subprocess.run(leash, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the parent process 1 is gone" in done.stderr


def test_the_real_chaos_stands_beside_this_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert chaos_program().is_file()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(UsageError, match="no chaos program"):
        chaos_program()
