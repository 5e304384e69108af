"""Nothing outlives the cluster, whatever part of it is killed, and the next start works."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import capable, cgroups, lifecycle
from tests.cluster.kubectl import until
from tests.cluster.layout import NODES, Layout
from tests.cluster.queues import TEAMS

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


MOMENTS: dict[str, Callable[[Layout], Path]] = {
    "keys are made": lambda layout: layout.pki,
    "the guardian runs": lambda layout: layout.state,
    "the API server runs": lambda layout: layout.run / "kube-apiserver.pid",
    "Kueue is configured": lambda layout: layout.kueue / "kueue.yaml",
}


@pytest.mark.parametrize("sign", MOMENTS.values(), ids=MOMENTS)
def test_the_start_is_killed(layout: Layout, sign: Callable[[Layout], Path]) -> None:
    starting = command(layout, "up")
    until(sign(layout).exists, lifecycle.READY_S, "the start does not get there")
    starting.kill()
    assert starting.wait() == -signal.SIGKILL
    assert command(layout, "up").wait() == 0
    cluster = lifecycle.attach(layout)
    assert all(cluster.node_ready(name) for name in NODES)
    assert len(cluster.kubectl.get("localqueues.kueue.x-k8s.io", "--all-namespaces")["items"]) == len(TEAMS)
