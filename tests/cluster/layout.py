"""Where everything of one cluster is kept, and which names and addresses it uses. Stdlib only: nodes import this."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

NODES = tuple(f"gpu-node-{index}" for index in range(int(os.environ.get("CHAOS_GPU_CLUSTER_NODES", "2"))))
CONTEXT = "cluster"
GATEWAY, SERVICES, API_SERVICE, API_PORT = "10.213.0.1", "10.213.255.0/24", "10.213.255.1", 443
"""All in a network namespace of the cluster's own, so that even the service address needs no translation."""
INSIDE = f"https://{GATEWAY}:{API_PORT}"
"""The API server, from inside."""
ENTRANCE = 9
"""File descriptor of the socket, on the machine's loopback, by which the cluster is reached from outside."""


class Layout(NamedTuple):
    """The files of one cluster."""

    root: Path

    @property
    def id(self) -> str:
        """What tells the cgroups and the link of this cluster from another's."""
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:6]

    @property
    def state(self) -> Path:
        """Who runs it, and where: written before the first process, removed after the last."""
        return self.root / "cluster.json"

    @property
    def lock(self) -> Path:
        """One up or down at a time; the kernel drops the lock of a killed holder."""
        return self.root.with_name(f"{self.root.name}.lock")

    @property
    def kubeconfig(self) -> Path:
        """Opens the cluster as its administrator; mode 0600."""
        return self.root / "kubeconfig"

    @property
    def inside_kubeconfig(self) -> Path:
        """The same for those who live in the cluster's own network."""
        return self.pki / "inside.kubeconfig"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def run(self) -> Path:
        """Pid files, logs and holds of the control plane; see `supervisor`."""
        return self.root / "run"

    @property
    def plan(self) -> Path:
        """What the control plane's process 1 is told to run."""
        return self.root / "plan.json"

    @property
    def kueue(self) -> Path:
        """The root directory of Kueue's manager."""
        return self.root / "kueue"

    @property
    def complete(self) -> Path:
        """There is nothing left to do for `up`."""
        return self.root / "complete"

    def node(self, name: str) -> Path:
        """Everything of a node: root, devices, driver files, and `run` as above."""
        return self.root / "nodes" / name

    def images_of(self, name: str) -> Path:
        """A node has its images; they outlive a crash of it."""
        return self.node(name) / "images"

    def read_state(self) -> dict[str, Any] | None:
        """Return what `state` says; None if there is none."""
        try:
            facts: dict[str, Any] = json.loads(self.state.read_text())
        except (OSError, ValueError):
            return None
        return facts


def node_address(index: int) -> str:
    """Return the address of a node, on the bridge."""
    return f"10.213.0.{10 + index}"


def pod_range(index: int) -> str:
    """Return the addresses of a node's pods."""
    return f"10.213.{index + 1}.0/24"


def default_directory() -> Path:
    """Return the state directory unless told another."""
    return Path(os.environ.get("CHAOS_GPU_CLUSTER_DIR") or cache() / "state").absolute()


def cache() -> Path:
    """Return where builds are kept: worth keeping, since they take long."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return base / "chaos-gpu" / "cluster"


def part_of(path: Path) -> Path:
    """Return where this process makes a file or folder until it is whole, and can take its name."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def write_atomic(path: Path, text: str) -> None:
    """Write a private file so that a killed writer leaves the old one or the new one, never half of it."""
    fresh = part_of(path)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    fresh.replace(path)
