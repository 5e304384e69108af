"""Bring the cluster up, take it down, and find what an earlier one has left."""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chaos_gpu.lab.kubelet.devices import GPU_RESOURCE, GPUS_PER_NODE
from tests.cluster import builds, cgroups, control_plane, kueue
from tests.cluster.builds import Programs, Tell
from tests.cluster.errors import ClusterError
from tests.cluster.kubectl import Kubectl, until
from tests.cluster.layout import NODES, Layout, write_atomic
from tests.cluster.node import link_of

GUARDIAN = Path(__file__).with_name("guardian.py")
READY_S = 120.0
STOP_S = 30.0


class Cluster(NamedTuple):
    """A cluster that runs."""

    layout: Layout
    programs: Programs
    kubectl: Kubectl

    def node_ready(self, name: str) -> bool:
        """Whether a node is Ready and has its GPUs."""
        with contextlib.suppress(ValueError, KeyError):
            status = json.loads(self.kubectl.try_raw(f"/api/v1/nodes/{name}"))["status"]
            ready = any(each["type"] == "Ready" and each["status"] == "True" for each in status["conditions"])
            return bool(ready and status["allocatable"].get(GPU_RESOURCE) == str(GPUS_PER_NODE))
        return False

    def hold(self, service: str, node: str = "") -> None:
        """Kill a service (of the control plane, or of a node) and keep it down; a node is a service, too."""
        (self._run(node) / f"{service}.hold").touch()
        until(lambda: not (self._run(node) / f"{service}.pid").exists(), 10, f"{service} does not end")

    def release(self, service: str, node: str = "") -> None:
        """Let a service that is on hold start again."""
        (self._run(node) / f"{service}.hold").unlink()

    def cut(self, node: str) -> None:
        """Cut a node's link to everything."""
        self._set_link(node, "down")

    def join(self, node: str) -> None:
        """Give it back."""
        self._set_link(node, "up")

    def log(self, service: str, node: str = "") -> str:
        """Return the end of a service's log."""
        path = self._run(node) / f"{service}.log"
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def _set_link(self, node: str, state: str) -> None:
        pid = guardian(self.layout)
        child = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]  # in the control plane's network
        argv = ["nsenter", f"--target={child}", "--net", "--", "ip", "link", "set", link_of(NODES.index(node)), state]
        subprocess.run(argv, check=True)

    def _run(self, node: str) -> Path:
        return self.layout.node(node) / "run" if node else self.layout.run


_GUARDIANS: list[subprocess.Popen[bytes]] = []
"""Those that this process has started. They outlive it, which is no leak for Python to warn of."""


def up(layout: Layout, tell: Tell, *, tied: bool = False) -> Cluster:
    """Start a cluster, or finish the start of one; returns when its nodes and Kueue are ready.

    Args:
        layout: where it is kept.
        tell: shows progress.
        tied: end it with this process.

    Raises: ClusterError with the reason and the last lines of the log.
    """
    programs = builds.ensure(tell)
    with _alone(layout):
        began = time.monotonic()
        if guardian(layout) is None:
            sweep(layout)
            _start(layout, programs, tied=tied)
        cluster = attach(layout)
        _write_kubeconfig(layout)
        if not layout.complete.exists():
            _complete(cluster)
            tell(f"nodes, Kueue and its queues ready after {time.monotonic() - began:.1f} s")
        for name in NODES:
            _wait(cluster, partial(cluster.node_ready, name), name)
    return cluster


def attach(layout: Layout) -> Cluster:
    """Return the cluster in this directory, whether it runs or not."""
    programs = builds.programs()
    return Cluster(layout, programs, Kubectl(programs.bin / "kubectl", layout.kubeconfig))


def down(layout: Layout) -> bool:
    """End the cluster and remove all of it; False if none was running."""
    with _alone(layout):
        pid = guardian(layout)
        if pid is not None:
            handle = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(handle, signal.SIGTERM)
                if not select.select([handle], [], [], STOP_S)[0]:  # its files go before it does
                    raise ClusterError("the guardian does not end")
            finally:
                os.close(handle)
            for started in _GUARDIANS:
                started.poll()  # else Python warns of it at its own end
        sweep(layout)
    return pid is not None


def guardian(layout: Layout) -> int | None:
    """Return the guardian of the cluster that runs in this directory, None if none does."""
    facts = layout.read_state()
    if facts is None or _start_ticks(facts["guardian"]) != facts["start"]:
        return None
    return int(facts["guardian"])


def node_pid(layout: Layout, name: str) -> int:
    """Return process 1 of a node as this machine sees it. Raises ClusterError when the node does not run."""
    members = cgroups.ROOT / "pids" / _cgroup(layout).strip("/") / name / "system/cgroup.procs"
    pids = members.read_text().split() if members.exists() else []
    for pid in pids:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            inside = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
            if len(inside) == len(("NSpid:", "machine", "control plane", "node")) and inside[-1] == "1":
                return int(pid)
    raise ClusterError(f"{name} does not run")


def sweep(layout: Layout) -> None:
    """Remove what a cluster leaves whose guardian was killed; its processes and interfaces are gone by themselves."""
    until(lambda: cgroups.remove(_cgroup(layout)), STOP_S, f"processes remain in cgroup {_cgroup(layout)}")
    shutil.rmtree(layout.root, ignore_errors=True)


def _start(layout: Layout, programs: Programs, *, tied: bool) -> None:
    layout.root.mkdir(parents=True, mode=0o700)
    layout.run.mkdir()
    plan = control_plane.plan(layout, programs)
    write_atomic(layout.plan, json.dumps(plan))
    argv = [sys.executable, "-B", str(GUARDIAN), str(layout.root), str(layout.plan), _cgroup(layout)]
    with (layout.run / "guardian.log").open("ab") as log:
        started = subprocess.Popen(
            [*argv, "--tied"] if tied else argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    _GUARDIANS.append(started)
    until(lambda: layout.state.exists(), 10, "the guardian did not start")


def _write_kubeconfig(layout: Layout) -> None:
    """Open the cluster to its administrator by the entrance that this guardian has made."""
    config = json.loads(layout.inside_kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{(layout.read_state() or {})['port']}"
    write_atomic(layout.kubeconfig, json.dumps(config))


def _complete(cluster: Cluster) -> None:
    """Start Kueue while the nodes come."""
    _wait(cluster, lambda: cluster.kubectl.try_raw("/readyz"), "kube-apiserver")
    kueue.begin(cluster.layout, cluster.programs, cluster.kubectl)
    for name in NODES:
        _wait(cluster, partial(cluster.node_ready, name), name)
        _wait(cluster, cluster.layout.images_of(name).exists, f"the images of {name}")
    kueue.finish(cluster.kubectl)
    cluster.layout.complete.touch()


def _wait(cluster: Cluster, ready: Callable[[], object], what: str) -> None:
    try:
        until(lambda: ready() or guardian(cluster.layout) is None, READY_S, f"{what} is not ready")
    except ClusterError as error:
        raise ClusterError(f"{error}\n{_logs(cluster)}") from error
    if guardian(cluster.layout) is None:
        raise ClusterError("the cluster ended while it was starting")


def _logs(cluster: Cluster) -> str:
    """Return the last lines of everything that a start needs."""
    services = [(service, "") for service in ("guardian", "etcd", "kube-apiserver", "kueue", *NODES)]
    services += [(service, name) for name in NODES for service in ("containerd", "kubelet", "gpu-device-plugin")]
    told = {" of ".join(filter(None, each)): cluster.log(*each) for each in services}
    return "\n".join(f"-- {service}\n{log[-1500:]}" for service, log in told.items() if log)


def _cgroup(layout: Layout) -> str:
    return f"/chaos-gpu-{layout.id}"


def _start_ticks(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@contextlib.contextmanager
def _alone(layout: Layout) -> Iterator[None]:
    layout.lock.parent.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
