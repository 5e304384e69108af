"""DCGM's objects as the GPU operator makes them (`dcgm.enabled: true`), and the agent that acts on DCGM's health.

Names, labels and ports are the operator's; only the commands are said here, where there are no images. On a real
cluster the programs come by a `Bundle`, and the agent runs once on each node, whose engine it finds there.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chaos_gpu

if TYPE_CHECKING:
    from chaos_gpu.lab.dcgm.bundle import Bundle

Json = dict[str, Any]

OPERATOR, HEALTH = "gpu-operator", "gpu-health"
ENGINE, EXPORTER, AGENT = "nvidia-dcgm", "nvidia-dcgm-exporter", "dcgm-health-agent"
CONDITION = "GpuDcgmUnhealthy"
ANNOTATION = "dcgm-health.lab/cordoned-by"
ENGINE_IMAGE = "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu22.04"
EXPORTER_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.2-distroless"
AGENT_IMAGE = "registry.example/dcgm-health-agent:1"
PROFILE = {"conditions": [CONDITION], "attribution": [ANNOTATION], "actions": ["cordon"], "dcgm": True}
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
_ON_GPU_NODES: Json = {
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "tolerations": [{"operator": "Exists"}],
    "terminationGracePeriodSeconds": 1,
}


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


_NODE_NAME = _field("NODE_NAME", "spec.nodeName")


def dcgm_objects(*, engine: bool, exporter: bool, agent: bool, bundle: "Bundle | None" = None) -> list[Json]:
    """Return the objects in the order to apply them.

    Args:
        engine: run a standalone engine on each node; else the exporter has its embedded one, as by the operator's
            defaults.
        exporter: run the metrics exporter.
        agent: run the agent that acts on health.
        bundle: what brings the programs, on clusters whose images do not.
    """
    remote = [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": f"{ENGINE}:5555"}] if engine else []
    objects: list[Json] = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OPERATOR}}]
    objects += [_daemon_set(OPERATOR, ENGINE, _engine())] if engine else []
    objects += [_daemon_set(OPERATOR, EXPORTER, _exporter(remote))] if exporter else []
    objects += _agent_objects(everywhere=bundle is not None) if agent else []
    return list(bundle.placed(objects)) if bundle else objects


def _daemon_set(namespace: str, name: str, spec: Json) -> Json:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {**_ON_GPU_NODES, **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _engine() -> Json:
    container = {
        "name": "nvidia-dcgm-ctr",
        "image": ENGINE_IMAGE,
        "command": ["nv-hostengine"],
        "args": ["-n", "-b", "0.0.0.0"],  # noqa: S104 - as the operator writes it; the stand-in listens nowhere
        "ports": [{"name": "dcgm", "containerPort": 5555}],
        "securityContext": {"privileged": True},
    }
    return {"containers": [container]}


def _exporter(more: list[Json]) -> Json:
    container = {
        "name": "nvidia-dcgm-exporter",
        "image": EXPORTER_IMAGE,
        "command": ["dcgm-exporter"],
        "env": [
            {"name": "DCGM_EXPORTER_LISTEN", "value": ":9400"},
            _NODE_NAME,
            _field("POD_IP", "status.podIP"),
            *more,
        ],
        "ports": [{"name": "metrics", "containerPort": 9400}],
    }
    return {"containers": [container]}


def _agent_objects(*, everywhere: bool) -> list[Json]:
    names, rbac = {"name": AGENT, "namespace": HEALTH}, "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HEALTH}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": AGENT}, "rules": RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": AGENT},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": AGENT},
            "subjects": [{"kind": "ServiceAccount", **names}],
        },
        _agent(names, everywhere=everywhere),
    ]


def _agent(names: Json, *, everywhere: bool) -> Json:
    labels = {"app": AGENT}
    container: Json = {"name": "agent", "image": AGENT_IMAGE}
    if everywhere:
        container |= {"command": [AGENT], "env": [_NODE_NAME]}
    else:
        packages = {"name": "PYTHONPATH", "value": str(Path(chaos_gpu.__file__).parent.parent)}
        container |= {"command": ["python3", "-SP", "-m", "chaos_gpu.lab.dcgm.agent"], "env": [packages]}
    spec = {"serviceAccountName": AGENT, "terminationGracePeriodSeconds": 1, "containers": [container]}
    template = {"metadata": {"labels": labels}, "spec": {**(_ON_GPU_NODES if everywhere else {}), **spec}}
    marks = {
        "labels": {**labels, "chaos-gpu/detector": AGENT},
        "annotations": {"chaos-gpu/detector-profile": json.dumps(PROFILE)},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet" if everywhere else "Deployment",
        "metadata": {**names, **marks},
        "spec": {
            **({} if everywhere else {"replicas": 1}),
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }
