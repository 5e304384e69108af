"""Container logs in the CRI format, one line `TIME STREAM F|P text` each, and how `kubectl logs` reads them.

Tag P means that the text goes on in the next line (here: output that ended without a newline, or a very long line).
Logs are not rotated. Source: Kubernetes, pkg/kubelet/kuberuntime/logs.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from chaos_gpu.lab.kubelet.descriptors import CHUNK_BYTES, Pulse

LINE_MAX_BYTES = 16384


class Line(NamedTuple):
    """One entry of a log."""

    time: str
    text: bytes
    """With its newline, unless the text goes on in the next entry."""


class LogReadOptions(NamedTuple):
    """As the query of pods/log."""

    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class ContainerLog:
    """The log of one run of a container; its pipes are read on the event loop."""

    def __init__(self, path: Path) -> None:
        """Create the file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.changed = Pulse()
        self.closed = False
        self._file = path.open("ab", buffering=0)
        self._pending: dict[int, tuple[str, bytes]] = {}

    def open_pipe(self, stream: str) -> int:
        """Return the end of a new pipe to give to the process ("stdout" or "stderr"); the caller closes it."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._pending[reader] = (stream, b"")
        asyncio.get_running_loop().add_reader(reader, self._read, reader)
        return writer

    def _read(self, reader: int) -> bool:
        """Take one chunk; False when there is nothing more now."""
        try:
            data = os.read(reader, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._close_pipe(reader)
            return False
        stream, before = self._pending[reader]
        *lines, rest = (before + data).split(b"\n")
        self._write(stream, [(b"F", line) for line in lines])
        if len(rest) > LINE_MAX_BYTES:
            self._write(stream, [(b"P", rest)])
            rest = b""
        self._pending[reader] = (stream, rest)
        return True

    def _close_pipe(self, reader: int) -> None:
        stream, rest = self._pending.pop(reader)
        if rest:
            self._write(stream, [(b"P", rest)])
        asyncio.get_running_loop().remove_reader(reader)
        os.close(reader)

    def _write(self, stream: str, lines: list[tuple[bytes, bytes]]) -> None:
        if lines:
            head = f"{now()} {stream} ".encode()
            self._file.write(b"".join(head + tag + b" " + text + b"\n" for tag, text in lines))
            self.changed.fire()

    def finish(self) -> None:
        """The process has ended: take what is left in the pipes and close."""
        for reader in list(self._pending):
            while self._read(reader):
                pass
            if reader in self._pending:  # something outside the process group holds the other end
                self._close_pipe(reader)
        self._file.close()
        self.closed = True
        self.changed.fire()


def now() -> str:
    """Return the time in UTC as RFC 3339 with nine decimals, as container runtimes write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


def parse(data: bytes) -> Iterator[Line]:
    """Read complete lines of a log file."""
    for raw in data.split(b"\n")[:-1]:
        time, _stream, tag, text = raw.split(b" ", 3)
        yield Line(time.decode(), text + b"\n" if tag == b"F" else text)


def select(lines: Iterable[Line], options: LogReadOptions) -> list[Line]:
    """Return the lines that `since` and `tail_lines` leave."""
    if options.since is not None:
        first = options.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
        lines = (line for line in lines if line.time >= first)
    if options.tail_lines is None:
        return list(lines)
    whole: deque[list[Line]] = deque(maxlen=options.tail_lines)
    open_line: list[Line] = []
    for line in lines:
        open_line.append(line)
        if line.text.endswith(b"\n"):
            whole.append(open_line)
            open_line = []
    if open_line:
        whole.append(open_line)
    return [line for group in whole for line in group]


async def read(log: ContainerLog, options: LogReadOptions) -> AsyncIterator[bytes]:
    """Yield the log's text; with `follow` until the container has ended."""
    left = options.limit_bytes
    with log.path.open("rb") as file:
        lines = select(parse(file.read()), options)
        while True:
            if text := render(lines, timestamps=options.timestamps)[:left]:
                yield text
            if left is not None and (left := left - len(text)) <= 0:
                return
            if not options.follow:
                return
            ended = log.closed
            lines = list(parse(file.read()))
            if not lines and ended:
                return
            if not lines:
                await log.changed.wait()


def render(lines: Iterable[Line], *, timestamps: bool) -> bytes:
    """Return the text as a client gets it."""
    return b"".join((line.time.encode() + b" " if timestamps else b"") + line.text for line in lines)
