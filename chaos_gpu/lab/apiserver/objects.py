"""Objects made and changed: the way from a request's body to what is stored."""

import random
import string
from typing import Any
from uuid import uuid4

from chaos_gpu.lab.apiserver.admission import has_generation, normalise, prepare, prepare_definition
from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.clock import rfc3339
from chaos_gpu.lab.apiserver.conversion import kept, served
from chaos_gpu.lab.apiserver.deletion import Deleter
from chaos_gpu.lab.apiserver.fields import ListKeys, built_in_keys, schema_keys
from chaos_gpu.lab.apiserver.managers import Manager, apply, record_update
from chaos_gpu.lab.apiserver.patches import json_patch, merge_patch, strategic_merge
from chaos_gpu.lab.apiserver.resources import (
    CRDS,
    EVENTS,
    LEASES,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    Key,
    Registry,
    Resource,
    custom_resources,
)
from chaos_gpu.lab.apiserver.shapes import METADATA, SCALE, check, check_object, without_nulls
from chaos_gpu.lab.apiserver.status import (
    Json,
    StatusError,
    already_exists,
    bad_request,
    cause,
    conflict,
    forbidden,
    method_not_allowed,
    not_found,
    unsupported_media,
)
from chaos_gpu.lab.apiserver.store import Store, Stored
from chaos_gpu.lab.apiserver.validation import check_changed, check_new

_SYSTEM_FIELDS = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "generateName",
)
_MADE_BY_PUT: tuple[Key, ...] = (LEASES, EVENTS, ("", "endpoints"))
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Objects:
    """Creates and changes objects; reads are served from the store itself."""

    def __init__(self, store: Store, registry: Registry, deleter: Deleter) -> None:
        self._store = store
        self._registry = registry
        self._deleter = deleter

    def need(self, resource: Resource, namespace: str, name: str) -> Stored:
        """Return an object.

        Raises:
            StatusError: 404, not there.
        """
        stored = self._store.get(resource.key, namespace, name)
        if stored is None:
            raise not_found(resource.plural, resource.group, name)
        return stored

    def create(self, bound: Bound, body: Json) -> Json:
        """Make an object; returns it as stored.

        Raises:
            StatusError: 400, misshapen; 403, 404, its namespace ends or is not there; 409, exists; 422, not valid.
        """
        if bound.resource.namespaced and not bound.namespace:
            raise method_not_allowed()
        obj = self._named(bound, _incoming(bound.resource, body))
        if obj["metadata"].get("resourceVersion"):
            raise StatusError(500, "InternalError", "resourceVersion should not be set on objects to be created")
        obj["metadata"].pop("managedFields", None)
        self._complete(bound, obj)
        record_update(None, obj, _manager(bound, "Update"), _list_keys(bound.resource))
        return self._add(bound, obj)

    def replace(self, bound: Bound, body: Json) -> Json:
        """Put an object in the place of the one there (for leases, events, endpoints: or make it).

        Raises:
            StatusError: 400, misshapen; 404, not there; 409, changed since it was read; 422, not valid.
        """
        stored = self._store.get(bound.resource.key, bound.namespace, bound.name)
        if stored is None and bound.resource.key in _MADE_BY_PUT and not _revision_of(body):
            return self.create(bound, body)
        stored = self.need(bound.resource, bound.namespace, bound.name)
        if bound.call.target.subresource == "scale":
            return self._rescale(bound, stored, check(body, SCALE))
        return self._change(bound, stored, _incoming(bound.resource, body))

    def patch(self, bound: Bound, media_type: str, body: Any) -> Json:
        """Change parts of an object; server-side apply may also make it.

        Raises:
            StatusError: 400, misshapen; 404, not there; 409, a conflict; 415, no such patch; 422, it does not apply.
        """
        if media_type == APPLY_PATCH:
            return self._apply(bound, body)
        if media_type not in _accepted(bound.resource):
            told = ", ".join((*_accepted(bound.resource), APPLY_PATCH))
            raise unsupported_media(f"the patch is in an unknown format; accepted media types include: {told}")
        stored = self.need(bound.resource, bound.namespace, bound.name)
        scaled = bound.call.target.subresource == "scale"
        base = scale_of(bound.resource, stored.data) if scaled else served(bound.resource, stored.data)
        result = _patched(media_type, base, body)
        if scaled:
            return self._rescale(bound, stored, check(result, SCALE))
        return self._change(bound, stored, _incoming(bound.resource, result))

    def bind(self, bound: Bound, node: str) -> None:
        """Schedule a pod onto a node.

        Raises:
            StatusError: 404, no such pod; 409, it is on a node already.
        """
        stored = self.need(bound.resource, bound.namespace, bound.name)
        if stored.data["spec"].get("nodeName"):
            where = stored.data["spec"]["nodeName"]
            why = f"pod {bound.name} is already assigned to node {where!r}"
            raise conflict(bound.resource.plural, bound.resource.group, bound.name, why)
        obj = stored.thaw()
        obj["spec"]["nodeName"] = node
        status = obj.setdefault("status", {})
        others = [c for c in status.get("conditions") or () if c["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339()}
        status["conditions"] = [*others, scheduled]
        if not bound.call.dry_run:
            self._store.put(bound.resource.key, obj)

    def _apply(self, bound: Bound, body: Any) -> Json:
        if not bound.call.query.has("fieldManager"):
            raise bad_request("server-side apply needs the parameter fieldManager")
        if bound.call.target.subresource == "scale":
            raise unsupported_media("server-side apply of a scale is not served")
        resource = bound.resource
        applied = self._named(bound, _incoming(resource, body))
        if applied["metadata"].pop("managedFields", None):
            raise bad_request("metadata.managedFields must be nil")
        stored = self._store.get(resource.key, bound.namespace, bound.name)
        manager = _manager(bound, "Apply")
        force = bound.call.query.flag("force")
        if bound.call.target.subresource == "status":
            applied = {k: v for k, v in applied.items() if k != "spec"}
        elif "status" in resource.subresources:
            applied.pop("status", None)
        live = stored.thaw() if stored else None
        result = apply(live, applied, manager, _list_keys(resource), force=force)
        if stored is not None:
            return self._change(bound, stored, result, applied=True)
        if bound.call.target.subresource:
            raise not_found(resource.plural, resource.group, bound.name)
        self._complete(bound, result)
        return self._add(bound, result)

    def _named(self, bound: Bound, obj: Json) -> Json:
        """Give the object the name and namespace of the request's path."""
        meta = obj.setdefault("metadata", {})
        name, namespace = bound.name, bound.namespace
        if name and meta.setdefault("name", name) != name:
            raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
        if bound.resource.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise bad_request("the namespace of the object does not match the namespace on the URL")
        else:
            meta.pop("namespace", None)
        return obj

    def _complete(self, bound: Bound, obj: Json) -> None:
        """Make a new object whole and check it."""
        resource, meta = bound.resource, obj["metadata"]
        self._check_namespace(bound)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._new_name(resource, bound.namespace, meta["generateName"])
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            meta.pop(field, None)
        meta |= {"uid": str(uuid4()), "creationTimestamp": rfc3339()}
        if has_generation(resource):
            meta["generation"] = 1
        meta.setdefault("name", "")
        if self._store.get(resource.key, bound.namespace, meta["name"]):
            raise already_exists(resource.plural, resource.group, meta["name"])
        prepare(resource, obj, self._store)
        check_new(resource, obj)

    def _check_namespace(self, bound: Bound) -> None:
        if not bound.resource.namespaced:
            return
        namespace = self._store.get(NAMESPACES, "", bound.namespace)
        if namespace is None:
            raise not_found("namespaces", "", bound.namespace)
        if namespace.data["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {bound.namespace} because it is being terminated"
            error = forbidden(bound.resource.plural, bound.resource.group, bound.name, why)
            error.details["causes"] = [cause("NamespaceTerminating", why, "metadata.namespace")]
            raise error

    def _new_name(self, resource: Resource, namespace: str, base: str) -> str:
        name = base
        for _ in range(8):
            name = base[:58] + "".join(random.choices(string.ascii_lowercase + string.digits, k=5))  # noqa: S311 - a name
            if self._store.get(resource.key, namespace, name) is None:
                break
        return name

    def _add(self, bound: Bound, obj: Json) -> Json:
        if bound.call.dry_run:
            return obj
        data = self._store.put(bound.resource.key, obj).data
        if bound.resource.key == CRDS:
            self._registry.serve(custom_resources(data))
        elif bound.resource.key == NAMESPACES:
            self._give_account(data["metadata"]["name"])
        return data

    def _give_account(self, namespace: str) -> None:
        """Make the ServiceAccount that pods of a namespace have by default."""
        if self._store.get(SERVICE_ACCOUNTS, namespace, "default") is None:
            meta = {"name": "default", "namespace": namespace, "uid": str(uuid4()), "creationTimestamp": rfc3339()}
            self._store.put(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})

    def _rescale(self, bound: Bound, stored: Stored, scale: Json) -> Json:
        _check_unchanged(bound, stored, scale.get("metadata") or {})
        spec = {**(stored.data.get("spec") or {}), "replicas": (scale["spec"] or {}).get("replicas", 0)}
        obj = stored.thaw() | {"spec": spec}
        return scale_of(bound.resource, self._store_change(bound, stored, obj))

    def _change(self, bound: Bound, stored: Stored, new: Json, *, applied: bool = False) -> Json:
        """Put a changed object in the place of the stored one, as far as the request may change it."""
        _check_unchanged(bound, stored, self._named(bound, new)["metadata"])
        obj = _within_reach(bound, stored.thaw(), new, managed=applied)
        return self._store_change(bound, stored, obj, applied=applied)

    def _store_change(self, bound: Bound, stored: Stored, obj: Json, *, applied: bool = False) -> Json:
        resource, meta = bound.resource, obj["metadata"]
        normalise(resource, obj)
        if resource.key == CRDS and bound.call.target.subresource != "status":
            prepare_definition(obj)
        check_changed(resource, stored.data, obj)
        if has_generation(resource) and _counted(stored.data) != _counted(obj):
            meta["generation"] = meta.get("generation", 0) + 1
        if not applied:
            record_update(stored.data, obj, _manager(bound, "Update"), _list_keys(resource))
        if bound.call.dry_run or obj == stored.data:
            return obj
        data = self._store.put(resource.key, obj).data
        if resource.key == CRDS:
            self._registry.serve(custom_resources(data))
        self._deleter.finish(resource.key, bound.namespace, bound.name)
        return data


def _counted(obj: Json) -> Json:
    return {k: v for k, v in obj.items() if k not in ("metadata", "status")}


def _accepted(resource: Resource) -> tuple[str, ...]:
    return (JSON_PATCH, MERGE_PATCH) if resource.custom else (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)


def _patched(media_type: str, base: Json, body: Any) -> Any:
    if media_type == JSON_PATCH:
        return json_patch(base, body)
    if not isinstance(body, dict):
        raise bad_request("the patch is not an object")
    return merge_patch(base, body) if media_type == MERGE_PATCH else strategic_merge(base, body)


def _list_keys(resource: Resource) -> ListKeys:
    return schema_keys(resource.schema) if resource.custom else built_in_keys


def _manager(bound: Bound, operation: str) -> Manager:
    return Manager(bound.call.manager, operation, bound.resource.api_version, bound.call.target.subresource)


def _incoming(resource: Resource, body: Any) -> Json:
    """Return what a client sent in the form in which it is kept, once its shape is right."""
    body = check(body, {"apiVersion": str, "kind": str, "metadata": METADATA})
    for field, wanted in (("kind", resource.kind), ("apiVersion", resource.api_version)):
        if body.get(field) not in (None, "", wanted):
            raise bad_request(f"the object's {field} is {body[field]!r}, this path takes {wanted!r}")
    return check_object(resource, kept(resource, without_nulls(body)))


def _revision_of(body: Any) -> str:
    meta = body.get("metadata") if isinstance(body, dict) else None
    return str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""


def _check_unchanged(bound: Bound, stored: Stored, meta: Json) -> None:
    """Raise 409 if the client's object is not the one that is stored."""
    have, resource = stored.data["metadata"], bound.resource
    if meta.get("resourceVersion") not in (None, "", have["resourceVersion"]):
        why = "the object has been modified; please apply your changes to the latest version and try again"
        raise conflict(resource.plural, resource.group, bound.name, why)
    if meta.get("uid") not in (None, "", have["uid"]):
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {have['uid']}"
        raise conflict(resource.plural, resource.group, bound.name, why)


def _within_reach(bound: Bound, old: Json, new: Json, *, managed: bool) -> Json:
    """Return the new object, except for what this request may not change: the system's fields, the other half.

    `old` is a copy and is used up.
    """
    subresource = bound.call.target.subresource
    managed_fields = new["metadata"].get("managedFields")
    if subresource == "status":
        obj = {**old, "status": new.get("status") or {}}
    else:
        obj = dict(new)
        if "status" in bound.resource.subresources:
            obj.pop("status", None)
            obj |= {"status": old["status"]} if "status" in old else {}
        system = {k: v for k, v in old["metadata"].items() if k in _SYSTEM_FIELDS}
        asked = {k: v for k, v in new["metadata"].items() if k not in _SYSTEM_FIELDS}
        obj["metadata"] = {**system, **asked}
    if managed:
        obj["metadata"]["managedFields"] = managed_fields
    return obj


def scale_of(resource: Resource, obj: Json) -> Json:
    """Return the Scale of a Deployment, ReplicaSet, StatefulSet or other scalable object."""
    meta = obj["metadata"]
    shown = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    selector = (obj.get("spec") or {}).get("selector") or {}
    labels = selector.get("matchLabels", {}) if resource.group else selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: meta[k] for k in shown if k in meta},
        "spec": {"replicas": (obj.get("spec") or {}).get("replicas", 1)},
        "status": {
            "replicas": (obj.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{k}={v}" for k, v in labels.items()),
        },
    }
