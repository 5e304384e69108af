"""One container: its process, its log, its record; started as often as the pod wants."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from chaos_gpu.lab.kubelet.fields import Json, Mount, expand, localise
from chaos_gpu.lab.kubelet.logs import ContainerLog
from chaos_gpu.lab.kubelet.status import ContainerRecord, terminated
from chaos_gpu.lab.process import Process, start
from chaos_gpu.lab.times import rfc3339

IDLE = ("sleep", "infinity")
"""Runs when a pod names no command: the lab has no images, so no entry points."""
START_ERROR = 128
_PYTHON = ("python3", "python")


def program(argv: Sequence[str], mounts: Sequence[Mount]) -> list[str]:
    """Return what to execute for a command: with paths of this machine, and `python3` as this Python."""
    local = [localise(part, mounts) for part in argv]
    return [sys.executable, *local[1:]] if local and local[0] in _PYTHON else local


class Container:
    """A container of a pod; `run` may be called again after it returned."""

    def __init__(self, spec: Json, directory: Path) -> None:
        """Keep working directory and logs below `directory`."""
        self.spec = spec
        self.record = ContainerRecord(spec["name"], spec.get("image", ""))
        self.environment: dict[str, str] = {}
        self.mounts: list[Mount] = []
        self.log: ContainerLog | None = None
        self.previous_log: ContainerLog | None = None
        self.process: Process | None = None
        self.execs: set[Process] = set()
        self._directory = directory

    @property
    def working_directory(self) -> Path:
        """Where its processes start: the pod's `workingDir` only if that is a mount, nothing else is its own."""
        own = self._directory / "root"
        wanted = self.spec.get("workingDir") or ""
        local = localise(wanted, self.mounts)
        return Path(local) if local != wanted else own

    def start(self, environment: dict[str, str], mounts: list[Mount]) -> bool:
        """Start the process; False if its program cannot be executed (the record says why)."""
        self.environment, self.mounts = environment, mounts
        self.working_directory.mkdir(parents=True, exist_ok=True)
        self.previous_log = self.log
        self.log = ContainerLog(self._directory / "logs" / f"{self.record.restart_count}.log")
        command = [*(self.spec.get("command") or []), *(self.spec.get("args") or [])] or IDLE
        argv = [expand(part, environment) for part in command]
        started = rfc3339()
        stdout, stderr = self.log.open_pipe("stdout"), self.log.open_pipe("stderr")
        try:
            self.process = start(
                program(argv, mounts),
                env=environment,
                cwd=self.working_directory,
                stdout=stdout,
                stderr=stderr,
                on_exit=self._ended,
            )
        except OSError as error:
            self.log.finish()
            self.record.state = terminated(
                START_ERROR, started, rfc3339(), "", "StartError", f"exec {argv[0]}: {error}"
            )
            return False
        finally:
            os.close(stdout)
            os.close(stderr)
        self.record.container_id = f"process://{self.process.pid}"
        self.record.state = {"running": {"startedAt": started}}
        self.record.ready = not self.spec.get("readinessProbe")
        return True

    def _ended(self) -> None:
        for process in self.execs:
            process.kill_group()
        if self.log:
            self.log.finish()

    async def ended(self) -> int:
        """Wait for the process; put into the record how it ended, and return its exit code."""
        if self.process is None:
            raise RuntimeError("not started")
        code = await self.process.wait()
        started = self.record.state["running"]["startedAt"]
        self.record.state = terminated(code, started, rfc3339(), self.record.container_id)
        self.record.ready = False
        self.record.last_state, self.previous_log = {}, None  # a kubelet keeps one that has ended, the newest
        return code

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.process is not None and self.process.running

    def log_of(self, *, previous: bool) -> ContainerLog | None:
        """Return the log of the present start, or of the one before; while it waits, both are the last one's."""
        waits = "waiting" in self.record.state and self.record.last_state
        return self.previous_log if previous and not waits else self.log

    def signal(self, number: int) -> None:
        """Send a signal to the main process."""
        if self.process:
            self.process.signal(number)

    def kill(self) -> None:
        """Send SIGKILL to everything in the container."""
        if self.process:
            self.process.kill_group()
