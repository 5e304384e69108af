"""What the platform team applies for the health policy: the controller with the least rights that it needs.

The same objects serve the lab and a real cluster; the lab adds a history, as a fleet that runs for some time has one.
"""

import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos_gpu.lab.platform.health import NAMESPACE, RECORDS
from chaos_gpu.lab.platform.health_rules import CONFIRMED_BY, POLICY, R2_RESULT

Json = dict[str, Any]

IMAGE = "python:3.12-slim"
CODE_PATH = "/opt/gpu-health-policy"
PARTS = ("health_api", "health_rules", "health")
RBAC = "rbac.authorization.k8s.io"
HISTORY_DAYS, OLD_DAYS = 3.0, 8.0
"""How old the fleet's last r2 is when the lab starts, and on the node that the policy skips."""
CLUSTER_RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]
OWN_RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "list", "patch"]},
]
SOURCE = {
    "kubernetes": f"/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector={RECORDS.replace('/', '%2F')}%3Dtrue",
    "items": "$.items[*].data.*",
}
"""How chaos_gpu finds this platform's records: the value of CHAOS_GPU_RECORDS."""
MARK_OF_ADMISSION = {"key": R2_RESULT, "confirmed": CONFIRMED_BY}
"""How chaos_gpu finds this platform's mark on a node: the value of CHAOS_GPU_ADMISSION."""
_OWN_IMPORT = re.compile(r"^from chaos_gpu\.\S+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)


def policy_source() -> str:
    """Return the controller as one file that imports nothing of ours."""
    here = Path(__file__)
    parts = (here.with_name(f"{name}.py").read_text(encoding="utf-8") for name in PARTS)
    return "\n\n".join(_OWN_IMPORT.sub("", part) for part in parts)


def health_objects(image: str = IMAGE, poll_s: float = 2.0) -> list[Json]:
    """Return the objects in the order to apply them.

    Args:
        image: one with python3.
        poll_s: pause between two looks while something is under way, seconds.
    """
    names = {"name": POLICY, "namespace": NAMESPACE}
    subjects = [{"kind": "ServiceAccount", **names}]
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": names},
    ]
    for kind, meta, rules in (("ClusterRole", {"name": POLICY}, CLUSTER_RULES), ("Role", names, OWN_RULES)):
        reference = {"apiGroup": RBAC, "kind": kind, "name": POLICY}
        objects.append({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules})
        binding = {"apiVersion": f"{RBAC}/v1", "kind": f"{kind}Binding", "metadata": meta}
        objects.append({**binding, "roleRef": reference, "subjects": subjects})
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names, "data": {"health.py": policy_source()}}
    return [*objects, code, _deployment(names, image, poll_s)]


def history(node: str, uuids: Sequence[str], age_days: float) -> Json:
    """Return the records of a node's last r2, as the controller keeps them.

    Args:
        node: its name.
        uuids: of its GPUs.
        age_days: how long ago it ended.
    """
    ended = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=age_days)
    started = ended - datetime.timedelta(minutes=2)
    record = {"node": node, "level": "r2", "result": "Pass", "action": "return"}
    record |= {"started_at": started.isoformat(), "ended_at": ended.isoformat()}
    data = {f"0-{index}": json.dumps({**record, "gpu_uuid": uuid}) for index, uuid in enumerate(uuids)}
    meta = {"name": f"health-records-{node}", "namespace": NAMESPACE, "labels": {RECORDS: "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


ADMITTED = {R2_RESULT: "Pass"}
"""Annotations of a node that the policy has let in."""


def _deployment(names: Json, image: str, poll_s: float) -> Json:
    labels = {"app": POLICY}
    container = {
        "name": "policy",
        "image": image,
        "command": ["python3", "-ISB", f"{CODE_PATH}/health.py"],
        "env": [{"name": "HEALTH_POLL_S", "value": f"{poll_s:g}"}],
        "volumeMounts": [{"name": "code", "mountPath": CODE_PATH, "readOnly": True}],
    }
    spec = {
        "serviceAccountName": POLICY,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "code", "configMap": {"name": POLICY}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**names, "labels": {**labels, "chaos-gpu/remediator": "cordon"}},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
