"""Process 1 of a PID namespace: starts services, starts them again when they end, buries orphans.

Its end is the end of every process in the namespace, by the kernel. Each service has in the run directory `NAME.pid`,
`NAME.log`, and, while somebody wants it down, `NAME.hold`: a service on hold is killed (SIGKILL) and not started.
Stdlib only.
"""

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

POLL_S = 0.1
RESTART_S = 1.0
ENVIRONMENT = {"HOME": "/root", "LANG": "C.UTF-8"}
"""No proxy, credential or Go setting of the caller leaks into a service."""


class Service:
    """A program to keep running."""

    def __init__(self, run: Path, plan: dict[str, Any]) -> None:
        """`plan`: name, argv, env, and what it `needs` before its first start (an URL that answers, or a file);
        `fds`: what it inherits of this process's open files.
        """
        self.name: str = plan["name"]
        self._run, self._argv, self._env = run, plan["argv"], {**ENVIRONMENT, **plan["env"]}
        self._fds: tuple[int, ...] = tuple(plan.get("fds", ()))
        self._needs: str = plan.get("needs", "")
        self.child: subprocess.Popen[bytes] | None = None
        self._next_start = 0.0

    def tend(self) -> None:
        """Start or kill it, whichever is due."""
        running = self.child is not None and self.child.poll() is None
        held = (self._run / f"{self.name}.hold").exists()
        if running and held and self.child:
            self.child.kill()
            self.child.wait()
            (self._run / f"{self.name}.pid").unlink(missing_ok=True)
        elif not running and not held and time.monotonic() >= self._next_start and self._is_due():
            self._start()

    def _is_due(self) -> bool:
        if not self._needs or answers(self._needs):
            self._needs = ""
            return True
        return False

    def _start(self) -> None:
        self._next_start = time.monotonic() + RESTART_S
        with (self._run / f"{self.name}.log").open("ab") as log:
            try:
                self.child = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd="/",
                    env=self._env,
                    start_new_session=True,
                    pass_fds=self._fds,
                )
            except OSError as error:  # tried again: whoever waits for the service sees it in the log
                log.write(f"{self._argv[0]}: {error}\n".encode())
                return
        (self._run / f"{self.name}.pid").write_text(str(self.child.pid))


def supervise(run: Path, plans: Sequence[dict[str, Any]]) -> None:
    """Tend the services for ever; SIGTERM ends it, and with it the namespace."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    run.mkdir(parents=True, exist_ok=True)
    services = [Service(run, plan) for plan in plans]
    while True:
        for service in services:
            service.tend()
        bury({service.child.pid for service in services if service.child})
        time.sleep(POLL_S)


def bury(services: set[int]) -> None:
    """Reap adopted orphans (containers and their shims), but leave the services to their own poll()."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in services:
            return
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, 0)


def answers(what: str) -> bool:
    """Whether an URL answers 200, or a file exists. No certificate is checked: these are health checks."""
    if what.startswith("/"):
        return Path(what).exists()
    context = ssl._create_unverified_context()  # noqa: S323
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(what, timeout=2) as answer:
            return int(answer.status) == 200
    except OSError:
        return False
