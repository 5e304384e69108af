"""Find and end every process of a lab: each carries the lab's mark in its environment.

Process ids are no proof (they are used again, and grandchildren have others); the mark is inherited by everything
that a pod starts and can be read from /proc/PID/environ by the same user. What clears its own environment escapes the
mark; the lab's guardian, to which orphans fall, ends those. Linux only. Stdlib only: the guardian imports this.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "CHAOS_GPU_LAB"
"""Environment variable that names the lab a process belongs to."""

POD_MARK = "CHAOS_GPU_LAB_POD"
"""Environment variable with the UID of the pod a process belongs to."""


def carriers(variable: str, value: str, proc: Path = Path("/proc")) -> Iterator[int]:
    """Yield the ids of all processes but this one that carry `variable=value` in their environment."""
    wanted = f"{variable}={value}".encode()
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:  # ended meanwhile, or another user's
            continue
        if wanted in environment.split(b"\0"):
            yield int(entry.name)


def sweep(variable: str, value: str, deadline_s: float = 5.0) -> list[int]:
    """Send SIGKILL to all carriers until none is left; return those still there at the deadline (normally none)."""
    end = time.monotonic() + deadline_s
    while left := list(carriers(variable, value)):
        for pid in left:
            end_process(pid)
        if time.monotonic() > end:
            return left
        time.sleep(0.005)
    return []


def end_process(pid: int) -> None:
    """Send SIGKILL; a process that has ended meanwhile is no error."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
