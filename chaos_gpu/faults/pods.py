"""Build the pods that carry our payloads, start them and read their events.

A pod brings its own script and spec as annotations, mounted as files: one object, nothing else to create or to leave.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.resources import files
from typing import Any

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.cluster.watch import follow_one
from chaos_gpu.errors import ApiError, ApiUnavailable, Conflict, NotLanded, Refused
from chaos_gpu.faults import ours
from chaos_gpu.faults.names import FAULT, INJECTOR, NAMESPACE, REVERTER, ROLE, RUN, jobs_path, pods_path
from chaos_gpu.faults.rights import REVERTER_RIGHTS, attributes
from chaos_gpu.faults.settings import Settings
from chaos_gpu.payloads.undo import GO

CONTAINER = "payload"
"""The container that speaks for its pod."""
MOUNT = "/chaos-gpu"
PROC_DRIVER = "/proc/driver"
"""Where the driver lists a node's GPUs, in `nvidia/gpus`; every kernel has the directory, with a driver or without."""
LOG_RETRIES = 5
SOMETHING_REMAINS = {"operator": "In", "values": [4]}
"""Exit code of a reverter whose ledger names what it may not undo: another try would find the same."""
SHARED_IMPORT = re.compile(r"^from chaos_gpu\.payloads\.(\w+) import (?:\([^)]*\)|.*)\n", re.MULTILINE)


def payload_source(name: str) -> str:
    """Return a payload as the one file it is sent as: what it imports of the others stands before it."""
    parts: dict[str, str] = {}
    _collect(name, parts)
    return "\n\n".join(parts.values())


def _collect(name: str, parts: dict[str, str]) -> None:
    source = (files("chaos_gpu.payloads") / f"{name}.py").read_text()
    for wanted in SHARED_IMPORT.findall(source):
        if wanted not in parts:
            _collect(wanted, parts)
    parts[name] = SHARED_IMPORT.sub("", source)


def payload_pod(settings: Settings, payload: str, spec: Mapping[str, Any]) -> JsonObject:
    """Make the pod template (metadata.annotations and spec) that runs a payload with a spec."""
    files_of = {"payload.py": "chaos-gpu/payload", "spec.json": "chaos-gpu/spec"}
    items = [
        {"path": path, "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}} for path, key in files_of.items()
    ]
    container = {
        "name": CONTAINER,
        "image": settings.image,
        "command": ["python3", "-I", f"{MOUNT}/payload.py", "--spec", f"{MOUNT}/spec.json"],
        "volumeMounts": [{"name": "chaos-gpu", "mountPath": MOUNT, "readOnly": True}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    pod_spec: JsonObject = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "chaos-gpu", "downwardAPI": {"items": items}}],
        "terminationGracePeriodSeconds": 10,
    }
    if settings.image_pull_secret:
        pod_spec["imagePullSecrets"] = [{"name": settings.image_pull_secret}]
    annotations = {"chaos-gpu/payload": payload_source(payload), "chaos-gpu/spec": json.dumps(spec)}
    return {"metadata": {"annotations": annotations}, "spec": pod_spec}


def node_pod(
    settings: Settings, name: str, node: str, labels: Mapping[str, str], payload: str, spec: Mapping[str, Any]
) -> JsonObject:
    """Make a privileged pod on one node: what reads and writes the node's kernel log must be."""
    pod = payload_pod(settings, payload, spec)
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] |= {"name": name, "namespace": NAMESPACE, "labels": dict(labels)}
    container = pod["spec"]["containers"][0]
    container["securityContext"] = {"privileged": True, "runAsUser": 0}
    container["volumeMounts"] += [
        {"name": "kmsg", "mountPath": "/dev/kmsg"},
        {"name": "driver", "mountPath": f"/node{PROC_DRIVER}", "readOnly": True},
    ]
    pod["spec"]["volumes"] += [
        {"name": "kmsg", "hostPath": {"path": "/dev/kmsg", "type": "CharDevice"}},
        {"name": "driver", "hostPath": {"path": PROC_DRIVER}},
    ]
    if labels[ROLE] == "injector":
        need_go(pod, labels[RUN])
    pod["spec"] |= {
        "nodeName": node,
        "serviceAccountName": INJECTOR,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
    }
    return pod


def need_go(pod: JsonObject, run: str) -> None:
    """Let a pod that arrives late, when its run was called off, find no key in the ledger: it cannot start then."""
    key = {"name": f"chaos-gpu-run-{run}", "key": GO}
    pod["spec"]["containers"][0]["env"] = [{"name": "CHAOS_GPU_GO", "valueFrom": {"configMapKeyRef": key}}]


def run_labels(run: str, role: str, fault: str = "") -> dict[str, str]:
    """Make the labels by which everything of a run is found again."""
    labels = {RUN: run, ROLE: role, "app.kubernetes.io/managed-by": "chaos-gpu"}
    return {**labels, FAULT: fault} if fault else labels


def reverter_job(settings: Settings, run: str, avoid: list[str], spec: Mapping[str, Any]) -> JsonObject:
    """Make the reverter Job, kept off the targets. It asks for its own rights before it says that it is there."""
    rights = [attributes(right, verb) for right in REVERTER_RIGHTS for verb in right.verbs]
    template = payload_pod(settings, "reverter", {**spec, "rights": rights})
    template["metadata"]["labels"] = run_labels(run, "reverter")
    template["spec"]["serviceAccountName"] = REVERTER
    # by the node's own name: the hostname label may differ; each requirement takes one, and all of a term must hold
    off_targets = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in avoid]
    required = {"nodeSelectorTerms": [{"matchFields": off_targets}]}
    template["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"chaos-gpu-reverter-{run}",
            "namespace": NAMESPACE,
            "labels": run_labels(run, "reverter"),
        },
        "spec": {
            "backoffLimit": 6,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": SOMETHING_REMAINS}]},
            "ttlSecondsAfterFinished": 5,
            "template": template,
        },
    }


def start_job(api: Api, job: JsonObject, token: str, limit_s: float) -> None:
    """Create a Job and see its pod alive: it has said `started`.

    Raises: Refused when another run of this id has made it or it says that it lacks rights, ApiUnavailable after
    `limit_s`.
    """
    try:
        ours.create(api, jobs_path(), job, token)
    except Conflict as failure:
        raise Refused(
            f"{job['metadata']['name']} is there already: this run id is in use",
            remedy="unset CHAOS_GPU_RUN or choose a new one; chaos-gpu status lists the runs",
        ) from failure
    end = time.monotonic() + limit_s
    selector = f"batch.kubernetes.io/job-name={job['metadata']['name']}"
    while time.monotonic() < end:
        for pod in api.items(pods_path(), labels=selector):
            for event in _said(api, pod["metadata"]["name"]):
                if event["event"] == "started":
                    return
                if event["event"] == "failed":
                    raise Refused(
                        f"the reverter could not undo this run: {event.get('reason')}",
                        remedy="chaos-gpu install grants its rights anew; is its Role older than this version?",
                    )
        time.sleep(0.05)
    raise ApiUnavailable(
        f"job {job['metadata']['name']} did not come alive within {limit_s:g} s",
        remedy=f"kubectl -n {NAMESPACE} describe job,pod -l {RUN}; is the image reachable (CHAOS_GPU_IMAGE)?",
    )


def start_pod(api: Api, pod: JsonObject, limit_s: float) -> None:
    """Create a pod and see it running (or finished already). Raises NotLanded with the kubelet's reason."""
    name = pod["metadata"]["name"]
    with suppress(Conflict):
        api.create(pods_path(), pod)
    waiting = "it was not scheduled"
    for state in follow_one(api, pods_path(), name, limit_s):
        if state is None:
            raise NotLanded(f"pod {name} was deleted before it ran")
        if state.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed"):
            return
        waiting = _waiting(state) or waiting
    raise NotLanded(f"pod {name} did not run within {limit_s:g} s: {waiting}", remedy="is CHAOS_GPU_IMAGE reachable?")


def events_of(api: Api, name: str, limit_s: float) -> Iterator[JsonObject]:
    """Follow the events that a payload prints, as they come, until it ends or `limit_s` passed in silence.

    A log that broke off is read again from its start, less what was told already.
    """
    told, broken = 0, 0
    while True:
        try:
            lines = api.lines(f"{pods_path()}/{name}/log", {"container": CONTAINER, "follow": "true"}, read_s=limit_s)
            for number, line in enumerate(lines):
                event = _event(line) if number >= told else None
                told = max(told, number + 1)
                if event:
                    yield event
        except (ApiError, ApiUnavailable):
            broken += 1
            if broken > LOG_RETRIES:
                raise
            time.sleep(0.2)
        else:
            return


def _said(api: Api, name: str) -> list[JsonObject]:
    try:
        lines = list(api.lines(f"{pods_path()}/{name}/log", {"container": CONTAINER}, read_s=5))
    except (ApiError, ApiUnavailable):  # no container yet
        return []
    return [found for found in map(_event, lines) if found]


def _event(line: bytes) -> JsonObject | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def _waiting(pod: JsonObject) -> str:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting:
            return f"{waiting.get('reason', '')} {str(waiting.get('message', ''))[:200]}".strip()
    return ""
