"""What the platform team applies to the cluster: the gpu-health-agent with the least rights that it needs.

The same objects serve the lab and a real cluster: there the container's image must be a real one, the kernel log and
the driver's files come by hostPath, and the policy comes from `platform` instead of the lab's file.
"""

import json
import re
from pathlib import Path
from typing import Any

Json = dict[str, Any]

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
_OWN_IMPORT = re.compile(r"^from chaos_gpu\.\S+ import .*\n", re.MULTILINE)
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]


def agent_source() -> str:
    """Return the agent as one file that imports nothing of ours."""
    here = Path(__file__)
    detector = here.with_name("detector.py").read_text(encoding="utf-8")
    return here.with_name("records.py").read_text(encoding="utf-8") + _OWN_IMPORT.sub("", detector)


def platform_objects(platform: Json | None = None, image: str = IMAGE) -> list[Json]:
    """Return the platform's objects in the order to apply them.

    Args:
        platform: content of the platform file, for clusters where the kubelet does not bring it; it is then mounted.
        image: an image with python3.
    """
    data = {"detector.py": agent_source()} | ({"platform.json": json.dumps(platform)} if platform else {})
    names = {"name": AGENT, "namespace": NAMESPACE}
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names},
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": AGENT}, "rules": RULES},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": AGENT},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": AGENT},
            "subjects": [{"kind": "ServiceAccount", **names}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names, "data": data},
        _daemon_set(names, image, mounted_policy=platform is not None),
    ]


def _daemon_set(names: Json, image: str, *, mounted_policy: bool) -> Json:
    labels = {"app": AGENT}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            **names,
            "labels": {**labels, "chaos-gpu/detector": AGENT},
            "annotations": {"chaos-gpu/detector-profile": json.dumps(PROFILE)},
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod_spec(image, mounted_policy=mounted_policy)},
        },
    }


def _pod_spec(image: str, *, mounted_policy: bool) -> Json:
    env: list[Json] = [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    volumes: list[Json] = [{"name": "code", "configMap": {"name": AGENT}}]
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
        "serviceAccountName": AGENT,
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 1,
        "containers": [{**container, "env": env, "volumeMounts": mounts}],
        "volumes": volumes,
    }
