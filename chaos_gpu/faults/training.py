"""The trainings of a run: made from the manifest of a Job, one to be interrupted and one that is left alone.

The Job's first container is to write its checkpoints below `$(CHAOS_GPU_STORE)`; its annotation
`chaos-gpu/store` says where the volume is that they go to.
"""

import copy
from typing import Any

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.faults.manifest import STORE_AT, load
from chaos_gpu.faults.names import NAMESPACE
from chaos_gpu.faults.pods import run_labels
from chaos_gpu.payloads.freezer import MARK, POD, STORE, directory_of

SUBJECT, REFERENCE = "subject", "reference"
ROLE_LABEL = "chaos-gpu/training"


def roles_of(references: int) -> tuple[str, ...]:
    """Return what a fault's trainings are: the one to interrupt, then so many that are left alone."""
    return (SUBJECT, REFERENCE, *(f"{REFERENCE}-{number}" for number in range(2, references + 1)))


def mark_of(run: str, fault: str, role: str) -> str:
    """Name one training of a run, as its processes carry it in their environment."""
    return f"{run}.{fault}.{role}"


def trainings(
    path: str, run: str, fault: str, node: str, roles: tuple[str, ...] = roles_of(1), longest_s: float = 86400.0
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
    metadata.pop("finalizers", None)  # they become the pods', which then may never go
    template["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}
    container = template["spec"]["containers"][0]
    container["env"] = [
        {"name": MARK, "value": mark_of(run, fault, role)},
        {"name": STORE, "value": f"{store}/{directory_of(mark_of(run, fault, role))}"},
        {"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        *(container.get("env") or []),
    ]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    template["spec"]["affinity"] = {**(template["spec"].get("affinity") or {}), "nodeAffinity": affinity}
    spec.pop("selector", None)
    spec.pop("ttlSecondsAfterFinished", None)  # its pods say how it went
    spec.setdefault("activeDeadlineSeconds", round(longest_s))
    spec["podReplacementPolicy"] = "Failed"  # else the next pod runs while the one told to end still saves
    name = f"{run}-{fault}-{role[:3]}{role.removeprefix(REFERENCE) if role != SUBJECT else ''}"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {**spec, "suspend": False},
    }
