"""What a new object gets besides what its maker wrote: defaults, and what a real server's admission adds."""

import base64
from typing import Any

from chaos_gpu.lab.apiserver.resources import (
    CRDS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICE_ACCOUNTS,
    Resource,
)
from chaos_gpu.lab.apiserver.status import Json, forbidden
from chaos_gpu.lab.apiserver.store import Store

TOKEN_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_STATUS_AT_BIRTH = (NODES,)  # resources whose creator may write the status too
_QUIET = {("", "configmaps"), ("", "secrets"), ("", "serviceaccounts"), ("", "events"), NODES, NAMESPACES}


def has_generation(resource: Resource) -> bool:
    """Say whether metadata.generation counts the changes of this resource's spec."""
    return resource.key not in _QUIET and resource.group not in ("coordination.k8s.io", "rbac.authorization.k8s.io")


def prepare(resource: Resource, obj: Json, store: Store) -> None:
    """Complete an object that is to be made, in place; its metadata is complete already.

    Raises:
        StatusError: 403, it names a ServiceAccount or PriorityClass that is not there.
    """
    if "status" in resource.subresources and resource.key not in _STATUS_AT_BIRTH:
        obj.pop("status", None)
    if resource.key == PODS:
        _prepare_pod(obj, store)
    elif resource.key == JOBS:
        _prepare_job(obj)
    elif resource.key == NAMESPACES:
        obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        obj["status"] = {"phase": "Active"}
        _labels(obj)["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
    elif resource.key == CRDS:
        prepare_definition(obj)
    elif resource.key[0] == "apps" and resource.plural != "daemonsets":
        obj.setdefault("spec", {}).setdefault("replicas", 1)
    normalise(resource, obj)


def normalise(resource: Resource, obj: Json) -> None:
    """Bring an object, new or changed, into the form that is stored, in place."""
    if resource.key == ("", "secrets"):
        obj.setdefault("type", "Opaque")
        for name, text in (obj.pop("stringData", None) or {}).items():
            encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
            obj.setdefault("data", {})[name] = encoded


def _labels(obj: Json) -> Json:
    labels: Json = obj["metadata"].setdefault("labels", {})
    return labels


def prepare_definition(obj: Json) -> None:
    """Give a CustomResourceDefinition the status of one that is served, in place."""
    names = obj["spec"]["names"]
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", names["kind"] + "List")
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "Served",
            "message": "",
            "lastTransitionTime": obj["metadata"]["creationTimestamp"],
        }
        for kind in ("NamesAccepted", "Established")
    ]
    stored = [version["name"] for version in obj["spec"]["versions"] if version.get("storage")]
    obj["status"] = {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}


def _prepare_job(obj: Json) -> None:
    spec = obj.setdefault("spec", {})
    for field, value in (("parallelism", 1), ("completions", 1), ("backoffLimit", 6), ("suspend", False)):
        spec.setdefault(field, value)
    spec.setdefault("completionMode", "NonIndexed")
    if spec.get("manualSelector"):
        return
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels |= {f"{prefix}controller-uid": uid, f"{prefix}job-name": name}


def _prepare_pod(obj: Json, store: Store) -> None:
    spec = obj.setdefault("spec", {})
    for field, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("serviceAccountName", "default"),
        ("securityContext", {}),
        ("enableServiceLinks", True),
    ):
        spec.setdefault(field, value)
    spec["serviceAccount"] = spec["serviceAccountName"]
    _tolerate_short_outages(spec)
    _set_priority(obj, store)
    _mount_token(obj, store)
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        container.setdefault("resources", {})
        container.setdefault("imagePullPolicy", "IfNotPresent")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
    obj["status"] = {"phase": "Pending", "qosClass": _qos(spec)}


def _tolerate_short_outages(spec: Json) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(t.get("key") in (key, None) and t.get("effect") in ("NoExecute", None) for t in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _set_priority(obj: Json, store: Store) -> None:
    name = obj["spec"].get("priorityClassName")
    if not name:
        obj["spec"].setdefault("priority", 0)
        return
    chosen = store.get(PRIORITY_CLASSES, "", name)
    if chosen is None:
        raise forbidden("pods", "", obj["metadata"]["name"], f"no PriorityClass with name {name} was found")
    obj["spec"]["priority"] = chosen.data.get("value", 0)


def _mount_token(obj: Json, store: Store) -> None:
    """Mount the ServiceAccount's token as the real admission does; clients trip over pods without any volume."""
    spec, meta = obj["spec"], obj["metadata"]
    account = store.get(SERVICE_ACCOUNTS, meta["namespace"], spec["serviceAccountName"])
    if account is None:
        where = f"{meta['namespace']}/{spec['serviceAccountName']}"
        why = f'error looking up service account {where}: serviceaccount "{spec["serviceAccountName"]}" not found'
        raise forbidden("pods", "", meta["name"], why)
    wanted = spec.get("automountServiceAccountToken", account.data.get("automountServiceAccountToken", True))
    volumes: list[Any] = spec.setdefault("volumes", [])
    if not wanted or any(str(v.get("name")).startswith("kube-api-access-") for v in volumes):
        return
    name = f"kube-api-access-{meta['uid'][:5]}"
    token = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [token, {"downwardAPI": {"items": [namespace]}}]
    volumes.append({"name": name, "projected": {"sources": sources, "defaultMode": 420}})
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount.get("mountPath") == TOKEN_DIRECTORY for mount in mounts):
            mounts.append({"name": name, "readOnly": True, "mountPath": TOKEN_DIRECTORY})


def _qos(spec: Json) -> str:
    resources = [c.get("resources") or {} for c in spec.get("containers") or ()]
    if not any(r.get("requests") or r.get("limits") for r in resources):
        return "BestEffort"
    complete = all({"cpu", "memory"} <= (r.get("limits") or {}).keys() for r in resources)
    same = all((r.get("requests") or r.get("limits")) == r.get("limits") for r in resources)
    return "Guaranteed" if complete and same else "Burstable"
