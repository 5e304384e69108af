"""What the kubelet offers the API server: logs and exec.

The server runs no process itself. Whoever runs the pods' processes hands it a `Streams` object; every method is
called on the server's event loop. Objects given as `pod` are the stored ones and must not be changed.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Protocol


class NotRunning(Exception):
    """The container has not started yet, or is no longer there to exec in; the text goes to the client."""


class CommandNotStarted(Exception):
    """The command of an exec could not be started, in the words of a container runtime; there is no exit code."""


class ExecSession(Protocol):
    """One command that runs in a container. The server always ends a session with `kill`, also after `wait`."""

    def stdout(self) -> AsyncIterator[bytes]:
        """Yield chunks until end of file; with a tty this is the terminal and carries stderr too."""
        ...

    def stderr(self) -> AsyncIterator[bytes]:
        """Yield chunks until end of file; with a tty nothing."""
        ...

    async def write_stdin(self, data: bytes) -> None:
        """Pass input on; a command that no longer reads is no error. Without stdin, input is dropped."""
        ...

    async def close_stdin(self) -> None:
        """Tell the command that its input ends; idempotent."""
        ...

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal; without a tty nothing happens."""
        ...

    async def wait(self) -> int:
        """Return the exit code, 128 + N for a command ended by signal N."""
        ...

    async def kill(self) -> None:
        """End the command and its children with SIGKILL, and free what the session holds; idempotent."""
        ...


class Streams(Protocol):
    """Logs and exec of the pods that run here."""

    def logs(
        self,
        pod: dict[str, Any],
        container: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        previous: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the container's output; with `follow` until the container ends or the iterator is closed.

        Args:
            pod: the pod as stored.
            container: name of one of its containers.
            follow: go on with what is written from now on.
            tail_lines: only that many lines from the end.
            since: only what was written at or after this time (UTC).
            timestamps: begin each line with the time it was written (RFC 3339) and a space.
            previous: of the instance before the last restart.
            limit_bytes: stop after that many bytes.

        Raises:
            NotRunning: before the first chunk, if there is no such output.
        """
        ...

    async def exec(
        self, pod: dict[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        """Start a command in a running container, in its environment.

        Raises:
            NotRunning: the container does not run.
            CommandNotStarted: the program is not there or cannot be executed.
        """
        ...


class NoStreams:
    """For a server without a kubelet: nothing runs, so there is nothing to read or to exec in."""

    async def logs(self, pod: dict[str, Any], container: str, **_options: Any) -> AsyncIterator[bytes]:
        """Raise NotRunning."""
        raise NotRunning(f"no kubelet serves container {container!r} of pod {pod['metadata']['name']!r}")
        yield b""  # makes this an asynchronous generator

    async def exec(self, pod: dict[str, Any], container: str, command: Sequence[str], **_options: Any) -> ExecSession:
        """Raise NotRunning."""
        raise NotRunning(f"no kubelet serves container {container!r} of pod {pod['metadata']['name']!r}: {command}")
