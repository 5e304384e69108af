"""How objects end: grace, finalizers, preconditions, owners and dependents, namespaces and definitions."""

from collections.abc import Iterator

from chaos_gpu.lab.apiserver.admission import has_generation
from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.clock import rfc3339
from chaos_gpu.lab.apiserver.conversion import served
from chaos_gpu.lab.apiserver.resources import CRDS, JOBS, NAMESPACES, PODS, Key, Registry, Resource
from chaos_gpu.lab.apiserver.shapes import DELETE_OPTIONS, check
from chaos_gpu.lab.apiserver.status import (
    Json,
    bad_request,
    cause,
    conflict,
    forbidden,
    invalid,
    not_found,
    success,
)
from chaos_gpu.lab.apiserver.store import Name, Store, Stored

_PROTECTED = frozenset({"default", "kube-system", "kube-public"})
_FOREGROUND = "foregroundDeletion"
_POLICIES = ("Orphan", "Background", "Foreground")


def delete_options(bound: Bound, body: Json) -> Json:
    """Return the DeleteOptions of a request: its body, else its query.

    Raises:
        StatusError: 400, misshapen; 422, a value that is not known.
    """
    options = dict(check(body, DELETE_OPTIONS))
    query = bound.call.query
    grace = query.number("gracePeriodSeconds")
    if grace is not None:
        options.setdefault("gracePeriodSeconds", grace)
    if query.has("propagationPolicy"):
        options.setdefault("propagationPolicy", query.text("propagationPolicy"))
    if query.flag("orphanDependents") or options.get("orphanDependents"):
        options.setdefault("propagationPolicy", "Orphan")
    if bound.call.dry_run:
        options["dryRun"] = ["All"]
    policy = options.get("propagationPolicy")
    if policy not in (None, *_POLICIES):
        message = f"Unsupported value: {policy!r}: supported values: {', '.join(_POLICIES)}"
        found = cause("FieldValueNotSupported", message, "propagationPolicy")
        raise invalid("DeleteOptions", "meta.k8s.io", "", [found])
    return options


class Deleter:
    """Ends objects, and what belongs to them."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def delete(self, resource: Resource, namespace: str, name: str, options: Json) -> Json:
        """Begin, or finish, the deletion of one object; returns the body of the answer.

        Raises:
            StatusError: 403, protected; 404, not there; 409, a precondition does not hold.
        """
        stored = self._store.get(resource.key, namespace, name)
        if stored is None:
            raise not_found(resource.plural, resource.group, name)
        if resource.key == NAMESPACES and name in _PROTECTED:
            raise forbidden(resource.plural, resource.group, name, "this namespace may not be deleted")
        _check_preconditions(resource, stored, options)
        if options.get("dryRun"):
            return served(resource, stored.data)
        last = self._begin(resource, stored, options)
        left = self._store.get(resource.key, namespace, name)
        if left is not None or resource.key in (PODS, NAMESPACES):
            return served(resource, (left or last).data)
        uid = stored.data["metadata"]["uid"]
        return success(details={"name": name, "group": resource.group, "kind": resource.plural, "uid": uid})

    def finish(self, key: Key, namespace: str, name: str) -> None:
        """Remove an object whose deletion waits for nothing any more."""
        stored = self._store.get(key, namespace, name)
        if stored is not None and self._is_over(key, stored):
            self._remove(key, stored)

    def collect(self, resource: Resource, uid: str) -> None:
        """Delete an object none of whose owners is there: its owner ended while it was being made."""
        where = self._store.by_uid(uid)
        stored = self._store.get(where[0], *where[1]) if where else None
        owners = stored.data["metadata"].get("ownerReferences") if stored else None
        if stored and owners and not any(self._store.by_uid(owner["uid"]) for owner in owners):
            self._begin(resource, stored, {"propagationPolicy": "Background"})

    def _begin(self, resource: Resource, stored: Stored, options: Json) -> Stored:
        """Mark the object as being deleted, or remove it at once; returns its last known state."""
        key, (namespace, name) = resource.key, _name_of(stored)
        policy = options.get("propagationPolicy") or ("Orphan" if key == JOBS else "Background")
        uid = stored.data["metadata"]["uid"]
        if policy == "Orphan":
            self._orphan(uid)
        foreground = policy == "Foreground" and bool(self._store.dependents(uid))
        marked = _marked(resource, stored, options.get("gracePeriodSeconds"), foreground)
        meta = marked["metadata"]
        waits = meta.get("finalizers") or meta["deletionGracePeriodSeconds"] or key in (NAMESPACES, CRDS)
        if not waits:
            return self._remove(key, stored)
        if marked != stored.data:
            stored = self._store.put(key, marked)
        if foreground:
            self._delete_dependents(uid)
        self._empty(key, stored)
        self.finish(key, namespace, name)
        return stored

    def _empty(self, key: Key, stored: Stored) -> None:
        """Delete what is in a namespace, or what a definition defines."""
        if key == NAMESPACES:
            inside = self._store.in_namespace(stored.data["metadata"]["name"])
        elif key == CRDS:
            defined = (stored.data["spec"]["group"], stored.data["spec"]["names"]["plural"])
            inside = [(defined, instance) for instance in self._store.select(defined)]
        else:
            return
        for inner_key, inner in inside:
            if self._store.get(inner_key, *_name_of(inner)) is inner:
                self._begin(self._registry.of(inner_key), inner, {})

    def _is_over(self, key: Key, stored: Stored) -> bool:
        meta = stored.data["metadata"]
        if not meta.get("deletionTimestamp") or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
            return False
        if key == NAMESPACES:
            return not self._store.in_namespace(meta["name"])
        if key == CRDS:
            spec = stored.data["spec"]
            return not self._store.count((spec["group"], spec["names"]["plural"]))
        return True

    def _remove(self, key: Key, stored: Stored) -> Stored:
        namespace, name = _name_of(stored)
        gone = self._store.remove(key, namespace, name)
        if key == CRDS:
            self._registry.withdraw(gone.data["spec"]["group"], gone.data["spec"]["names"]["plural"])
        self._delete_dependents(gone.data["metadata"]["uid"])
        for owner_key, owner in self._waiting_owners(gone):
            self.finish(owner_key, *owner)
        if namespace:
            self.finish(NAMESPACES, "", namespace)
        elif definition := self._definition_of(key):
            self.finish(CRDS, "", definition)
        if namespace and (definition := self._definition_of(key)):
            self.finish(CRDS, "", definition)
        return gone

    def _definition_of(self, key: Key) -> str:
        return f"{key[1]}.{key[0]}" if key[0] else ""

    def _dependents(self, uid: str) -> Iterator[tuple[Key, Stored]]:
        for key, name in self._store.dependents(uid):
            dependent = self._store.get(key, *name)
            if dependent is not None:
                yield key, dependent

    def _delete_dependents(self, uid: str) -> None:
        """Delete what has no other living owner; for what has one, only the reference goes."""
        for key, dependent in self._dependents(uid):
            owners = dependent.data["metadata"]["ownerReferences"]
            if any(self._store.by_uid(owner["uid"]) for owner in owners if owner["uid"] != uid):
                self._disown(key, dependent, uid)
            elif not dependent.data["metadata"].get("deletionTimestamp"):
                self._begin(self._registry.of(key), dependent, {"propagationPolicy": "Background"})

    def _orphan(self, uid: str) -> None:
        for key, dependent in self._dependents(uid):
            self._disown(key, dependent, uid)

    def _disown(self, key: Key, dependent: Stored, uid: str) -> None:
        obj = dependent.thaw()
        left = [owner for owner in obj["metadata"]["ownerReferences"] if owner["uid"] != uid]
        obj["metadata"]["ownerReferences"] = left
        if not left:
            del obj["metadata"]["ownerReferences"]
        self._store.put(key, obj)

    def _waiting_owners(self, gone: Stored) -> list[tuple[Key, Name]]:
        """Free the owners that waited, in the foreground, for this dependent as their last; returns them."""
        freed = []
        for reference in gone.data["metadata"].get("ownerReferences") or ():
            where = self._store.by_uid(reference["uid"])
            owner = self._store.get(where[0], *where[1]) if where else None
            if where is None or owner is None or self._store.dependents(reference["uid"]):
                continue
            if _FOREGROUND in (owner.data["metadata"].get("finalizers") or ()):
                obj = owner.thaw()
                obj["metadata"]["finalizers"].remove(_FOREGROUND)
                self._store.put(where[0], obj)
                freed.append(where)
        return freed


def _name_of(stored: Stored) -> Name:
    meta = stored.data["metadata"]
    return (meta.get("namespace") or "", meta["name"])


def _check_preconditions(resource: Resource, stored: Stored, options: Json) -> None:
    meta = stored.data["metadata"]
    wanted = options.get("preconditions") or {}
    for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(field) and wanted[field] != meta[field]:
            why = (
                f"Precondition failed: {words} in precondition: {wanted[field]}, {words} in object meta: {meta[field]}"
            )
            raise conflict(resource.plural, resource.group, meta["name"], why)


def _marked(resource: Resource, stored: Stored, grace: int | None, foreground: bool) -> Json:
    """Return the object as it is while its deletion is under way; a later, shorter grace shortens it."""
    obj = stored.thaw()
    meta = obj["metadata"]
    seconds = pod_grace(obj, grace) if resource.key == PODS else 0
    if foreground and _FOREGROUND not in meta.setdefault("finalizers", []):
        meta["finalizers"].append(_FOREGROUND)
    if not meta.get("finalizers"):
        meta.pop("finalizers", None)
    if "deletionTimestamp" in meta and seconds >= (meta.get("deletionGracePeriodSeconds") or 0):
        return obj
    if "deletionTimestamp" not in meta and has_generation(resource):
        meta["generation"] = meta.get("generation", 1) + 1
    meta |= {"deletionTimestamp": rfc3339(later_s=seconds), "deletionGracePeriodSeconds": seconds}
    if resource.key == NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return obj


def pod_grace(pod: Json, asked: int | None) -> int:
    """Return how many seconds the kubelet has to end a pod; 0 for one that no kubelet runs.

    Raises:
        StatusError: 400, a negative time.
    """
    spec = pod.get("spec") or {}
    if asked is not None and asked < 0:
        raise bad_request("gracePeriodSeconds may not be negative")
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    grace: int = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return min(grace, 1 << 31)
