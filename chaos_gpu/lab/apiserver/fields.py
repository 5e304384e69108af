"""Field ownership: which manager set which field, and server-side apply. Pure.

A field set is a set of paths; a path is a tuple of steps as `fieldsV1` writes them: `f:spec`, `k:{"name":"main"}` for
an item of a keyed list, `v:"x"` for one of a set. Ownership is tracked to the leaves; a list without a key is one leaf.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from chaos_gpu.lab.apiserver.status import Json, StatusError, cause

Path = tuple[str, ...]
FieldSet = frozenset[Path]
ListKeys = Callable[[Path, list[Any]], tuple[str, ...] | None]  # keys of a list; () a set; None one leaf

_NOT_OWNED = {
    ("f:apiVersion",),
    ("f:kind",),
    *(("f:metadata", f"f:{name}") for name in ("name", "namespace", "uid", "resourceVersion", "generation")),
    *(("f:metadata", f"f:{name}") for name in ("creationTimestamp", "deletionTimestamp", "managedFields")),
    ("f:metadata", "f:deletionGracePeriodSeconds"),
}
_LIST_KEYS: dict[str, tuple[str, ...]] = {
    "f:conditions": ("type",),
    "f:containers": ("name",),
    "f:env": ("name",),
    "f:finalizers": (),
    "f:hostAliases": ("ip",),
    "f:imagePullSecrets": ("name",),
    "f:initContainers": ("name",),
    "f:ownerReferences": ("uid",),
    "f:topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "f:volumeMounts": ("mountPath",),
    "f:volumes": ("name",),
}


def built_in_keys(path: Path, items: list[Any]) -> tuple[str, ...] | None:
    """Return the keys of a list in a built-in resource."""
    if path[-1] == "f:ports":
        return (
            ("containerPort", "protocol") if any("containerPort" in _keys(i) for i in items) else ("port", "protocol")
        )
    return _LIST_KEYS.get(path[-1])


def schema_keys(schema: Any) -> ListKeys:
    """Return how lists are keyed under the schema of a CustomResourceDefinition."""

    def keys(path: Path, items: list[Any]) -> tuple[str, ...] | None:
        if path[:1] == ("f:metadata",):
            return built_in_keys(path, items)
        node = schema
        for step in path:
            node = _child(node, step)
        kind = node.get("x-kubernetes-list-type") if isinstance(node, dict) else None
        if kind == "map":
            return tuple(node.get("x-kubernetes-list-map-keys") or ())
        return () if kind == "set" else None

    return keys


def _child(node: Any, step: str) -> Any:
    if not isinstance(node, dict):
        return None
    if step.startswith(("k:", "v:")):
        return node.get("items")
    inner = node.get("properties")
    found = inner.get(step[2:]) if isinstance(inner, dict) else None
    return found if found is not None else node.get("additionalProperties")


def leaves(value: Any, list_keys: ListKeys, path: Path = ()) -> dict[Path, Any]:
    """Return every leaf of an object, and every item of its keyed lists, by path."""
    if path in _NOT_OWNED:
        return {}
    found: dict[Path, Any] = {}
    if isinstance(value, dict):
        if not value:
            return {path: {}} if path not in ((), ("f:metadata",)) else {}
        for name, inner in value.items():
            found |= leaves(inner, list_keys, (*path, f"f:{name}"))
        return found
    keys = list_keys(path, value) if isinstance(value, list) and path else None
    if keys is None or not all(_has_keys(item, keys) for item in value):
        return {path: value}
    for item in value:
        step = item_step(item, keys)
        found[(*path, step)] = item if not keys else None
        if keys:
            found |= leaves(item, list_keys, (*path, step))
    return found


def item_step(item: Any, keys: tuple[str, ...]) -> str:
    """Return the step that names an item of a keyed list (no keys: of a set)."""
    if not keys:
        return "v:" + json.dumps(item, sort_keys=True, separators=(",", ":"))
    told = {key: item.get(key, "TCP") if key == "protocol" else item[key] for key in keys}
    return "k:" + json.dumps(told, sort_keys=True, separators=(",", ":"))


def _keys(item: Any) -> Iterable[str]:
    return item if isinstance(item, dict) else ()


def _has_keys(item: Any, keys: tuple[str, ...]) -> bool:
    if not keys:
        return not isinstance(item, (dict, list))
    return isinstance(item, dict) and all(key == "protocol" or key in item for key in keys)


def to_fields_v1(paths: Iterable[Path]) -> Json:
    """Write a field set as a nested object."""
    tree: Json = {}
    paths = sorted(paths)
    for path in paths:
        node = tree
        for step in path:
            node = node.setdefault(step, {})
        if path[-1].startswith("k:"):
            node["."] = {}
    return tree


def from_fields_v1(tree: Any, path: Path = ()) -> FieldSet:
    """Read a field set from a nested object."""
    if not isinstance(tree, dict) or not tree:
        return frozenset({path} if path else ())
    found: set[Path] = set()
    for step, inner in tree.items():
        found |= {path} if step == "." else from_fields_v1(inner, (*path, step))
    return frozenset(found)


def merge_applied(live: Any, applied: Any, list_keys: ListKeys, path: Path = ()) -> Any:
    """Return the live object with what is applied put over it."""
    if isinstance(applied, dict):
        merged = dict(live) if isinstance(live, dict) else {}
        for name, value in applied.items():
            merged[name] = merge_applied(merged.get(name), value, list_keys, (*path, f"f:{name}"))
        return merged
    keys = list_keys(path, applied) if isinstance(applied, list) and path else None
    if keys is None or not all(_has_keys(item, keys) for item in applied) or not isinstance(live, list):
        return applied
    if not all(_has_keys(item, keys) for item in live):
        return applied
    merged_items = {item_step(item, keys): item for item in live}
    for item in applied:
        step = item_step(item, keys)
        merged_items[step] = merge_applied(merged_items.get(step), item, list_keys, (*path, step))
    return list(merged_items.values())


def without(value: Any, gone: FieldSet, list_keys: ListKeys, path: Path = ()) -> Any:
    """Return the object without these fields, and without the items and objects that this leaves empty."""
    if isinstance(value, dict):
        kept = {}
        for name, inner in value.items():
            step = (*path, f"f:{name}")
            left = inner if step in gone else without(inner, gone, list_keys, step)
            if step not in gone and (left == inner or left not in ({}, [])):
                kept[name] = left
        return kept
    keys = list_keys(path, value) if isinstance(value, list) and path else None
    if keys is None or not all(_has_keys(item, keys) for item in value):
        return value
    steps = [(item, (*path, item_step(item, keys))) for item in value]
    return [without(item, gone, list_keys, step) for item, step in steps if step not in gone]


def conflicts(
    managers: Iterable[tuple[str, FieldSet]], live: dict[Path, Any], applied: dict[Path, Any]
) -> list[tuple[str, Path]]:
    """Return which managers hold fields that the applied configuration would set to another value."""
    return [
        (manager, path)
        for manager, fields in managers
        for path in sorted(fields & applied.keys())
        if path in live and live[path] != applied[path]
    ]


def conflict_error(found: list[tuple[str, Path]]) -> StatusError:
    """409: say who holds which field."""
    causes = [cause("FieldManagerConflict", f'conflict with "{who}"', dotted(path)) for who, path in found]
    managers = ", ".join(sorted({f'"{who}"' for who, _ in found}))
    fields = ", ".join(sorted({dotted(path) for _, path in found}))
    word = "conflict" if len(found) == 1 else "conflicts"
    message = f"Apply failed with {len(found)} {word}: {word} with {managers}: {fields}"
    return StatusError(409, "Conflict", message, {"causes": causes})


def dotted(path: Path) -> str:
    """Write a path for people: `.spec.containers[name="main"].image`."""
    text = ""
    for step in path:
        if step.startswith("f:"):
            text += "." + step[2:]
        elif step.startswith("k:"):
            text += "[" + ",".join(f"{k}={json.dumps(v)}" for k, v in json.loads(step[2:]).items()) + "]"
        else:
            text += f"[{step[2:]}]"
    return text
