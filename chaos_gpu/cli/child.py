"""Run one `chaos run` as a child that is stopped when we are, and that needs nothing of us to undo what it did.

It has its own session, so that Ctrl-C reaches it once, through us. It writes to files, so that it can go on without
us; we read them. Each of TERM, INT and HUP is relayed once: its guard knows what to do.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from chaos_gpu.errors import UsageError

RELAYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_S = 0.1


class Relay:
    """While entered, keeps TERM, INT and HUP from ending us, and hands each on to the child, once."""

    def __init__(self) -> None:
        self.seen: list[signal.Signals] = []
        self.child: subprocess.Popen[bytes] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in RELAYED:
            self._before[number] = signal.signal(number, self._relay)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def attach(self, child: subprocess.Popen[bytes]) -> None:
        """From now on hand signals to this child, and those that came while it was being started."""
        signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)
        early, self.child = list(self.seen), child
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RELAYED)
        for number in early:
            child.send_signal(number)

    def _relay(self, number: int, frame: FrameType | None) -> None:
        received = signal.Signals(number)
        if received in self.seen:
            return
        self.seen.append(received)
        if self.child is not None:
            self.child.send_signal(received)


def chaos_program() -> Path:
    """Return the `chaos` that was installed beside this Python. Raises UsageError without one."""
    program = Path(sys.executable).with_name("chaos")
    if not program.is_file():
        raise UsageError(f"no chaos program at {program}", remedy="pip install chaostoolkit-gpu into this environment")
    return program


def run_child(
    arguments: Sequence[str], environment: Mapping[str, str], console: Path, relay: Relay, look: Callable[[], None]
) -> int:
    """Run a program to its end and return its exit code (negative: the signal that killed it).

    Args:
        arguments: the program's path and its arguments.
        environment: its whole environment.
        console: file for what it prints.
        relay: hands signals on to it.
        look: called every tenth of a second, to show how far it is.
    """
    leash = [sys.executable, "-P", "-m", "chaos_gpu.cli.leash", str(os.getpid()), *arguments]
    with console.open("wb") as output:
        child = subprocess.Popen(
            leash,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    relay.attach(child)
    while True:
        try:
            return child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            look()
