"""Nothing outlives the cluster, whatever part of it is killed, and the next start works."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import capable, cgroups, lifecycle
from tests.cluster.kubectl import until
from tests.cluster.layout import NODES, Layout

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

REPO = Path(__file__).parents[2]
GONE_S = 20.0


@pytest.fixture
def layout() -> Iterator[Layout]:
    """A place of its own; not below /tmp, which a node has of its own."""
    if obstacle := capable.obstacle():
        pytest.skip(f"no cluster on this machine: {obstacle}")
    made = Layout(Path.home() / ".cache/chaos-gpu/cluster" / f"test-{os.getpid()}")
    yield made
    lifecycle.down(made)
    assert remains(made) == []
    made.lock.unlink()


def command(layout: Layout, name: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.cluster", f"--dir={layout.root}", name]
    return subprocess.Popen(argv, cwd=REPO)


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def guardian(layout: Layout) -> int:
    pid = lifecycle.guardian(layout)
    assert pid
    return pid


def control_plane(layout: Layout) -> int:
    (outer,) = children(guardian(layout))
    (process_1,) = children(outer)
    return process_1


def remains(layout: Layout) -> list[str]:
    """Name what is left of a cluster: processes that name its directory or are in its cgroups, files, groups."""
    found = [str(layout.root)] if layout.root.exists() else []
    found += [str(group) for each in cgroups.trees() for group in each.glob(f"chaos-gpu-{layout.id}")]
    return found + processes(layout)


def processes(layout: Layout) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            argv, groups = (entry / "cmdline").read_bytes(), (entry / "cgroup").read_text()
        except OSError:
            continue
        ours = f"{layout.root}/".encode() in argv or f"/chaos-gpu-{layout.id}/" in groups
        if ours and int(entry.name) != os.getpid():
            found.append(f"{entry.name} {argv[:200].decode(errors='replace')}")
    return found


@pytest.mark.parametrize("victim", [guardian, control_plane])
def test_a_part_is_killed(layout: Layout, victim: Callable[[Layout], int]) -> None:
    assert command(layout, "up").wait() == 0
    os.kill(victim(layout), signal.SIGKILL)
    until(lambda: not processes(layout), GONE_S, "processes stay")
    assert command(layout, "up").wait() == 0
    assert all(lifecycle.attach(layout).node_ready(name) for name in NODES)
    assert command(layout, "down").wait() == 0
    assert remains(layout) == []


@pytest.mark.parametrize("moment_s", [0.5, 2.0, 5.0, 9.0])
def test_the_start_is_killed(layout: Layout, moment_s: float) -> None:
    """At a moment, not at an event: the point is that every one of them will do."""
    starting = command(layout, "up")
    time.sleep(moment_s)
    starting.kill()
    starting.wait()
    assert command(layout, "up").wait() == 0
    assert all(lifecycle.attach(layout).node_ready(name) for name in NODES)
