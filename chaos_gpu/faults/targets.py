"""Choose the node and the GPU to hit: never an empty selector, never someone else's work, always under a seed."""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.criteria.pci import normal_pci
from chaos_gpu.errors import TargetError, UsageError
from chaos_gpu.faults.names import PROTECTED, RUN, TARGET
from chaos_gpu.payloads import reactions

OPT_OUTS = {
    PROTECTED: "true",
    "k8saas.nvidia.com/ManagedByNVSentinel": "false",
    "nvsentinel.dgxc.nvidia.com/managed": "false",
}
SAYS_NOTHING = ("", "[]", "{}", "null")
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Target(BaseModel):
    """One GPU of one node, by UID; the GPU named by index, PCI address or UUID (exactly one)."""

    model_config = ConfigDict(frozen=True)

    node: str
    node_uid: str
    gpu: dict[str, str]

    def __str__(self) -> str:
        gpu = f", GPU {' '.join(f'{k} {v}' for k, v in self.gpu.items())}" if self.gpu else ""
        return f"node {self.node} (uid {self.node_uid}){gpu}"


class Unfit(NamedTuple):
    """Why a node may not be the target, and what to do about just that."""

    reason: str
    remedy: str = "free or repair a node first; label pods chaos-gpu/target=allow if they may be disturbed"


def gpu_nodes(api: Api, selector: str) -> list[JsonObject]:
    """List the GPU nodes. Raises TargetError when there is none: nothing can be shown on an empty fleet."""
    nodes = list(api.items("/api/v1/nodes", labels=selector))
    if not nodes:
        raise TargetError(
            f"no node matches {selector!r}",
            remedy="label the GPU nodes (GPU feature discovery does), or set CHAOS_GPU_SELECTOR",
        )
    return nodes


def gpu_selector(text: str) -> dict[str, str]:
    """Read how a GPU is named: index, PCI address (dddd:bb:dd, with or without function) or UUID; {} for any."""
    name = text.strip()
    if not name:
        return {}
    if name.isascii() and name.isdecimal() and len(name) <= 3:
        return {"index": str(int(name))}
    if UUID.fullmatch(name):
        return {"uuid": name}
    try:
        return {"pci": normal_pci(name)}
    except UsageError as failure:
        remedy = "give an index (0), a UUID (GPU-…) or a PCI address (0000:3b:00)"
        raise UsageError(f"{text!r} names no GPU", remedy) from failure


def gpu_count(node: JsonObject) -> int:
    """Count a node's physical GPUs: GFD's label, else its capacity."""
    labels = node["metadata"].get("labels") or {}
    capacity = node.get("status", {}).get("capacity") or {}
    text = str(labels.get("nvidia.com/gpu.count") or capacity.get("nvidia.com/gpu") or "0")
    return int(text) if text.isdecimal() else 0


def whole_gpus(node: JsonObject) -> int:
    """Count a node's physical GPUs; 0 where MIG makes slices of them, which some of its labels count instead."""
    strategy = (node["metadata"].get("labels") or {}).get("nvidia.com/mig.strategy", "none")
    return gpu_count(node) if strategy == "none" else 0


def unfit(node: JsonObject, unhealthy_conditions: Iterable[str] = (), attribution: Iterable[str] = ()) -> str:
    """Say why a node may not be a target, or "" when it may.

    Args:
        node: as the API shows it.
        unhealthy_conditions: condition types that mean a fault is already known there.
        attribution: labels or annotations by which a detector says why it cordoned; one that is left over would be
            taken for the reason of the next cordon, whoever's that is.
    """
    labels = node["metadata"].get("labels") or {}
    conditions = {each["type"]: each["status"] for each in node.get("status", {}).get("conditions") or ()}
    if node.get("spec", {}).get("unschedulable"):
        return "it is cordoned already"
    if conditions.get("Ready") != "True":
        return "it is not Ready"
    for key, value in OPT_OUTS.items():
        if labels.get(key) == value:
            return f"it opted out ({key}={value})"
    if any(key in labels for key in CONTROL_PLANE):
        return "it is a control-plane node"
    if raised := raised_conditions(node, unhealthy_conditions):
        return f"its condition {raised[0]} is already raised"
    places = {**labels, **(node["metadata"].get("annotations") or {})}
    told = [name for name in attribution if str(places.get(name) or "").strip() not in SAYS_NOTHING]
    return f"its {told[0]} still tells of an earlier incident" if told else ""


def raised_conditions(node: JsonObject, watched: Iterable[str]) -> list[str]:
    """List the conditions of detectors that are unhealthy on a node; `Type=False` names one that is so at False."""
    names = tuple(watched)
    conditions = node.get("status", {}).get("conditions") or ()
    return sorted(each["type"] for each in conditions if reactions.is_raised(each, names))


def foreign_work(api: Api, node: str) -> list[str]:
    """List the pods on a node that request a GPU and are neither ours, a DaemonSet's, nor marked as a legal target."""
    pods = api.items("/api/v1/pods", fields=f"spec.nodeName={node}")
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} ({_gpus(pod)} GPU)" for pod in pods if _foreign(pod)
    ]


def work_by_node(api: Api) -> dict[str, list[str]]:
    """List, by node, the pods that hold GPUs there: whatever they belong to, the node is not idle."""
    found: dict[str, list[str]] = {}
    for pod in api.items("/api/v1/pods", fields="status.phase!=Succeeded,status.phase!=Failed"):
        if _gpus(pod) and (node := pod["spec"].get("nodeName")):
            found.setdefault(node, []).append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    return found


def choose_node(
    api: Api, fleet: Sequence[JsonObject], wanted: str, seed: str, why_not: Callable[[JsonObject], Unfit | None]
) -> JsonObject:
    """Choose the target node: the wanted one, or one of the fit ones under the seed.

    Args:
        api: the connection; only asked about a wanted node that is not in the fleet.
        fleet: the GPU nodes.
        wanted: a node's name, "" for any.
        seed: makes the choice repeatable.
        why_not: says why a node may not be the target, None when it may. Asked node by node until one is fit.

    Raises: TargetError with the reasons, and what to do about them, when none is fit.
    """
    if wanted:
        return _named(api, fleet, wanted, why_not)
    refused: list[tuple[str, Unfit]] = []
    nodes = sorted(fleet, key=lambda node: str(node["metadata"]["name"]))
    random.Random(seed).shuffle(nodes)  # noqa: S311 - to be repeatable, not secret
    for node in nodes:
        if not (found := why_not(node)):
            return node
        refused.append((node["metadata"]["name"], found))
    told = "; ".join(f"{name}: {found.reason}" for name, found in refused[:3])
    raise TargetError(
        f"none of {len(nodes)} GPU nodes is fit as a target ({told})",
        remedy="; or ".join(dict.fromkeys(found.remedy for _, found in refused)),
    )


def choose_gpu(node: JsonObject, wanted: str, exhausted: Sequence[dict[str, str]], seed: str) -> dict[str, str]:
    """Choose the GPU: the wanted one, or an index of the node under the seed that has budget left."""
    named = gpu_selector(wanted)
    count = gpu_count(node)
    if count == 0:
        raise TargetError(f"node {node['metadata']['name']} has no GPU", remedy="choose a node that has one")
    if named:
        if int(named.get("index", 0)) >= count:
            raise TargetError(
                f"node {node['metadata']['name']} has no GPU {wanted}", remedy=f"its GPUs are 0 to {count - 1}"
            )
        return named
    used = {each["index"] for each in exhausted if "index" in each}
    left = [index for index in range(count) if str(index) not in used]
    if not left:
        raise TargetError(
            f"every GPU of node {node['metadata']['name']} has had its injections of the last 24 h",
            remedy="choose another node, wait, or raise the guard's `repeats_per_day`",
        )
    return {"index": str(random.Random(seed).choice(left))}  # noqa: S311 - to be repeatable, not secret


def _named(
    api: Api, fleet: Sequence[JsonObject], name: str, why_not: Callable[[JsonObject], Unfit | None]
) -> JsonObject:
    see = "kubectl get nodes; chaos-gpu doctor says which GPU nodes are fit"
    if not NODE_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a node's name", remedy=see)
    node = next((each for each in fleet if each["metadata"]["name"] == name), None)
    if node is None:
        if api.find(f"/api/v1/nodes/{name}") is None:
            raise TargetError(f"there is no node {name!r}", remedy=see)
        raise TargetError(
            f"node {name} does not match the selector of the GPU nodes",
            remedy="choose a GPU node, or set CHAOS_GPU_SELECTOR",
        )
    if found := why_not(node):
        raise TargetError(f"node {name} is not fit as a target: {found.reason}", f"choose another node; {found.remedy}")
    return node


def _foreign(pod: JsonObject) -> bool:
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    owners = {owner["kind"] for owner in meta.get("ownerReferences") or ()}
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    ours = RUN in labels or labels.get(TARGET) == "allow"
    return bool(_gpus(pod)) and not over and not ours and "DaemonSet" not in owners


def _gpus(pod: JsonObject) -> int:
    total = 0
    for container in [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]:
        resources = container.get("resources") or {}
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        total += sum(int(n) for key, n in wanted.items() if key.startswith("nvidia.com/") and str(n).isdecimal())
    return total
