"""The platform under test: the lab's own controllers, put on the cluster part by part, and taken away again."""

import json
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from chaos_gpu.cli.lab import SHORT_LIMITS
from chaos_gpu.lab.dcgm import manifests as dcgm
from chaos_gpu.lab.dcgm.bundle import STATE, Bundle
from chaos_gpu.lab.dcgm.nodes import FOUND_BY_R3
from chaos_gpu.lab.kubelet.devices import gpus_of
from chaos_gpu.lab.platform.health import RECORDS
from chaos_gpu.lab.platform.health_manifests import health_objects, histories
from chaos_gpu.lab.platform.health_rules import POLICY
from chaos_gpu.lab.platform.manifests import AGENT, JOURNAL_WATCH, NAMESPACE, journal_objects, platform_objects
from chaos_gpu.lab.platform.policy import platform_file
from tests.cluster.images import TOOLS
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import NODES

Json = dict[str, Any]
LIMIT = "--timeout=90s"
READY = {"DaemonSet": f"jsonpath={{.status.numberReady}}={len(NODES)}", "Deployment": "condition=Available"}
POLICY_POLL_S = 0.25
CORDON_S = float(SHORT_LIMITS["CHAOS_GPU_CORDON_S"])
DIAGNOSES = "gpu-health-diagnosis"
DETECTOR, ENGINE = "detector", "dcgm-engine"
PARTS = {
    DETECTOR: AGENT,
    "journal": JOURNAL_WATCH.name,
    ENGINE: dcgm.ENGINE,
    "dcgm-exporter": dcgm.EXPORTER,
    "dcgm-agent": dcgm.AGENT,
    "health-policy": POLICY,
}
"""What can be put on the cluster, and the name of what runs it."""


def deploy(kubectl: Kubectl, parts: Collection[str] = (DETECTOR,), defects: Sequence[str] = ()) -> None:
    """Put parts of the platform on the cluster, fresh, and nothing else of it."""
    take_away(kubectl)
    objects = list(_objects(parts, defects))
    if objects:
        kubectl.apply(objects)
    for kind, ready in READY.items():
        if any(each["kind"] == kind for each in objects):
            kubectl.run("wait", kind, "--all", "--all-namespaces", f"--for={ready}", LIMIT)
    if ENGINE in parts and "policy-returns-failed" in defects:
        _break_gpus(kubectl)


def take_away(kubectl: Kubectl) -> None:
    """Remove every part, its pods, and the records that it keeps."""
    found = kubectl.get("daemonsets,deployments", "--all-namespaces")["items"]
    for namespace in {each["metadata"]["namespace"] for each in found if each["metadata"]["name"] in PARTS.values()}:
        kubectl.run("delete", "daemonsets,deployments", "--all", f"--namespace={namespace}", "--wait=false")
    kubectl.run("delete", "configmaps", f"--namespace={NAMESPACE}", f"--selector={RECORDS}=true")
    apps = f"--selector=app in ({','.join([*PARTS.values(), DIAGNOSES])})"
    kubectl.run("delete", "pods", "--all-namespaces", f"--selector=app={DIAGNOSES}", "--wait=false")
    kubectl.run("wait", "pods", "--all-namespaces", apps, "--for=delete", LIMIT)


def pods_of(kubectl: Kubectl, part: str) -> list[Json]:
    """List the pods of a part."""
    found: list[Json] = kubectl.get("pods", "--all-namespaces", f"--selector=app={PARTS[part]}")["items"]
    return found


def _objects(parts: Collection[str], defects: Sequence[str]) -> Iterator[Json]:
    returned_by = POLICY if "health-policy" in parts else AGENT
    platform = platform_file(defects, CORDON_S, returned_by)
    bundle = Bundle(TOOLS, platform)
    yield from platform_objects(platform, TOOLS) if DETECTOR in parts else ()
    watches = {DETECTOR, "journal"} <= set(parts)  # as on the lab, it goes with the detector
    yield from journal_objects(platform, TOOLS) if watches else ()
    engine, exporter, agent = (f"dcgm-{part}" in parts for part in ("engine", "exporter", "agent"))
    if engine or exporter or agent:
        yield from dcgm.dcgm_objects(engine=engine, exporter=exporter, agent=agent, bundle=bundle)
    if "health-policy" in parts:
        fleet = {name: [gpu.uuid for gpu in gpus_of(index)] for index, name in enumerate(NODES)}
        yield from health_objects(POLICY_POLL_S, bundle)
        yield from histories(fleet, defects)


def _break_gpus(kubectl: Kubectl) -> None:
    """Give each node a GPU that r3 finds at fault, until its engine starts anew."""
    write = f"echo {shlex.quote(json.dumps(FOUND_BY_R3))} > {STATE}/faults.json"
    for pod in pods_of(kubectl, ENGINE):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        kubectl.run("exec", name, f"--namespace={namespace}", "--", "sh", "-c", write)
