"""Where things are in a lab's state directory, and how the lab is found again. Stdlib only: the CLI imports this."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

NODE_NAMES = tuple(f"gpu-node-{index}" for index in range(4))
CONTEXT = "lab"


class Layout(NamedTuple):
    """The files of one lab."""

    root: Path

    @property
    def state(self) -> Path:
        """What runs: mark, process ids, URLs. Its presence says that the directory is a lab's."""
        return self.root / "lab.json"

    @property
    def lock(self) -> Path:
        """Held as long as the lab runs."""
        return self.root / "lock"

    @property
    def kubeconfig(self) -> Path:
        """Opens the lab as its administrator; mode 0600."""
        return self.root / "kubeconfig"

    @property
    def platform(self) -> Path:
        """Policy and planted defects, for the platform."""
        return self.root / "platform.json"

    @property
    def audit(self) -> Path:
        """Every API request, one JSON object a line."""
        return self.root / "audit.jsonl"

    @property
    def server_log(self) -> Path:
        """What server and guardian have to say."""
        return self.root / "server.log"

    @property
    def pods(self) -> Path:
        """Pods' volumes, logs and working directories, by UID."""
        return self.root / "pods"

    @property
    def stand_ins(self) -> Path:
        """Programs that come first on the PATH of pods."""
        return self.root / "bin"

    def node(self, name: str) -> Path:
        """Kernel log and driver files of a node."""
        return self.root / "nodes" / name

    def read_state(self) -> dict[str, Any] | None:
        """Return what `state` says; None if there is none."""
        try:
            facts: dict[str, Any] = json.loads(self.state.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return facts


def default_directory() -> Path:
    """Return the state directory that commands use unless told another."""
    if chosen := os.environ.get("CHAOS_GPU_LAB_DIR"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "chaos-gpu" / "lab"


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
