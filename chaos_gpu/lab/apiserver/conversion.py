"""One object, two shapes: an Event in core/v1 and in events.k8s.io/v1; a custom resource in several versions. Pure.

Events are kept in the core shape. Custom resources are kept as written; versions differ in apiVersion only, as with the
conversion strategy None.
"""

from chaos_gpu.lab.apiserver.resources import EVENTS, Resource
from chaos_gpu.lab.apiserver.status import Json
from chaos_gpu.lab.apiserver.store import Stored, dump

_CORE_TO_V1 = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_V1_TO_CORE = {v: k for k, v in _CORE_TO_V1.items()}


def served(resource: Resource, data: Json) -> Json:
    """Return a stored object as this resource shows it; shares what is the same."""
    if data.get("apiVersion") == resource.api_version and data.get("kind") == resource.kind:
        return data
    shown = _renamed(data, _CORE_TO_V1) if _events_v1(resource) else data
    return _typed(resource.api_version, resource.kind, shown)


def served_raw(resource: Resource, stored: Stored) -> bytes:
    """Return a stored object, encoded, as this resource shows it."""
    shown = served(resource, stored.data)
    return stored.raw if shown is stored.data else dump(shown)


def kept(resource: Resource, body: Json) -> Json:
    """Return what is to be stored of an object sent to this resource."""
    if not _events_v1(resource):
        return _typed(resource.api_version, resource.kind, body)
    return _typed("v1", "Event", _renamed(body, _V1_TO_CORE))


def _typed(api_version: str, kind: str, data: Json) -> Json:
    about = {"apiVersion": api_version, "kind": kind}
    return about | data | about


def _events_v1(resource: Resource) -> bool:
    return resource.key == EVENTS and resource.group != ""


def _renamed(data: Json, names: dict[str, str]) -> Json:
    return {names.get(field, field): value for field, value in data.items()}
