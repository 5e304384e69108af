"""The cluster as its administrator sees it, through the kubectl that was built with it."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError

Json = dict[str, Any]
POLL_S = 0.1


class Kubectl:
    """kubectl with a kubeconfig."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        """Nothing is contacted yet."""
        self._argv = [str(program), f"--kubeconfig={kubeconfig}"]

    def try_run(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"}
        argv = [*self._argv, *arguments]
        return subprocess.run(argv, input=text, env=environment, text=True, capture_output=True, check=False)

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Run it and return what it printed. Raises ClusterError with its own words."""
        done = self.try_run(*arguments, text=text)
        if done.returncode:
            raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def stream(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it, to read what it prints line by line; whoever starts it ends it."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent"}
        return subprocess.Popen([*self._argv, *arguments], env=environment, text=True, stdout=subprocess.PIPE)

    def get(self, *arguments: str) -> Json:
        """Read an object or a list."""
        found: Json = json.loads(self.run("get", *arguments, "--output=json"))
        return found

    def try_raw(self, path: str) -> str:
        """Read a path of the API; "" when it does not answer well."""
        done = self.try_run("get", "--raw", path)
        return done.stdout if done.returncode == 0 else ""

    def apply(self, documents: Sequence[Json]) -> None:
        """Apply objects on the server's side, as their only owner."""
        self.apply_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}))

    def apply_text(self, text: str) -> None:
        """Apply objects as they are written, JSON or YAML."""
        self.run("apply", "--server-side", "--force-conflicts", "--filename=-", text=text)

    def accepts(self, document: Json) -> bool:
        """Whether the API server and its webhooks would take an object."""
        done = self.try_run("apply", "--dry-run=server", "--filename=-", text=json.dumps(document))
        return done.returncode == 0


def until(check: Callable[[], object], limit_s: float, problem: str) -> float:
    """Wait for a check to hold and return how long that took, in seconds. Raises ClusterError with the problem."""
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > limit_s:
            raise ClusterError(f"{problem} (after {limit_s:g} s)")
        time.sleep(POLL_S)
    return time.monotonic() - began
