"""The process above the lab's server: whatever happens to the server, it ends everything that the lab has started.

`python -m chaos_gpu.lab.guardian OPTIONS` is what `lab up` starts. It takes the directory's lock, becomes the parent
of orphans, and forks the server. When the server ends, however it does, it kills what carries the lab's mark and what
has fallen to it, and only then ends itself. If the guardian is killed, the server gets SIGTERM from the kernel and
does the same; if both are killed at once, pods die with the server (PDEATHSIG) and what they had started goes at the
next `lab up`. Imports little: it stays for as long as the lab, and its start is part of the lab's.
"""

import argparse
import fcntl
import gc
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from chaos_gpu.lab.ancestry import adopt_orphans, die_with_parent
from chaos_gpu.lab.layout import Layout
from chaos_gpu.lab.sweep import MARK, end_process, sweep

_AWAITED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
STOP_S = 5.0
"""How long the server may take to stop before it is killed."""


def main(argv: Sequence[str]) -> int:
    """Run a lab until it is told to stop; return the exit code."""
    options = _parse(argv)
    layout = Layout(options.dir)
    os.umask(0o077)
    if options.with_parent:
        die_with_parent(options.with_parent, signal.SIGTERM)
    lock = _take_lock(layout)
    if lock is None:
        os.write(options.ready_fd, json.dumps({"error": f"a lab is running in {layout.root}"}).encode())
        return 4
    _clear(layout)
    adopt_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    guardian = os.getpid()
    server = os.fork()
    if server == 0:
        code = _serve(options, layout, guardian)
        if os.getppid() == guardian:
            return code
    else:
        os.close(options.ready_fd)
        code = _watch(server)
    _end_everything(options.mark)
    layout.state.unlink(missing_ok=True)
    if options.remove:
        shutil.rmtree(layout.root, ignore_errors=True)
    return code


def _serve(options: argparse.Namespace, layout: Layout, guardian: int) -> int:
    """Be the server; its many imports come only now, so that the guardian stays small."""
    die_with_parent(guardian, signal.SIGTERM)
    os.environ["SSL_CERT_FILE"] = os.devnull  # aiohttp reads all authorities when imported; nothing here uses TLS
    gc.disable()  # until the lab is ready: nearly all that is made now stays
    from chaos_gpu.lab.server import serve

    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    return serve(options, layout)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos_gpu.lab.guardian")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--mark", required=True, help="names this lab in the environment of all its processes")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cordon-s", type=float, default=3.0)
    parser.add_argument("--defect", action="append", default=[])
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--begun", type=float, required=True, help="when the start began, CLOCK_MONOTONIC in seconds")
    parser.add_argument("--ready-fd", type=int, required=True, help="gets a JSON object: ready, or why not")
    parser.add_argument("--with-parent", type=int, default=0, help="end when this process, the parent, does")
    parser.add_argument("--remove", action="store_true", help="remove the directory at the end")
    return parser.parse_args(argv)


def _take_lock(layout: Layout) -> int | None:
    layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _clear(layout: Layout) -> None:
    """End what an earlier lab in this directory has left, and remove its files."""
    if before := layout.read_state():
        sweep(MARK, str(before["mark"]))
    for directory in (layout.pods, layout.root / "nodes", layout.stand_ins):
        shutil.rmtree(directory, ignore_errors=True)
    for file in (layout.state, layout.audit, layout.kubeconfig, layout.platform):
        file.unlink(missing_ok=True)


def _watch(server: int) -> int:
    """Wait until the server has ended, passing on the request to stop; return its exit code."""
    kill_at = None
    while True:
        wait_s = 3600.0 if kill_at is None else max(0.0, kill_at - time.monotonic())
        arrived = signal.sigtimedwait(_AWAITED, wait_s)
        if arrived is not None and arrived.si_signo != signal.SIGCHLD and kill_at is None:
            os.kill(server, signal.SIGTERM)
            kill_at = time.monotonic() + STOP_S
        elif arrived is None and kill_at is not None:
            os.kill(server, signal.SIGKILL)
            kill_at = None
        code = _reap(server)
        if code is not None:
            return code


def _reap(server: int) -> int | None:
    """Collect children that have ended; return the server's exit code if it is one of them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 1
        if pid == server:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            return None


def _end_everything(mark: str) -> None:
    sweep(MARK, mark)
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            for child in _children():
                end_process(child)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    own = os.getpid()
    return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
