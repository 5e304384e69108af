"""What the platform team applies to the cluster: its detectors, each with the least rights that it needs.

The same objects serve the lab and a real cluster: there the container's image must be a real one, the kernel log and
the driver's files come by hostPath, and the policy comes from `platform` instead of the lab's file.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]


class Agent(NamedTuple):
    """One of the detectors."""

    name: str
    namespace: str
    role: str
    profile: Json
    """What it declares of itself to chaos_gpu."""
    rules: list[Json]


NAMESPACE = "gpu-health"
AGENT = "gpu-health-agent"
IMAGE = "python:3.12-slim"
CODE_PATH = "/opt/gpu-health"
PROFILE = {
    "transport": "kmsg",
    "conditions": ["GpuXidError"],
    "attribution": ["gpu-health.lab/cordoned-by"],
    "actions": ["cordon"],
}
JOURNAL_PROFILE = {"transport": "bracket", "conditions": ["GpuXidInJournal"]}
_OWN_IMPORT = re.compile(r"^from chaos_gpu\.\S+ import .*\n", re.MULTILINE)
_TELLS = [
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
RULES = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}, *_TELLS]
_HEALTH = Agent(AGENT, NAMESPACE, "kernel", PROFILE, RULES)
JOURNAL_WATCH = Agent(
    "gpu-journal-watch",
    "gpu-journal",
    "journal",
    JOURNAL_PROFILE,
    [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}, *_TELLS],
)


def agent_source() -> str:
    """Return the agent as one file that imports nothing of ours."""
    here = Path(__file__)
    first, *others = (
        here.with_name(f"{name}.py").read_text(encoding="utf-8") for name in ("records", "rules", "wire", "detector")
    )
    return first + "".join(_OWN_IMPORT.sub("", other) for other in others)


def platform_objects(platform: Json | None = None, image: str = IMAGE) -> list[Json]:
    """Return the objects of the gpu-health-agent in the order to apply them.

    Args:
        platform: content of the platform file, for clusters where the kubelet does not bring it; it is then mounted.
        image: an image with python3.
    """
    return _objects(_HEALTH, platform, image)


def journal_objects(platform: Json | None = None, image: str = IMAGE) -> list[Json]:
    """Return the objects of the gpu-journal-watch likewise."""
    return _objects(JOURNAL_WATCH, platform, image)


def _objects(agent: Agent, platform: Json | None, image: str) -> list[Json]:
    data = {"detector.py": agent_source()} | ({"platform.json": json.dumps(platform)} if platform else {})
    names = {"name": agent.name, "namespace": agent.namespace}
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": agent.namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": agent.name}, "rules": agent.rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": agent.name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": agent.name},
            "subjects": [{"kind": "ServiceAccount", **names}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names, "data": data},
        _daemon_set(agent, image, mounted_policy=platform is not None),
    ]


def _daemon_set(agent: Agent, image: str, *, mounted_policy: bool) -> Json:
    labels = {"app": agent.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": agent.name,
            "namespace": agent.namespace,
            "labels": {**labels, "chaos-gpu/detector": agent.name},
            "annotations": {"chaos-gpu/detector-profile": json.dumps(agent.profile)},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod_spec(agent, image, mounted_policy=mounted_policy),
            },
        },
    }


def _pod_spec(agent: Agent, image: str, *, mounted_policy: bool) -> Json:
    env: list[Json] = [
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "AGENT_ROLE", "value": agent.role},
    ]
    volumes: list[Json] = [{"name": "code", "configMap": {"name": agent.name}}]
    mounts: list[Json] = [{"name": "code", "mountPath": CODE_PATH, "readOnly": True}]
    container: Json = {"name": "agent", "image": image, "command": ["python3", "-ISB", f"{CODE_PATH}/detector.py"]}
    if mounted_policy:
        env += [
            {"name": "LAB_PLATFORM_FILE", "value": f"{CODE_PATH}/platform.json"},
            {"name": "NVIDIA_PROC_PATH", "value": "/node/proc/driver/nvidia"},  # no runtime mounts inside /proc
        ]
        volumes += [
            {"name": "kmsg", "hostPath": {"path": "/dev/kmsg"}},
            {"name": "driver", "hostPath": {"path": "/proc/driver"}},
        ]
        mounts += [
            {"name": "kmsg", "mountPath": "/dev/kmsg", "readOnly": True},
            {"name": "driver", "mountPath": "/node/proc/driver", "readOnly": True},
        ]
        container["securityContext"] = {"privileged": True}
    return {
        "serviceAccountName": agent.name,
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{**container, "env": env, "volumeMounts": mounts}],
        "volumes": volumes,
    }
