"""The shapes of objects that the server itself reads: hostile input is turned away before anything trusts it. Pure.

A shape is a type, `[shape]` for a list of such items, `{"*": shape}` for a map with any keys, or `{name: shape}` for an
object with these optional fields (others pass unseen); `Needs(shape, name…)` says which of them must be there.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from chaos_gpu.lab.apiserver.resources import Key, Resource
from chaos_gpu.lab.apiserver.status import Json, bad_request

Shape = Any
Quantity = (str, int, float)
MAX_DEPTH = 200

_TEXT_MAP = {"*": str}


class Needs(dict[str, Shape]):
    """The shape of an object some of whose fields must be there."""

    def __init__(self, shape: Mapping[str, Shape], *names: str) -> None:
        super().__init__(shape)
        self.names = names


_OWNER = Needs(
    {"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool, "blockOwnerDeletion": bool},
    "apiVersion",
    "kind",
    "name",
    "uid",
)
_ACCESS: Shape = {
    "resourceAttributes": _TEXT_MAP | {"fieldSelector": dict, "labelSelector": dict},
    "nonResourceAttributes": _TEXT_MAP,
}
METADATA: Shape = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "generation": int,
    "labels": _TEXT_MAP,
    "annotations": _TEXT_MAP,
    "finalizers": [str],
    "ownerReferences": [_OWNER],
    "managedFields": [{"manager": str, "operation": str, "apiVersion": str, "subresource": str, "fieldsV1": dict}],
}
_SELECTOR: Shape = {
    "matchLabels": _TEXT_MAP,
    "matchExpressions": [Needs({"key": str, "operator": str, "values": [str]}, "key", "operator")],
}
_CONTAINER: Shape = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "workingDir": str,
    "env": [{"name": str, "value": str, "valueFrom": dict}],
    "envFrom": [dict],
    "ports": [{"containerPort": int, "name": str, "protocol": str}],
    "resources": {"limits": {"*": Quantity}, "requests": {"*": Quantity}},
    "volumeMounts": [{"name": str, "mountPath": str, "subPath": str, "readOnly": bool}],
    "livenessProbe": dict,
    "readinessProbe": dict,
    "startupProbe": dict,
    "lifecycle": dict,
    "securityContext": dict,
    "stdin": bool,
    "tty": bool,
}
_VOLUME: Shape = {
    "name": str,
    "hostPath": {"path": str, "type": str},
    "configMap": {"name": str, "items": [dict], "optional": bool},
    "secret": {"secretName": str, "items": [dict], "optional": bool},
    "emptyDir": dict,
    "downwardAPI": {"items": [dict]},
    "projected": {"sources": [dict]},
}
POD_SPEC: Shape = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "volumes": [_VOLUME],
    "nodeName": str,
    "nodeSelector": _TEXT_MAP,
    "restartPolicy": str,
    "serviceAccountName": str,
    "automountServiceAccountToken": bool,
    "terminationGracePeriodSeconds": int,
    "activeDeadlineSeconds": int,
    "tolerations": [{"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}],
    "affinity": dict,
    "priorityClassName": str,
    "priority": int,
    "schedulerName": str,
    "schedulingGates": [{"name": str}],
    "hostNetwork": bool,
    "hostPID": bool,
    "imagePullSecrets": [dict],
    "securityContext": dict,
}
_TEMPLATE: Shape = {"metadata": METADATA, "spec": POD_SPEC}
_WORKLOAD: Shape = {"spec": {"replicas": int, "selector": _SELECTOR, "template": _TEMPLATE}}
_RULES: Shape = [
    {"apiGroups": [str], "resources": [str], "resourceNames": [str], "nonResourceURLs": [str], "verbs": [str]}
]
_ROLE: Shape = {"rules": _RULES}
_BINDING: Shape = {
    "subjects": [{"kind": str, "name": str, "namespace": str, "apiGroup": str}],
    "roleRef": {"apiGroup": str, "kind": str, "name": str},
}
_CONDITIONS: Shape = [{"type": str, "status": str}]
_CRD_VERSION: Shape = Needs(
    {
        "name": str,
        "served": bool,
        "storage": bool,
        "subresources": {"*": dict},
        "schema": {"openAPIV3Schema": dict},
        "additionalPrinterColumns": [
            Needs({"name": str, "type": str, "jsonPath": str, "priority": int}, "name", "type", "jsonPath")
        ],
        "selectableFields": [Needs({"jsonPath": str}, "jsonPath")],
    },
    "name",
)
_CRD_NAMES: Shape = Needs(
    {"plural": str, "kind": str, "singular": str, "shortNames": [str], "categories": [str]}, "plural", "kind"
)
_CRD_SPEC: Shape = Needs(
    {"group": str, "scope": str, "names": _CRD_NAMES, "versions": [_CRD_VERSION]},
    "group",
    "scope",
    "names",
    "versions",
)
_JOB: Shape = {
    "parallelism": int,
    "completions": int,
    "backoffLimit": int,
    "suspend": bool,
    "activeDeadlineSeconds": int,
    "ttlSecondsAfterFinished": int,
    "selector": _SELECTOR,
    "template": _TEMPLATE,
}
RBAC = "rbac.authorization.k8s.io"
SHAPES: Mapping[Key, Shape] = {
    ("", "pods"): {
        "spec": POD_SPEC,
        "status": {"phase": str, "conditions": _CONDITIONS, "containerStatuses": [dict], "podIP": str, "reason": str},
    },
    ("", "nodes"): {
        "spec": {"unschedulable": bool, "taints": [{"key": str, "value": str, "effect": str}]},
        "status": {"conditions": _CONDITIONS, "addresses": [dict], "capacity": {"*": Quantity}, "nodeInfo": dict},
    },
    ("", "configmaps"): {"data": _TEXT_MAP, "binaryData": _TEXT_MAP, "immutable": bool},
    ("", "secrets"): {"data": _TEXT_MAP, "stringData": _TEXT_MAP, "immutable": bool, "type": str},
    ("", "events"): {
        "involvedObject": _TEXT_MAP,
        "reason": str,
        "message": str,
        "type": str,
        "source": _TEXT_MAP,
        "count": int,
        "lastTimestamp": str,
        "eventTime": str,
        "series": {"count": int, "lastObservedTime": str},
    },
    ("", "namespaces"): {"spec": {"finalizers": [str]}, "status": {"phase": str}},
    ("apps", "deployments"): _WORKLOAD,
    ("apps", "replicasets"): _WORKLOAD,
    ("apps", "statefulsets"): _WORKLOAD,
    ("apps", "daemonsets"): _WORKLOAD,
    ("", "replicationcontrollers"): {"spec": {"replicas": int, "selector": _TEXT_MAP, "template": _TEMPLATE}},
    ("batch", "jobs"): {"spec": _JOB},
    ("batch", "cronjobs"): {"spec": {"schedule": str, "jobTemplate": {"metadata": METADATA, "spec": _JOB}}},
    ("coordination.k8s.io", "leases"): {
        "spec": {"holderIdentity": str, "leaseDurationSeconds": int, "acquireTime": str, "renewTime": str}
    },
    ("policy", "poddisruptionbudgets"): {
        "spec": {"selector": _SELECTOR, "minAvailable": (int, str), "maxUnavailable": (int, str)},
        "status": {"disruptionsAllowed": int},
    },
    ("scheduling.k8s.io", "priorityclasses"): {"value": int, "globalDefault": bool},
    ("apiextensions.k8s.io", "customresourcedefinitions"): Needs({"spec": _CRD_SPEC}, "spec"),
    (RBAC, "roles"): _ROLE,
    (RBAC, "clusterroles"): _ROLE,
    (RBAC, "rolebindings"): _BINDING,
    (RBAC, "clusterrolebindings"): _BINDING,
    ("authorization.k8s.io", "subjectaccessreviews"): {"spec": {**_ACCESS, "user": str, "groups": [str], "uid": str}},
    ("authorization.k8s.io", "selfsubjectaccessreviews"): {"spec": _ACCESS},
    ("authorization.k8s.io", "selfsubjectrulesreviews"): {"spec": {"namespace": str}},
}
DELETE_OPTIONS: Shape = {
    "gracePeriodSeconds": int,
    "propagationPolicy": str,
    "orphanDependents": bool,
    "preconditions": {"uid": str, "resourceVersion": str},
    "dryRun": [str],
}
EVICTION: Shape = {"metadata": METADATA, "deleteOptions": DELETE_OPTIONS}
BINDING: Shape = Needs({"metadata": METADATA, "target": Needs({"name": str}, "name")}, "target")
TOKEN_REQUEST: Shape = {"spec": {"expirationSeconds": int, "boundObjectRef": _TEXT_MAP, "audiences": [str]}}
SCALE: Shape = Needs({"metadata": METADATA, "spec": {"replicas": int}}, "spec")
_GENERAL: Shape = {"apiVersion": str, "kind": str, "metadata": METADATA}
_BUILT_IN: Shape = _GENERAL | {"spec": dict, "status": dict}


def check_object(resource: Resource, body: Any) -> Json:
    """Return the body if it is an object of this resource's shape.

    Raises:
        StatusError: 400, says where and what is wrong.
    """
    check(body, _GENERAL if resource.custom else _BUILT_IN)
    return check(body, SHAPES.get(resource.key, {}))


def check(body: Any, shape: Shape) -> Json:
    """Return the body if it is an object of that shape.

    Raises:
        StatusError: 400, says where and what is wrong.
    """
    if not isinstance(body, dict):
        raise bad_request(f"the body is {_said(body)}, not an object")
    for problem in misfits(body, shape, ""):
        raise bad_request(problem)
    return body


def misfits(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """Yield what does not fit the shape; null passes anywhere, as an absent field."""
    if value is None:
        return
    if isinstance(shape, dict):
        yield from _misfits_of_map(value, shape, path)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{path}: expected a list, found {_said(value)}"
            return
        for index, item in enumerate(value):
            if item is None:
                yield f"{path}[{index}]: null"
            yield from misfits(item, shape[0], f"{path}[{index}]")
    elif not isinstance(value, shape) or (isinstance(value, bool) and shape is not bool):
        yield f"{path}: expected {_wanted(shape)}, found {_said(value)}"


def _misfits_of_map(value: Any, shape: Mapping[str, Shape], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected an object, found {_said(value)}"
        return
    if isinstance(shape, Needs):
        yield from (f"{path}.{name}: required".lstrip(".") for name in shape.names if value.get(name) is None)
    if "*" in shape:
        fields = {name: shape.get(name, shape["*"]) for name in value}
    else:
        fields = {name: shape[name] for name in shape if name in value}
    for name, inner in fields.items():
        yield from misfits(value[name], inner, f"{path}.{name}".lstrip("."))


def without_nulls(value: Any) -> Any:
    """Return the value without null fields: a null is an absent field to a typed server."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
}


def _said(value: Any) -> str:
    return _NAMES.get(type(value), "null")


def _wanted(shape: Any) -> str:
    types = shape if isinstance(shape, tuple) else (shape,)
    return " or ".join(_NAMES[t] for t in types)
