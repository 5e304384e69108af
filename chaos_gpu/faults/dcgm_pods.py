"""DCGM on a node: which engine and exporter it has, a pod of ours beside them, and what its dcgmi says there."""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.errors import ApiError, ApiUnavailable, Conflict, NotLanded
from chaos_gpu.faults.names import NAMESPACE, pods_path
from chaos_gpu.faults.pods import events_of, need_go, node_pod, run_labels, start_pod
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.settings import Settings

PAYLOAD = "dcgm"
ENGINES = ("nvidia-dcgm", "nvidia-dcgm-dra")
EXPORTERS = ("nvidia-dcgm-exporter", "dcgm-exporter")
APP_LABELS = ("app", "app.kubernetes.io/name")
REMOTE = "DCGM_REMOTE_HOSTENGINE_INFO"
METRICS_PORT = 9400
TURN_ON = (
    "run a standalone engine: dcgm.enabled=true in the GPU operator's values or ClusterPolicy, which also sets"
    f" {REMOTE} at the exporter"
)
SLACK_S = 30
QUICK_S = 30
"""For each command but the longest."""
READER_GRACE_S = 1
"""It has nothing to put back."""
GRACE_S = 20
"""To put a value back: dcgmi tries for 5 s to reach an engine that is gone."""


class Reading(NamedTuple):
    """What a node's DCGM says.

    Attributes:
        said: name of the command → its exit status, standard output and error, as {rc, out, err}.
        page: the exporter's metrics, "" where they were not asked for.
        gpus: the driver's list of GPUs: {index, pci, uuid, model}.
    """

    said: dict[str, dict[str, Any]]
    page: str
    gpus: list[dict[str, Any]]


class Engine(NamedTuple):
    """Whether samples can be put into a node's DCGM.

    Attributes:
        there: whether the node has DCGM at all, an exporter's embedded engine counted.
        closed: why it takes no sample, "" where it does.
        remedy: for that.
    """

    there: bool = True
    closed: str = ""
    remedy: str = ""


def engine_on(api: Api, node: str) -> Engine:
    """Look for the DCGM engine of a node."""
    return _engine(node, _on(api, node))


def engines_by_node(api: Api, nodes: Sequence[str]) -> dict[str, Engine]:
    """Look for the DCGM engines of many nodes, with one list for all."""
    found: dict[str, list[JsonObject]] = {node: [] for node in nodes}
    words = ",".join((*ENGINES, *EXPORTERS))
    for label in APP_LABELS:
        for pod in api.items("/api/v1/pods", labels=f"{label} in ({words})"):
            if _here(pod) and pod["spec"].get("nodeName") in found:
                found[pod["spec"]["nodeName"]].append(pod)
    return {node: _engine(node, pods) for node, pods in found.items()}


def _engine(node: str, pods: Sequence[JsonObject]) -> Engine:
    """Say whether one takes samples: an embedded engine takes none, and one without dcgmi neither."""
    engines = [pod for pod in pods if _app(pod) in ENGINES]
    exporters = [pod for pod in pods if _app(pod) in EXPORTERS]
    if not engines and any(_remote(pod).startswith("localhost") for pod in exporters):
        return Engine()  # the host's own engine: the injector finds it among the node's processes
    none = f"no standalone DCGM engine on node {node}"
    if not engines and exporters:
        return Engine(True, f"{none}: its dcgm-exporter has its embedded engine, which takes no injections", TURN_ON)
    if not engines:
        return Engine(False, f"{none}, and no exporter", TURN_ON)
    images = [str(each.get("image", "")) for pod in engines for each in pod["spec"].get("containers") or ()]
    if images and all("distroless" in image for image in images):
        return Engine(True, f"the DCGM engine on node {node} has no dcgmi: {images[0]}", "use an image that is not")
    if not any(_ready(pod) for pod in engines):
        name = f"{engines[0]['metadata']['namespace']}/{engines[0]['metadata']['name']}"
        return Engine(True, f"the DCGM engine on node {node} is not ready", f"see pod {name}")
    return Engine()


def metrics_url(api: Api, node: str) -> str:
    """Return where a node's exporter shows its metrics, "" where there is none."""
    for pod in _on(api, node):
        address = (pod.get("status") or {}).get("podIP")
        if _app(pod) in EXPORTERS and address and _ready(pod):
            where = f"[{address}]" if ":" in address else address
            return f"http://{where}:{_port(pod)}/metrics"
    return ""


def dcgm_pod(
    settings: Settings, name: str, node: str, labels: Mapping[str, str], spec: Mapping[str, Any]
) -> JsonObject:
    """Make a pod that can run the dcgmi of the node's engine: it sees the node's processes, and enters that one's."""
    pod = node_pod(settings, name, node, labels, PAYLOAD, spec)
    pod["spec"] |= {"hostPID": True, "terminationGracePeriodSeconds": GRACE_S}
    return pod


def ask(
    run: Run, name: str, node: str, commands: Mapping[str, Sequence[str]], *, metrics: bool = False, limit_s: float = 30
) -> Reading:
    """Run commands of dcgmi on a node, one after the other, and fetch the exporter's metrics.

    Args:
        run: the armed run.
        name: a DNS label, for the pod.
        node: where.
        commands: name → arguments.
        metrics: fetch the metrics too.
        limit_s: for each command; all but one of them are quick.

    Raises: NotLanded when it could not be done, ApiError and ApiUnavailable as they come.
    """
    run.check()
    url = metrics_url(run.api, node) if metrics else ""
    whole_s = limit_s + QUICK_S * len(commands)
    spec = {"mode": "read", "commands": {key: list(words) for key, words in commands.items()}, "url": url}
    pod = _reader(run, name, node, {**spec, "limit_s": limit_s}, whole_s)
    where = f"{pods_path()}/{pod['metadata']['name']}"
    try:
        start_pod(run.api, pod, run.settings.start_s)
        last = _last(run.api, pod["metadata"]["name"], whole_s)
    finally:
        with suppress(ApiError, ApiUnavailable, Conflict):
            run.api.delete(where)
    if last.get("event") != "reverted":
        raise NotLanded(f"DCGM on {node} could not be read: {last.get('reason', 'the pod ended without a word')}")
    return Reading(last["said"], last["page"], last["gpus"])


def _reader(run: Run, name: str, node: str, spec: Mapping[str, Any], whole_s: float) -> JsonObject:
    """Make a reader that the reverter ends with the run; before there is a ledger, it ends with its commands."""
    unique = f"chaos-gpu-{run.id}-{name}-{secrets.token_hex(3)}"  # never the log of an earlier one
    pod = dcgm_pod(run.settings, unique, node, run_labels(run.id, "reader"), spec)
    pod["spec"] |= {
        "terminationGracePeriodSeconds": READER_GRACE_S,
        "activeDeadlineSeconds": round(whole_s + run.settings.start_s + SLACK_S),
    }
    if run.injections:
        need_go(pod, run.id)
    return pod


def _last(api: Api, name: str, limit_s: float) -> JsonObject:
    last: JsonObject = {}
    for event in events_of(api, name, limit_s):
        last = event
    return last


def _on(api: Api, node: str) -> list[JsonObject]:
    return [pod for pod in api.items("/api/v1/pods", fields=f"spec.nodeName={node}") if _here(pod)]


def _here(pod: JsonObject) -> bool:
    return pod["metadata"]["namespace"] != NAMESPACE and "deletionTimestamp" not in pod["metadata"]


def _app(pod: JsonObject) -> str:
    labels = pod["metadata"].get("labels") or {}
    return next((str(labels[label]) for label in APP_LABELS if labels.get(label)), "")


def _ready(pod: JsonObject) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _remote(pod: JsonObject) -> str:
    entries = [entry for each in pod["spec"].get("containers") or () for entry in each.get("env") or ()]
    return next((str(entry.get("value") or "") for entry in entries if entry["name"] == REMOTE), "")


def _port(pod: JsonObject) -> int:
    ports = [port for each in pod["spec"].get("containers") or () for port in each.get("ports") or ()]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == "metrics"), METRICS_PORT)
