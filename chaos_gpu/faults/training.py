"""The trainings of a run: made from the manifest of a Job, one to be interrupted and one that is left alone.

The manifest is a file of the runner's: a Job and the ConfigMaps that it reads. The Job's first container is to write
its checkpoints below `$(CHAOS_GPU_STORE)`; its annotation `chaos-gpu/store` says where the volume is that they go to.
"""

import copy
from pathlib import Path
from typing import Any

import yaml

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.names import NAMESPACE
from chaos_gpu.faults.pods import run_labels
from chaos_gpu.payloads.freezer import MARK, POD, STORE

MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
STORE_AT = "chaos-gpu/store"
ROLES = ("subject", "reference")
GPU = "nvidia.com/"
ROLE_LABEL = "chaos-gpu/training"
NEEDS_JOB = "set CHAOS_GPU_JOB to the file of a Job that trains, see docs/trainings.md"


def load(path: str) -> tuple[JsonObject, list[JsonObject]]:
    """Read a manifest: the Job, and the ConfigMaps that come with it.

    Raises: UsageError when it cannot be read, or holds other objects or no Job.
    """
    try:
        documents = [each for each in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")) if each]
    except (OSError, ValueError, yaml.YAMLError) as failure:
        raise UsageError(f"the manifest {path} cannot be read: {type(failure).__name__}", NEEDS_JOB) from failure
    kinds = [each.get("kind") if isinstance(each, dict) else None for each in documents]
    if kinds.count("Job") != 1 or set(kinds) - {"Job", "ConfigMap"}:
        raise UsageError(f"{path} holds {kinds}: one Job and ConfigMaps are wanted", NEEDS_JOB)
    job, configs = documents[kinds.index("Job")], [each for each in documents if each["kind"] == "ConfigMap"]
    try:
        store = _shape(job, configs)
    except MALFORMED as failure:
        reason = f"{path} is no manifest of a Job: {type(failure).__name__}: {failure}"
        raise UsageError(reason, "try it: kubectl apply --dry-run=server -f FILE") from failure
    if not store.startswith("/"):
        raise UsageError(f"the Job of {path} has no annotation {STORE_AT}", "say where its volume is mounted")
    return job, configs


def _shape(job: JsonObject, configs: list[JsonObject]) -> str:
    """Touch all that is made use of, so that what is malformed fails here. Returns where the store is."""
    template = job["spec"]["template"]
    pod, metadata = template["spec"], template.get("metadata") or {}
    for mapping in (metadata, metadata.get("labels"), pod.get("affinity"), *(pod["containers"][0].get("env") or ())):
        dict(mapping or {})
    for name in (pod["containers"][0]["name"], *(each["metadata"]["name"] for each in configs)):
        name.encode()
    gpus_of(job), grace_s_of(job)
    return str((job["metadata"].get("annotations") or {}).get(STORE_AT, ""))


def gpus_of(job: JsonObject) -> int:
    """Return how many GPUs a Job holds while all its pods run; a slice of one counts as one."""
    containers = job["spec"]["template"]["spec"]["containers"]
    limits = [(each.get("resources") or {}).get("limits") or {} for each in containers]
    a_pod = sum(int(count) for each in limits for name, count in each.items() if name.startswith(GPU))
    return a_pod * int(job["spec"].get("parallelism", 1))


def grace_s_of(job: JsonObject) -> float:
    """Return the grace period of a Job's pods, seconds."""
    return float(job["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30))


def mark_of(run: str, fault: str, role: str) -> str:
    """Name one training of a run, as its processes carry it in their environment."""
    return f"{run}.{fault}.{role}"


def trainings(
    path: str, run: str, fault: str, node: str, roles: tuple[str, ...] = ROLES, longest_s: float = 86400.0
) -> list[JsonObject]:
    """Make the ConfigMaps and Jobs of a run's trainings, all on one node; they end after `longest_s` in any case.

    Raises: UsageError as `load` does.
    """
    job, configs = load(path)
    names = {each["metadata"]["name"]: f"{run}-{fault}-{each['metadata']['name']}"[:253] for each in configs}
    labels = run_labels(run, "training", fault)
    made = [
        {**each, "metadata": {"name": names[each["metadata"]["name"]], "namespace": NAMESPACE, "labels": labels}}
        for each in configs
    ]
    return made + [_training(_renamed(job, names), run, fault, role, node, longest_s) for role in roles]


def _renamed(value: Any, names: dict[str, str], key: str = "") -> Any:
    """Let every reference to a ConfigMap of the manifest follow it to its new name."""
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    found = {inner: _renamed(each, names, inner) for inner, each in value.items()}
    if key in ("configMap", "configMapRef", "configMapKeyRef") and found.get("name") in names:
        found["name"] = names[found["name"]]
    return found


def _training(job: JsonObject, run: str, fault: str, role: str, node: str, longest_s: float) -> JsonObject:
    spec = copy.deepcopy(job["spec"])
    template = spec["template"]
    store = str(job["metadata"]["annotations"][STORE_AT]).rstrip("/")
    labels = {**run_labels(run, "training", fault), ROLE_LABEL: role}
    metadata = template.get("metadata") or {}
    template["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}
    container = template["spec"]["containers"][0]
    container["env"] = [
        {"name": MARK, "value": mark_of(run, fault, role)},
        {"name": STORE, "value": f"{store}/{run}-{fault}-{role}"},
        {"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *(container.get("env") or []),
    ]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    template["spec"]["affinity"] = {**(template["spec"].get("affinity") or {}), "nodeAffinity": affinity}
    spec.pop("selector", None)
    spec.setdefault("activeDeadlineSeconds", round(longest_s))
    spec["podReplacementPolicy"] = "Failed"  # else the next pod runs while the one told to end still saves
    name = f"{run}-{fault}-{role[:3]}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {**spec, "suspend": False},
    }
