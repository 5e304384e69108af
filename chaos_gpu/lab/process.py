"""Start local processes that cannot outlive the lab, and learn when they end.

A process started here leads its own session and process group, and gets SIGKILL from the kernel when the lab's server
dies (PR_SET_PDEATHSIG; the lab starts all of them from its main thread, because the kernel watches the thread). What
the process started itself goes with its process group as soon as it ends, as it would with a container's PID
namespace.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chaos_gpu.lab.ancestry import die_with_parent

_INHERITED_AS_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


class Process:
    """A running child that leads its own process group; made by `start`."""

    def __init__(self, popen: "subprocess.Popen[bytes]", on_exit: Callable[[], None] | None = None) -> None:
        """Take over a child just started; `on_exit` is called once when it ends, before `wait` returns."""
        self.pid = popen.pid
        self._popen = popen
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._pidfd = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.kill_group()  # while the leader is a zombie its group id cannot belong to anyone else
        code = self._popen.wait()
        os.close(self._pidfd)
        if self._on_exit:
            self._on_exit()
        self._ended.set_result(code if code >= 0 else 128 - code)

    @property
    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return not self._ended.done()

    async def wait(self) -> int:
        """Return the exit code, 128 + N after signal N."""
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone, as a container runtime does; nothing happens if it has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._popen.send_signal(number)

    def kill_group(self) -> None:
        """Send SIGKILL to the process and all that it started in its group."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    terminal: int | None = None,
    on_exit: Callable[[], None] | None = None,
) -> Process:
    """Start `argv`; its program is looked up in the PATH of `env`.

    Args:
        argv: program and arguments.
        env: the whole environment.
        cwd: working directory.
        stdin: file descriptor, likewise `stdout` and `stderr`.
        stdout: see `stdin`.
        stderr: see `stdin`.
        terminal: file descriptor of a terminal that becomes the controlling one.
        on_exit: called when the process has ended, before anyone who waits for it.

    Raises:
        OSError: the program is not there (FileNotFoundError) or cannot be executed.
    """
    popen = subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_in_child(os.getpid(), terminal),  # there is no other way to PDEATHSIG, and the lab has one thread
    )
    return Process(popen, on_exit)


def _in_child(parent: int, terminal: int | None) -> Callable[[], None]:
    def prepare() -> None:
        die_with_parent(parent)
        os.umask(0o022)
        for number in _INHERITED_AS_IGNORED:
            signal.signal(number, signal.SIG_DFL)
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    return prepare
