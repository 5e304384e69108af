"""Standard streams that a command outlives: an outcome must not depend on who reads what is said about it."""

import io
import os
import sys
from typing import Any, TextIO

_lost: dict[int, OSError] = {}


def outlive_readers() -> None:
    """Let standard output and error go nowhere once they fail: closed, full, or their reader has left (`| head -1`).

    What an encoding cannot say is written by its code.
    """
    sys.stdout, sys.stderr = _outliving(sys.stdout, 1), _outliving(sys.stderr, 2)


def reader_left() -> bool:
    """Whether standard output goes nowhere: a command that only prints may end."""
    return 1 in _lost


def not_written() -> str:
    """Say why standard output is not whole; "" where it is, or where its reader had enough."""
    failure = _lost.get(1)
    return "" if failure is None or isinstance(failure, BrokenPipeError) else str(failure.strerror)


class _Raw(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as failure:
            _lost[self.fileno()] = failure
            _to_nowhere(self.fileno())
            return memoryview(data).nbytes


def _outliving(stream: TextIO | None, descriptor: int) -> TextIO:
    if stream is None:  # closed: whatever is opened next must not be taken for it
        _to_nowhere(descriptor)
        return open(descriptor, "w", encoding="utf-8", closefd=False)  # noqa: PTH123, SIM115 - for the process's life
    if not isinstance(stream, io.TextIOWrapper):  # somebody captures what is printed
        return stream
    stream.flush()
    buffer = io.BufferedWriter(_Raw(descriptor, "w", closefd=False))
    lines = stream.line_buffering or stream is sys.stderr
    return io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", line_buffering=lines)


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != descriptor:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
