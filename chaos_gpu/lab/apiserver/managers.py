"""Who set what: keeps metadata.managedFields, and applies configurations for their managers. Pure."""

from typing import Any, NamedTuple

from chaos_gpu.lab.apiserver.clock import rfc3339
from chaos_gpu.lab.apiserver.fields import (
    FieldSet,
    ListKeys,
    Path,
    conflict_error,
    conflicts,
    from_fields_v1,
    leaves,
    merge_applied,
    to_fields_v1,
    without,
)
from chaos_gpu.lab.apiserver.status import Json


class Manager(NamedTuple):
    """Who changes an object, and how."""

    name: str
    operation: str  # Apply or Update
    api_version: str
    subresource: str = ""


Owned = dict[Manager, FieldSet]


def owned_fields(obj: Json) -> Owned:
    """Read metadata.managedFields."""
    return {
        Manager(
            entry.get("manager", ""),
            entry.get("operation", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        ): from_fields_v1(entry.get("fieldsV1"))
        for entry in obj["metadata"].get("managedFields") or ()
    }


def write_owned(obj: Json, owned: Owned, times: dict[Manager, Any], changed: Manager) -> None:
    """Write metadata.managedFields, in place; the manager that changed something gets the time now."""
    obj["metadata"]["managedFields"] = [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": rfc3339() if manager == changed else times.get(manager) or rfc3339(),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(fields),
        }
        | ({"subresource": manager.subresource} if manager.subresource else {})
        for manager, fields in owned.items()
        if fields
    ]


def _times(obj: Json) -> dict[Manager, Any]:
    entries = obj["metadata"].get("managedFields") or ()
    return dict(zip(owned_fields(obj), (entry.get("time") for entry in entries), strict=False))


def record_update(old: Json | None, new: Json, manager: Manager, list_keys: ListKeys) -> None:
    """Note in `new` that the manager set the fields in which it differs from `old`, in place."""
    before = leaves(old, list_keys) if old else {}
    after = leaves(new, list_keys)
    touched = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    if old is not None and not touched and before.keys() == after.keys():
        new["metadata"]["managedFields"] = old["metadata"].get("managedFields") or []
        return
    owned = {who: (fields & after.keys()) - touched for who, fields in owned_fields(old or new).items()}
    owned[manager] = owned.get(manager, frozenset()) | touched
    write_owned(new, owned, _times(old or new), manager)


def apply(live: Json | None, applied: Json, manager: Manager, list_keys: ListKeys, *, force: bool) -> Json:
    """Return the object that server-side apply makes of the live one (None: of nothing).

    Args:
        live: the object now; not changed.
        applied: the manager's whole configuration.
        manager: who applies.
        list_keys: how lists are keyed in this resource.
        force: take over fields that others hold.

    Raises:
        StatusError: 409, other managers hold fields with other values.
    """
    wanted = leaves(applied, list_keys)
    base: Json = live or {"metadata": {}}
    owned = owned_fields(base)
    others = {who: fields for who, fields in owned.items() if who != manager}
    found = conflicts([(who.name, fields) for who, fields in others.items()], leaves(base, list_keys), wanted)
    if found and not force:
        raise conflict_error(found)
    taken = frozenset(path for _, path in found)
    others = {who: fields - taken for who, fields in others.items()}
    abandoned = _abandoned(owned.get(manager, frozenset()), frozenset(wanted), others)
    merged: Json = merge_applied(without(base, abandoned, list_keys), applied, list_keys)
    now_owned = {**others, manager: frozenset(wanted)}
    if now_owned != owned or merged != base:
        write_owned(merged, now_owned, _times(base), manager)
    return merged


def _abandoned(had: FieldSet, wanted: FieldSet, others: Owned) -> FieldSet:
    """Return what the manager no longer wants and nobody else holds, neither itself nor anything below it."""
    held = wanted.union(*others.values())
    above: set[Path] = {path[:n] for path in held for n in range(1, len(path) + 1)}
    return frozenset(path for path in had if path not in above)
