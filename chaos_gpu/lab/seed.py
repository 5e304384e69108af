"""What the lab's cluster holds at first: nodes with GPUs, their leases, and the platform under test."""

from collections.abc import Mapping
from typing import Any

from chaos_gpu.lab.client import Api
from chaos_gpu.lab.dcgm.manifests import dcgm_objects
from chaos_gpu.lab.kubelet.devices import GPU_RESOURCE, GPUS_PER_NODE, PRODUCT, gpus_of
from chaos_gpu.lab.kubelet.kubelet import LEASES, Node, lease
from chaos_gpu.lab.platform.health_manifests import ADMITTED, health_objects, histories
from chaos_gpu.lab.platform.manifests import journal_objects, platform_objects
from chaos_gpu.lab.times import rfc3339

Json = dict[str, Any]
_COLLECTIONS = {
    "Namespace": "api/v1/namespaces",
    "ServiceAccount": "api/v1/serviceaccounts",
    "ConfigMap": "api/v1/configmaps",
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "apis/rbac.authorization.k8s.io/v1/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/rolebindings",
    "DaemonSet": "apis/apps/v1/daemonsets",
    "Deployment": "apis/apps/v1/deployments",
}
_RESOURCES = {GPU_RESOURCE: str(GPUS_PER_NODE), "cpu": "64", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110"}
_HEALTHY = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
)
_POLICY_POLL_S = 0.05
_NODE_INFO = {
    "kubeletVersion": "v1.32.0+lab",
    "kubeProxyVersion": "",
    "osImage": "chaos_gpu lab",
    "kernelVersion": "6.8.0-lab",
    "containerRuntimeVersion": "process://1",
    "architecture": "amd64",
    "operatingSystem": "linux",
}


async def seed(api: Api, nodes: list[Node], without: list[str], defects: list[str]) -> None:
    """Create nodes and the platform, but for the components that are left out."""
    has_policy = "health-policy" not in without
    for node in nodes:
        await api.create("api/v1/nodes", node_object(node, ADMITTED if has_policy else {}))
        await api.create(LEASES, lease(node.name))
    objects = [] if "detector" in without else platform_objects()
    objects += [] if {"detector", "journal"} & set(without) else journal_objects()
    engine, exporter, agent = (f"dcgm-{part}" not in without for part in ("engine", "exporter", "agent"))
    objects += dcgm_objects(engine=engine, exporter=exporter, agent=agent)
    fleet = {node.name: [gpu.uuid for gpu in gpus_of(node.index)] for node in nodes}
    objects += [*health_objects(poll_s=_POLICY_POLL_S), *histories(fleet, defects)] if has_policy else []
    spaces: set[str] = set()
    for obj in objects:
        name = obj["metadata"]["name"] if obj["kind"] == "Namespace" else ""
        if name not in spaces:
            await api.create(_COLLECTIONS[obj["kind"]], obj)
        spaces |= {name} - {""}


def node_object(node: Node, annotations: Mapping[str, str]) -> Json:
    """Return a node as it has joined."""
    now = rfc3339()
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        f"{GPU_RESOURCE}.present": "true",
        f"{GPU_RESOURCE}.count": str(GPUS_PER_NODE),
        f"{GPU_RESOURCE}.product": PRODUCT,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels, "annotations": dict(annotations)},
        "spec": {"providerID": f"lab://{node.name}"},
        "status": {
            "capacity": _RESOURCES,
            "allocatable": _RESOURCES,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, status, reason, message in _HEALTHY
            ],
            "addresses": [
                {"type": "InternalIP", "address": node.address},
                {"type": "Hostname", "address": node.name},
            ],
            "nodeInfo": {**_NODE_INFO, **dict.fromkeys(("machineID", "systemUUID", "bootID"), f"lab-{node.index}")},
        },
    }
