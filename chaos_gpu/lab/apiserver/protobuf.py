"""Bodies that kubectl sends as protobuf: `create namespace|configmap|secret|job|…`, `auth can-i`, `create token`.

A table of the messages' fields, by number, and a reader of the wire format. What is not in the table is refused, never
dropped unseen. Field numbers: Kubernetes' generated.proto files. Pure.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from chaos_gpu.lab.apiserver.clock import rfc3339
from chaos_gpu.lab.apiserver.status import Json, StatusError, bad_request, unsupported_media

MAGIC = b"k8s\x00"
_MAX_DEPTH = 20

# number:name:type. A plain str, int or bool that is zero means absent; one with "*" is a pointer and counts as it is.
# [t] is repeated, {t} a map from strings. A kind of the API begins with its group.
_TABLES = """
Unknown: 1:typeMeta:TypeMeta 2:raw:raw 3:contentEncoding:str 4:contentType:str
TypeMeta: 1:apiVersion:str 2:kind:str
ObjectMeta: 1:name:str 2:generateName:str 3:namespace:str 4:selfLink:str 5:uid:str 6:resourceVersion:str
  7:generation:int 8:creationTimestamp:time 9:deletionTimestamp:time 10:deletionGracePeriodSeconds:int*
  11:labels:{str} 12:annotations:{str} 13:ownerReferences:[OwnerReference] 14:finalizers:[str]
OwnerReference: 1:kind:str 3:name:str 4:uid:str 5:apiVersion:str 6:controller:bool* 7:blockOwnerDeletion:bool*
ObjectReference: 1:kind:str 2:namespace:str 3:name:str 4:uid:str 5:apiVersion:str 6:resourceVersion:str
  7:fieldPath:str
LabelSelector: 1:matchLabels:{str} 2:matchExpressions:[LabelSelectorRequirement]
LabelSelectorRequirement: 1:key:str 2:operator:str 3:values:[str]
v1/Namespace: 1:metadata:ObjectMeta
v1/ConfigMap: 1:metadata:ObjectMeta 2:data:{str} 3:binaryData:{bytes} 4:immutable:bool*
v1/Secret: 1:metadata:ObjectMeta 2:data:{bytes} 3:type:str 4:stringData:{str} 5:immutable:bool*
v1/ServiceAccount: 1:metadata:ObjectMeta 4:automountServiceAccountToken:bool*
PodTemplateSpec: 1:metadata:ObjectMeta 2:spec:PodSpec
PodSpec: 2:containers:[Container] 3:restartPolicy:str 4:terminationGracePeriodSeconds:int*
  5:activeDeadlineSeconds:int* 6:dnsPolicy:str 7:nodeSelector:{str} 8:serviceAccountName:str
  9:serviceAccount:str 10:nodeName:str 11:hostNetwork:bool 12:hostPID:bool 13:hostIPC:bool 16:hostname:str
  17:subdomain:str 19:schedulerName:str
Container: 1:name:str 2:image:str 3:command:[str] 4:args:[str] 5:workingDir:str 6:ports:[ContainerPort]
  7:env:[EnvVar] 13:terminationMessagePath:str 14:imagePullPolicy:str 16:stdin:bool 17:stdinOnce:bool
  18:tty:bool 20:terminationMessagePolicy:str
ContainerPort: 1:name:str 2:hostPort:int 3:containerPort:int 4:protocol:str 5:hostIP:str
EnvVar: 1:name:str 2:value:str
apps/v1/Deployment: 1:metadata:ObjectMeta 2:spec:DeploymentSpec
DeploymentSpec: 1:replicas:int* 2:selector:LabelSelector 3:template:PodTemplateSpec 5:minReadySeconds:int
batch/v1/Job: 1:metadata:ObjectMeta 2:spec:JobSpec
JobSpec: 1:parallelism:int* 2:completions:int* 3:activeDeadlineSeconds:int* 4:selector:LabelSelector
  5:manualSelector:bool* 6:template:PodTemplateSpec 7:backoffLimit:int* 8:ttlSecondsAfterFinished:int*
  9:completionMode:str 10:suspend:bool*
policy/v1/PodDisruptionBudget: 1:metadata:ObjectMeta 2:spec:BudgetSpec
BudgetSpec: 1:minAvailable:IntOrString 2:selector:LabelSelector 3:maxUnavailable:IntOrString
IntOrString: 1:type:int 2:intVal:int 3:strVal:str
scheduling.k8s.io/v1/PriorityClass: 1:metadata:ObjectMeta 2:value:int* 3:globalDefault:bool 4:description:str
  5:preemptionPolicy:str
rbac.authorization.k8s.io/v1/Role: 1:metadata:ObjectMeta 2:rules:[PolicyRule]
rbac.authorization.k8s.io/v1/ClusterRole: 1:metadata:ObjectMeta 2:rules:[PolicyRule]
rbac.authorization.k8s.io/v1/RoleBinding: 1:metadata:ObjectMeta 2:subjects:[Subject] 3:roleRef:RoleRef
rbac.authorization.k8s.io/v1/ClusterRoleBinding: 1:metadata:ObjectMeta 2:subjects:[Subject] 3:roleRef:RoleRef
PolicyRule: 1:verbs:[str] 2:apiGroups:[str] 3:resources:[str] 4:resourceNames:[str] 5:nonResourceURLs:[str]
Subject: 1:kind:str 2:apiGroup:str 3:name:str 4:namespace:str
RoleRef: 1:apiGroup:str 2:kind:str 3:name:str
authentication.k8s.io/v1/TokenRequest: 1:metadata:ObjectMeta 2:spec:TokenRequestSpec
TokenRequestSpec: 1:audiences:[str] 3:boundObjectRef:BoundObjectReference 4:expirationSeconds:int*
BoundObjectReference: 1:kind:str 2:apiVersion:str 3:name:str 4:uid:str
authentication.k8s.io/v1/SelfSubjectReview: 1:metadata:ObjectMeta
authorization.k8s.io/v1/SelfSubjectAccessReview: 1:metadata:ObjectMeta 2:spec:AccessSpec
AccessSpec: 1:resourceAttributes:ResourceAttributes 2:nonResourceAttributes:NonResourceAttributes
ResourceAttributes: 1:namespace:str 2:verb:str 3:group:str 4:version:str 5:resource:str 6:subresource:str
  7:name:str
NonResourceAttributes: 1:path:str 2:verb:str
authorization.k8s.io/v1/SelfSubjectRulesReview: 1:metadata:ObjectMeta 2:spec:RulesSpec
RulesSpec: 1:namespace:str
"""
Field = tuple[str, str]  # name and type


def _parse_tables() -> dict[str, dict[int, Field]]:
    tables: dict[str, dict[int, Field]] = {}
    for line in _TABLES.strip().replace("\n  ", " ").splitlines():
        message, _, fields = line.partition(": ")
        rows = [field.split(":", 2) for field in fields.split()]
        tables[message] = {int(number): (name, kind) for number, name, kind in rows}
    return tables


def decode_protobuf(body: bytes) -> Json:
    """Return the object in a protobuf body.

    Raises:
        StatusError: 400, broken; 415, an object, or a field of one, that is not in the table.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body is not Kubernetes protobuf")
    tables = _parse_tables()
    try:
        outer = _Reader(tables).message("Unknown", body[len(MAGIC) :])
        kind = outer.get("typeMeta", {})
        name = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"
        if "/" not in name.strip("/") or name not in tables:
            raise not_read(name)
        return {**kind, **_Reader(tables).message(name, outer.get("raw", b""))}
    except (IndexError, UnicodeDecodeError, OverflowError, ValueError) as e:
        raise bad_request(f"the protobuf body is broken: {e}") from e


def not_read(what: str) -> StatusError:
    """415: say how to send it instead."""
    hint = "the lab reads JSON: kubectl … --dry-run=client -o yaml | kubectl apply -f -"
    return unsupported_media(f"{what} as protobuf is not read here; {hint}")


class _Reader:
    """Reads messages by their tables."""

    def __init__(self, tables: dict[str, dict[int, Field]]) -> None:
        self._tables = tables

    def message(self, name: str, data: bytes, depth: int = 0) -> Json:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        found: Json = {}
        for number, value in _fields(data):
            if number not in self._tables[name]:
                if value not in (b"", 0) and _has_content(value):
                    raise not_read(f"field {number} of {name}")
                continue
            field, kind = self._tables[name][number]
            self._add(found, field, kind, value, depth)
        return found

    def _add(self, found: Json, field: str, kind: str, value: bytes | int, depth: int) -> None:
        if kind.startswith("["):
            found.setdefault(field, []).append(self._value(kind[1:-1], value, depth))
        elif kind.startswith("{"):
            entry = dict(_fields(_bytes(value)))
            key = _bytes(entry.get(1, b"")).decode()
            found.setdefault(field, {})[key] = self._value(kind[1:-1], entry.get(2, b""), depth)
        else:
            decoded = self._value(kind.rstrip("*"), value, depth)
            if kind.endswith("*") or decoded not in ("", 0, False, None) or kind == "IntOrString":
                found[field] = decoded

    def _value(self, kind: str, value: bytes | int, depth: int) -> Any:
        if kind in ("int", "bool"):
            number = _int(value)
            return bool(number) if kind == "bool" else number
        data = _bytes(value)
        if kind == "str":
            return data.decode()
        if kind == "raw":
            return data
        if kind == "bytes":
            return base64.b64encode(data).decode()
        if kind == "time":
            seconds = _int(dict(_fields(data)).get(1, 0))
            return rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds else None
        inner = self.message(kind, data, depth + 1)
        if kind == "IntOrString":
            return inner.get("strVal", "") if inner.get("type") else inner.get("intVal", 0)
        return inner


def _has_content(value: bytes | int) -> bool:
    """Say whether a field says anything; Go writes zero values and empty messages too."""
    if isinstance(value, int):
        return value != 0
    try:
        return any(_has_content(inner) for _, inner in _fields(value))
    except (IndexError, ValueError):
        return True


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the fields of a message: numbers, and what they hold."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if number == 0 or at + size > len(data):
            raise ValueError("cut short")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without end")


def _bytes(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes belong")
    return value


def _int(value: bytes | int) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value
