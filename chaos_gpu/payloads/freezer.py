"""Stop all processes of one workload at one instant, look, and then end them or let them go on.

By the freezer of their cgroup (v2, or v1) where the workload has one of its own. Where it shares its cgroup with others
(processes without a container), SIGSTOP to each of its processes stands in: they stop within the time that it takes
to send the signals, and the evidence says so. SIGKILL loses nothing that was written to a file before: it tests the
order and atomicity of what is written, not its durability.
"""

import io
import os
import signal
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set, Tuple

CGROUPS = Path(os.environ.get("CGROUP_ROOT", "/sys/fs/cgroup"))
PROC = Path("/proc")
MARK, STORE, POD = "CHAOS_GPU_TRAINING", "CHAOS_GPU_STORE", "CHAOS_GPU_POD"
"""In the environment of a workload that may be killed: its name, where it saves to, its pod's name."""
FREEZE_S = 5.0
GONE_S = 15.0
ENDED = ("", "Z", "X")
"""States of a process that is none any more."""
V2, V1, SIGNALS = "cgroup v2", "cgroup v1", "SIGSTOP of each process"


def directory_of(mark: str) -> str:
    """Name the directory that a workload saves to by its own name."""
    return mark.replace(".", "-")


def processes() -> List[int]:
    """List the ids of all processes but this one."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit() and int(entry.name) != os.getpid()]


def carriers_of(variable: str, value: str) -> List[int]:
    """List the processes that have `variable=value` in their environment, but for this one, oldest first."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in processes():
        try:
            carries = wanted in _proc(pid, "environ").split(b"\0")
        except OSError:
            continue
        if carries and process_state(pid) not in ENDED:
            found.append(pid)
    return sorted(found, key=started)


def started(pid: int) -> Tuple[int, int]:
    """Return a key that sorts processes by age: numbers are used again, clock ticks since the boot are not."""
    return _life(pid)[1], pid


def environment_of(pid: int) -> Dict[str, str]:
    """Read what a process was started with. Raises OSError when it has ended."""
    entries = _proc(pid, "environ").decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def hurry(needed: bool) -> None:
    """Run before others while a moment is waited for, where that is allowed: on a busy node it would be missed."""
    policy, priority = (os.SCHED_RR, 1) if needed else (os.SCHED_OTHER, 0)
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:
        return


def rank_of(pids: List[int]) -> int:
    """Choose one rank's own process: the oldest that a launcher has given a RANK, else the first below the oldest."""
    for pid in pids:
        try:
            if "RANK" in environment_of(pid):
                return pid
        except OSError:
            continue
    return pids[1] if len(pids) > 1 else pids[0]


def process_state(pid: int) -> str:
    """Return a process's state letter, "" when there is none."""
    return _life(pid)[0]


def _life(pid: int) -> Tuple[str, int]:
    """Return a process's state and when it was started, in one reading: others run on while this is asked."""
    try:
        fields = _proc(pid, "stat").rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError):
        return "", sys.maxsize


def _proc(pid: int, name: str) -> bytes:
    with io.FileIO(f"/proc/{pid}/{name}") as file:
        return file.readall()


def cgroups_of(pid: int) -> List[Tuple[str, Path]]:
    """Return by which freezers a process can be stopped, and where each has it; version 2 first."""
    unified = CGROUPS / "unified"
    root = unified if (unified / "cgroup.controllers").exists() else CGROUPS
    found: List[Tuple[str, Path]] = []
    try:
        lines = [line.split(":", 2) for line in (PROC / str(pid) / "cgroup").read_text().splitlines()]
    except OSError:
        return []
    for number, controllers, path in lines:
        below = path.lstrip("/")
        if number == "0" and not controllers and (root / below / "cgroup.freeze").exists():
            found.insert(0, (V2, root / below))
        elif "freezer" in controllers.split(",") and (CGROUPS / "freezer" / below / "freezer.state").exists():
            found.append((V1, CGROUPS / "freezer" / below))
    return found


def members(directory: Path) -> Set[int]:
    """List the processes of a cgroup and of those below it."""
    found: Set[int] = set()
    for place, _, files in os.walk(directory):
        if "cgroup.procs" in files:
            try:
                found |= {int(pid) for pid in Path(place, "cgroup.procs").read_text().split()}
            except (OSError, ValueError):
                continue
    return found


class Freezer:
    """The processes of one workload; `find` lists them anew (children included)."""

    def __init__(self, find: Callable[[], List[int]]) -> None:
        """Choose the means by where the processes are now."""
        self._find = find
        self._started: Dict[int, int] = {}
        self.pids = self._known(find())
        self.means, self.directory = SIGNALS, PROC
        for means, directory in cgroups_of(self.pids[0]) if self.pids else ():
            inside = members(directory)
            if self.means == SIGNALS and inside and inside <= set(self.pids):
                self.means, self.directory = means, directory

    def freeze(self) -> bool:
        """Stop them all; False if none is left, or they did not stop within the limit (then they go on)."""
        if self.means == SIGNALS:
            self.pids = self._signal(self.pids, signal.SIGSTOP)
            late = self._known([pid for pid in self._find() if pid not in self.pids]) if self.pids else []
            self.pids += self._signal(late, signal.SIGSTOP)
        elif any(map(self._lives, self.pids)):
            self._write("cgroup.freeze" if self.means == V2 else "freezer.state", "1" if self.means == V2 else "FROZEN")
        if self._await(self.frozen, FREEZE_S):
            self.pids = self._left()
            if self.pids:
                return True
        self.thaw()
        return False

    def rehearse(self) -> float:
        """Return how long it takes to reach them all, seconds: measured by asking for their state."""
        begun_s = time.monotonic()
        self.frozen()
        return time.monotonic() - begun_s

    def ended(self) -> bool:
        """Whether all of them have."""
        return not self._left()

    def _known(self, pids: List[int]) -> List[int]:
        """Note when each was started: its number may be another's by the time that it is signalled."""
        self._started.update({pid: started(pid)[0] for pid in pids})
        return pids

    def _lives(self, pid: int) -> bool:
        state, since = _life(pid)
        return state not in ENDED and since == self._started.get(pid)

    def _left(self) -> List[int]:
        return [pid for pid in self.pids if self._lives(pid)]

    def frozen(self) -> bool:
        """Whether none of them runs."""
        if self.means == V2:
            return "frozen 1" in (self.directory / "cgroup.events").read_text()
        if self.means == V1:
            return (self.directory / "freezer.state").read_text().strip() == "FROZEN"
        return all(process_state(pid) in ("T", "t") for pid in self._left())

    def thaw(self) -> None:
        """Let them go on."""
        if self.means == SIGNALS:
            self._signal(self.pids, signal.SIGCONT)
        else:
            self._write("cgroup.freeze" if self.means == V2 else "freezer.state", "0" if self.means == V2 else "THAWED")

    def kill(self, only: Optional[List[int]] = None) -> bool:
        """End them all (or `only` some) where they stand; return whether all of these have ended within the limit."""
        doomed = self.pids if only is None else only
        if self.means == V2 and only is None and (self.directory / "cgroup.kill").exists():
            self._write("cgroup.kill", "1")
        else:
            self._signal(doomed, signal.SIGKILL)
            if self.means != SIGNALS or only is not None:
                self.thaw()
        return bool(doomed) and self._await(lambda: not any(map(self._lives, doomed)), GONE_S)

    def _write(self, name: str, value: str) -> None:
        (self.directory / name).write_text(value)

    def _signal(self, pids: List[int], number: int) -> List[int]:
        """Send a signal to those that live, and return them."""
        reached = []
        for pid in filter(self._lives, pids):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            reached.append(pid)
        return reached

    @staticmethod
    def _await(reached: Callable[[], bool], limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        while not reached():
            if time.monotonic() > end:
                return False
            time.sleep(0.0005)
        return True


def writers(root: Path) -> List[int]:
    """List the processes that hold a file below a directory open, by device and inode: mounts differ between them."""
    held = set()
    for path in root.rglob("*"):
        try:
            held.add(_identity(path.lstat()))
        except OSError:
            continue
    return [pid for pid in processes() if _holds(pid, held)]


def _identity(info: os.stat_result) -> Tuple[int, int]:
    return info.st_dev, info.st_ino


def _holds(pid: int, held: Set[Tuple[int, int]]) -> bool:
    try:
        return any(_identity(link.stat()) in held for link in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
