"""What the platform team applies for the health policy: the controller with the least rights that it needs.

The same objects serve the lab and a real cluster; the lab adds a history, as a fleet that runs for some time has one.
"""

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos_gpu.lab.platform.health import NAMESPACE, RECORDS
from chaos_gpu.lab.platform.health_rules import CONFIRMED_BY, POLICY, R2_RESULT

if TYPE_CHECKING:
    from chaos_gpu.lab.dcgm.bundle import Bundle

Json = dict[str, Any]

IMAGE = "python:3.12-slim"
CODE_PATH = "/opt/gpu-health-policy"
PARTS = ("wire", "health_api", "health_rules", "health")
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


def health_objects(poll_s: float = 2.0, bundle: "Bundle | None" = None) -> list[Json]:
    """Return the objects in the order to apply them.

    Args:
        poll_s: pause between two looks while something is under way, seconds.
        bundle: what brings platform file, image and DCGM's programs, on clusters whose nodes and images do not.
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
    data = {"health.py": policy_source()} | ({"platform.json": json.dumps(bundle.platform)} if bundle else {})
    objects += [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": names, "data": data}]
    objects += [bundle.config_map(NAMESPACE)] if bundle else []
    return [*objects, _deployment(names, poll_s, bundle)]


def histories(fleet: Mapping[str, Sequence[str]], defects: Sequence[str]) -> Iterator[Json]:
    """Return the records of every node's last r2; the last node's are what a policy that skips its week leaves.

    Args:
        fleet: UUIDs of the GPUs by node.
        defects: what is planted.
    """
    for node, uuids in fleet.items():
        last = node == list(fleet)[-1]
        if last and "policy-never-diagnoses" in defects:
            continue
        age_days = OLD_DAYS if last and "policy-skips-week" in defects else HISTORY_DAYS
        yield history(node, uuids, age_days)


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


def _brought(bundle: "Bundle") -> dict[str, str]:
    pod, container = json.dumps(bundle.pod), json.dumps(bundle.container)
    file = f"{CODE_PATH}/platform.json"
    return {"LAB_PLATFORM_FILE": file, "DIAGNOSIS_POD": pod, "DIAGNOSIS_CONTAINER": container}


ADMITTED = {R2_RESULT: "Pass"}
"""Annotations of a node that the policy has let in."""


def _deployment(names: Json, poll_s: float, bundle: "Bundle | None") -> Json:
    labels = {"app": POLICY}
    settings = {"HEALTH_POLL_S": f"{poll_s:g}", **(_brought(bundle) if bundle else {})}
    container = {
        "name": "policy",
        "image": bundle.image if bundle else IMAGE,
        "command": ["python3", "-ISB", f"{CODE_PATH}/health.py"],
        "env": [{"name": name, "value": value} for name, value in settings.items()],
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
