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
from tests.cluster.kubectl import Kubectl, until
from tests.cluster.layout import NODES

Json = dict[str, Any]
LIMIT_S = 60.0
POLICY_POLL_S = 0.25
CORDON_S = float(SHORT_LIMITS["CHAOS_GPU_CORDON_S"])
NAMESPACES = (NAMESPACE, JOURNAL_WATCH.namespace, dcgm.OPERATOR)
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
    if not parts:
        return
    kubectl.apply(list(_objects(parts, defects)))
    until(lambda: _run(kubectl, parts), LIMIT_S, f"not all of this starts on every node: {', '.join(parts)}")
    if ENGINE in parts and "policy-returns-failed" in defects:
        _break_gpus(kubectl)


def take_away(kubectl: Kubectl) -> None:
    """Remove every part, its pods, and the records that it keeps."""
    for namespace in NAMESPACES:
        where = f"--namespace={namespace}"
        kubectl.run("delete", "daemonsets,deployments", "--all", where, "--wait")
        until(lambda at=where: not kubectl.get("replicasets,pods", at)["items"], LIMIT_S, f"{namespace}: pods remain")
    kubectl.run("delete", "configmaps", f"--namespace={NAMESPACE}", f"--selector={RECORDS}=true")


def pods_of(kubectl: Kubectl, part: str) -> list[Json]:
    """List the pods of a part."""
    found: list[Json] = kubectl.get("pods", "--all-namespaces", f"--selector=app={PARTS[part]}")["items"]
    return found


def _objects(parts: Collection[str], defects: Sequence[str]) -> Iterator[Json]:
    returned_by = POLICY if "health-policy" in parts else AGENT
    platform = platform_file(defects, CORDON_S, returned_by)
    bundle = Bundle(TOOLS, platform)
    yield from platform_objects(platform, TOOLS) if DETECTOR in parts else ()
    yield from journal_objects(platform, TOOLS) if "journal" in parts else ()
    engine, exporter, agent = (f"dcgm-{part}" in parts for part in ("engine", "exporter", "agent"))
    yield from dcgm.dcgm_objects(engine=engine, exporter=exporter, agent=agent, bundle=bundle)
    if "health-policy" in parts:
        fleet = {name: [gpu.uuid for gpu in gpus_of(index)] for index, name in enumerate(NODES)}
        yield from health_objects(POLICY_POLL_S, bundle)
        yield from histories(fleet, defects)


def _run(kubectl: Kubectl, parts: Collection[str]) -> bool:
    found = {each["metadata"]["name"]: each for each in kubectl.get("daemonsets,deployments", "-A")["items"]}
    return all(PARTS[part] in found and _is_ready(found[PARTS[part]]) for part in parts)


def _is_ready(workload: Json) -> bool:
    status = workload.get("status") or {}
    if workload["kind"] == "Deployment":
        return bool(status.get("readyReplicas") == workload["spec"]["replicas"])
    return bool(status.get("numberReady") == len(NODES))


def _break_gpus(kubectl: Kubectl) -> None:
    """Give each node a GPU that r3 finds at fault, until its engine starts anew."""
    write = f"echo {shlex.quote(json.dumps(FOUND_BY_R3))} > {STATE}/faults.json"
    for pod in pods_of(kubectl, ENGINE):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        kubectl.run("exec", name, f"--namespace={namespace}", "--", "sh", "-c", write)
