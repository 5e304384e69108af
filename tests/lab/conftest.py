"""A lab for tests, started through the public command line, and a client that waits for events instead of sleeping."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
PROGRAM = [sys.executable, "-P", "-c", "import sys; from chaos_gpu.cli.main import main; sys.exit(main())"]
DEADLINE_S = 20.0


def chaos_gpu(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `chaos-gpu ARGUMENTS` to its end."""
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        [*PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


class ApiError(Exception):
    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status} {body}")
        self.status = status


@dataclass(frozen=True)
class Lab:
    """A running lab, seen as its administrator."""

    root: Path
    facts: Json

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Return the JSON answer, or the text of one that is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode()) from None
        try:
            return json.loads(raw)
        except ValueError:
            return raw.decode()

    def get(self, path: str) -> Any:
        return self.request("GET", path)

    def pod_path(self, name: str, namespace: str = "default") -> str:
        return f"api/v1/namespaces/{namespace}/pods/{name}"

    def watch(self, collection: str, deadline_s: float = DEADLINE_S) -> Iterator[tuple[str, Json]]:
        """Yield every object as it is now, and then as it changes, until the deadline."""
        listed = self.get(collection)
        yield from (("ADDED", item) for item in listed["items"])
        yield from self.changes(collection, listed, deadline_s)

    def changes(self, collection: str, listed: Json, deadline_s: float = DEADLINE_S) -> Iterator[tuple[str, Json]]:
        """Yield what has changed since a list was made, until the deadline."""
        end = time.monotonic() + deadline_s
        query = f"watch=1&resourceVersion={listed['metadata']['resourceVersion']}&timeoutSeconds={int(deadline_s) + 1}"
        with urllib.request.urlopen(f"{self.url}/{collection}?{query}", timeout=deadline_s) as lines:
            for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]
                if time.monotonic() > end:
                    return

    def wait(
        self,
        collection: str,
        name: str,
        holds: Callable[[Json], Any],
        deadline_s: float = DEADLINE_S,
    ) -> Json:
        """Wait until the object of this name fulfils a condition, and return it."""
        last: Json = {}
        for kind, obj in self.watch(collection, deadline_s):
            if obj["metadata"]["name"] == name and kind != "DELETED":
                last = obj
                if holds(obj):
                    return obj
        raise AssertionError(f"{name} never as expected; last: {json.dumps(last.get('status', last))}")

    def wait_gone(self, collection: str, name: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until no object of this name is there."""
        listed = self.get(collection)
        if not any(item["metadata"]["name"] == name for item in listed["items"]):
            return
        for kind, obj in self.changes(collection, listed, deadline_s):
            if kind == "DELETED" and obj["metadata"]["name"] == name:
                return
        raise AssertionError(f"{name} is still there")

    def run_pod(self, name: str, *command: str, namespace: str = "default", **spec: Any) -> Json:
        """Create a pod with one container `main`; `spec` adds to the pod's spec, `container` to the container."""
        container = {"name": "main", "image": "busybox", "command": list(command), **spec.pop("container", {})}
        metadata = {"name": name, "namespace": namespace, **spec.pop("metadata", {})}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"restartPolicy": "Never", "containers": [container], **spec},
        }
        created: Json = self.request("POST", f"api/v1/namespaces/{namespace}/pods", body)
        return created

    def wait_phase(self, name: str, phase: str, namespace: str = "default") -> Json:
        pods = f"api/v1/namespaces/{namespace}/pods"
        return self.wait(pods, name, lambda pod: pod["status"].get("phase") == phase)

    def logs(self, name: str, namespace: str = "default", query: str = "") -> str:
        return str(self.request_text(f"{self.pod_path(name, namespace)}/log?{query}"))

    def request_text(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"{self.url}/{path}", timeout=20) as answer:
                text: str = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode()) from None
        return text

    def write_kmsg(self, node: str, record: bytes) -> None:
        """Write one record as a writer of /dev/kmsg does: with an open and close of its own."""
        descriptor = os.open(self.root / "nodes" / node / "kmsg.in", os.O_WRONLY)
        try:
            os.write(descriptor, record)
        finally:
            os.close(descriptor)

    def gpu(self, node: str, number: int = 0) -> tuple[str, str]:
        """Return PCI address (dddd:bb:dd) and UUID of a node's GPU."""
        path = sorted((self.root / "nodes" / node / "driver" / "gpus").iterdir())[number]
        facts = dict(line.split(":", 1) for line in (path / "information").read_text().splitlines())
        return path.name.removesuffix(".0"), facts["GPU UUID"].strip()


@contextmanager
def running_lab(root: Path, options: Sequence[str] = (), env: dict[str, str] | None = None) -> Iterator[Lab]:
    """Start a lab in `root` with `chaos-gpu lab up`, and end it with `lab down`, with its detector unless told."""
    parts = () if {"--only", "--without"} & set(options) else ("--only", "detector")
    started = chaos_gpu("lab", "up", "--dir", str(root), "--json", *parts, *options, env=env)
    assert started.returncode == 0, started.stderr
    try:
        yield Lab(root, json.loads((root / "lab.json").read_text()))
    finally:
        ended = chaos_gpu("lab", "down", "--dir", str(root))
        assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A healthy lab for the whole session; tests leave it as they found it, or use names of their own."""
    if elsewhere := os.environ.get("CHAOS_GPU_BATTERY_SERVER"):  # the battery on a real control plane: tests/cluster
        yield Lab(Path(elsewhere), json.loads((Path(elsewhere) / "lab.json").read_text()))
        return
    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def start_lab(tmp_path: Path) -> Callable[..., Any]:
    """Return `running_lab` for a directory of this test: `with start_lab("--defect", NAME) as lab:`."""

    def start(*options: str, env: dict[str, str] | None = None) -> Any:
        return running_lab(tmp_path / "lab", options, env)

    return start
