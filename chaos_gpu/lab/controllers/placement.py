"""May this pod go to that node? Pure; used by the scheduler and by DaemonSets.

Modelled: Ready, cordon, taints (NoSchedule, NoExecute) and tolerations, nodeSelector, required node affinity (labels
and metadata.name), `nvidia.com/gpu` and any other extended resource as whole numbers. Not modelled: CPU, memory, pod
affinity, topology spread, preferred terms, host ports, volumes, priority and preemption. Source: Kubernetes,
pkg/scheduler/framework/plugins (messages too).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from chaos_gpu.lab.controllers.objects import has_condition, is_finished, matches

Json = dict[str, Any]

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def why_not_eligible(pod_spec: Json, node: Json) -> str:
    """Return why the node cannot take such a pod whatever runs there, or ""."""
    if not has_condition(node, "Ready"):
        return "node(s) were not ready"
    spec = node.get("spec") or {}
    tolerations = pod_spec.get("tolerations") or []
    if spec.get("unschedulable") and not tolerates(tolerations, UNSCHEDULABLE):
        return "node(s) were unschedulable"
    for taint in spec.get("taints") or []:
        if taint["effect"] in _HARD_EFFECTS and not tolerates(tolerations, taint):
            return f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"
    if not matches_affinity(pod_spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def why_no_room(pod_spec: Json, node: Json, others: Iterable[Json]) -> str:
    """Return which extended resource the node has too little of beside its `others`, or ""."""
    wanted = extended_requests(pod_spec)
    if not wanted:
        return ""
    used: dict[str, int] = {}
    for pod in others:
        if not is_finished(pod):
            for name, count in extended_requests(pod["spec"]).items():
                used[name] = used.get(name, 0) + count
    allocatable = node.get("status", {}).get("allocatable") or {}
    for name, count in wanted.items():
        if used.get(name, 0) + count > int(allocatable.get(name, 0)):
            return f"Insufficient {name}"
    return ""


def tolerates(tolerations: Iterable[Json], taint: Mapping[str, str]) -> bool:
    """Whether one of the tolerations covers the taint."""
    return any(_covers(toleration, taint) for toleration in tolerations)


def _covers(toleration: Json, taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def matches_affinity(pod_spec: Json, node: Json) -> bool:
    """Whether nodeSelector and required node affinity allow the node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod_spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_matches_term(term, node, labels) for term in required.get("nodeSelectorTerms") or [])


def _matches_term(term: Json, node: Json, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    own_fields = {"metadata.name": node["metadata"]["name"]}
    return all(matches(e, labels) for e in expressions) and all(matches(e, own_fields) for e in fields)


def extended_requests(pod_spec: Json) -> dict[str, int]:
    """Return the extended resources (names with a domain) that a pod needs, as whole numbers.

    Containers run together, init containers before them one by one: the larger of sum and maximum counts.
    """
    together: dict[str, int] = {}
    for container in pod_spec.get("containers") or []:
        for name, count in _limits(container).items():
            together[name] = together.get(name, 0) + count
    for container in pod_spec.get("initContainers") or []:
        for name, count in _limits(container).items():
            together[name] = max(together.get(name, 0), count)
    return {name: count for name, count in together.items() if count}


def _limits(container: Json) -> dict[str, int]:
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: int(count) for name, count in limits.items() if "/" in name}
