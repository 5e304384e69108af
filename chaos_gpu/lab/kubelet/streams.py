"""Logs and exec of the pods that run here: what the API server asks of a kubelet."""

import contextlib
import errno
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from chaos_gpu.lab.apiserver.streams import CommandNotStarted, NotRunning
from chaos_gpu.lab.kubelet.container import Container, program
from chaos_gpu.lab.kubelet.descriptors import Descriptor
from chaos_gpu.lab.kubelet.fields import Json
from chaos_gpu.lab.kubelet.kubelet import Kubelet
from chaos_gpu.lab.kubelet.logs import LogReadOptions, read
from chaos_gpu.lab.process import Process, start


class KubeletStreams:
    """Implements `chaos_gpu.lab.apiserver.streams.Streams` for one kubelet."""

    def __init__(self, kubelet: Kubelet) -> None:
        """Serve the pods of `kubelet`."""
        self._kubelet = kubelet

    def _container(self, pod: Json, name: str) -> Container:
        worker = self._kubelet.worker(pod)
        for container in [*worker.containers, *worker.init_containers] if worker else []:
            if container.record.name == name:
                return container
        raise NotRunning(f"container {name!r} in pod {pod['metadata']['name']!r} is waiting to start")

    async def logs(
        self,
        pod: Json,
        container: str,
        *,
        follow: bool = False,
        tail_lines: int | None = None,
        since: datetime | None = None,
        timestamps: bool = False,
        previous: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield the container's output; see `Streams.logs`."""
        found = self._container(pod, container)
        log = found.log_of(previous=previous)
        if log is None:
            name = pod["metadata"]["name"]
            raise NotRunning(
                f"previous terminated container {container!r} in pod {name!r} not found"
                if previous
                else f"container {container!r} in pod {name!r} is waiting to start: ContainerCreating"
            )
        options = LogReadOptions(follow, tail_lines, since, timestamps, limit_bytes)
        async for text in read(log, options):
            yield text

    async def exec(self, pod: Json, container: str, command: Sequence[str], *, stdin: bool, tty: bool) -> "ExecSession":
        """Start a command in a running container; see `Streams.exec`."""
        found = self._container(pod, container)
        if not found.running:
            raise NotRunning(f"container {container!r} in pod {pod['metadata']['name']!r} is not running")
        try:
            return _with_terminal(found, command) if tty else _with_pipes(found, command, stdin=stdin)
        except FileNotFoundError as error:
            looked = "executable file not found in $PATH" if "/" not in command[0] else "no such file or directory"
            raise CommandNotStarted(_refusal(command[0], looked)) from error
        except OSError as error:
            raise CommandNotStarted(_refusal(command[0], (error.strerror or "").lower())) from error


def _refusal(program: str, why: str) -> str:
    return f'exec failed: unable to start container process: exec: "{program}": {why}'


class ExecSession:
    """One command that runs in a container; implements `chaos_gpu.lab.apiserver.streams.ExecSession`."""

    def __init__(
        self,
        container: Container,
        process: Process,
        stdin: Descriptor | None,
        stdout: Descriptor,
        stderr: Descriptor | None,
    ) -> None:
        """Own the process and its descriptors; a terminal is both `stdin` and `stdout`, without `stderr`."""
        self._container, self._process = container, process
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        container.execs.add(process)

    @property
    def _terminal(self) -> bool:
        return self._stdin is self._stdout

    def stdout(self) -> AsyncIterator[bytes]:
        """Yield chunks until end of file."""
        return self._stdout.chunks()

    async def stderr(self) -> AsyncIterator[bytes]:
        """Yield chunks until end of file; with a terminal nothing."""
        if self._stderr:
            async for chunk in self._stderr.chunks():
                yield chunk

    async def write_stdin(self, data: bytes) -> None:
        """Pass input on; a command that no longer reads is no error."""
        if self._stdin:
            with contextlib.suppress(OSError):
                await self._stdin.write(data)

    async def close_stdin(self) -> None:
        """End the input; on a terminal that is Ctrl-D."""
        if self._terminal:
            await self.write_stdin(b"\x04")
        elif self._stdin:
            self._stdin.close()

    async def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size."""
        if self._terminal and not self._stdout.closed:
            fcntl.ioctl(self._stdout.number, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def wait(self) -> int:
        """Return the exit code, 128 + N for a command ended by signal N."""
        return await self._process.wait()

    async def kill(self) -> None:
        """End the command and its children, and free everything; idempotent."""
        self._process.kill_group()
        await self._process.wait()
        self._container.execs.discard(self._process)
        for descriptor in (self._stdin, self._stdout, self._stderr):
            if descriptor:
                descriptor.close()


def _with_pipes(container: Container, command: Sequence[str], *, stdin: bool) -> ExecSession:
    out_reader, out_writer = os.pipe()
    err_reader, err_writer = os.pipe()
    in_reader, in_writer = os.pipe() if stdin else (subprocess.DEVNULL, None)
    given = [out_writer, err_writer, *([in_reader] if stdin else [])]
    try:
        process = _start(container, command, in_reader, out_writer, err_writer)
    except OSError:
        given += [out_reader, err_reader, *([in_writer] if in_writer is not None else [])]
        raise
    finally:
        for descriptor in given:
            os.close(descriptor)
    writer = None if in_writer is None else Descriptor(in_writer)
    return ExecSession(container, process, writer, Descriptor(out_reader), Descriptor(err_reader))


def _with_terminal(container: Container, command: Sequence[str]) -> ExecSession:
    ours, theirs = pty.openpty()
    try:
        process = _start(container, command, theirs, theirs, theirs, terminal=theirs)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    terminal = Descriptor(ours)
    return ExecSession(container, process, terminal, terminal, None)


def _start(
    container: Container, command: Sequence[str], stdin: int, stdout: int, stderr: int, terminal: int | None = None
) -> Process:
    if not command:
        raise FileNotFoundError(errno.ENOENT, "no command")
    environment = container.environment | ({"TERM": "xterm"} if terminal is not None else {})
    return start(
        program(command, container.mounts),
        env=environment,
        cwd=container.working_directory,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        terminal=terminal,
    )
