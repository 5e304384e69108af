"""The three patches that replace parts of an object: JSON patch, JSON merge patch, strategic merge patch. Pure.

None of them changes its arguments. Sources: RFC 6902, RFC 7386, and Kubernetes' description of strategic merge.
"""

from typing import Any

from chaos_gpu.lab.apiserver.status import Json, StatusError, bad_request

MAX_OPERATIONS = 10_000

# Lists that a strategic merge patch merges by key instead of replacing them, by the field's name.
MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "port",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
MERGED_SETS = frozenset({"finalizers"})


def merge_key(field: str, items: list[Any]) -> str:
    """Return what tells the items of a merged list apart, or "" for a list that is replaced."""
    key = MERGE_KEYS.get(field, "")
    if field == "ports" and any(isinstance(i, dict) and "containerPort" in i for i in items):
        return "containerPort"
    return key


def json_patch(target: Json, operations: Any) -> Any:
    """Apply an RFC 6902 patch.

    Raises:
        StatusError: 400, not a JSON patch; 413, too many operations; 422, it does not apply or a test failed.
    """
    import jsonpatch  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - 30 ms that many labs never need

    _check_operations(operations)
    try:
        return jsonpatch.JsonPatch(operations).apply(target)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError, KeyError) as e:
        raise StatusError(422, "Invalid", f"the patch does not apply: {e}") from e


def _check_operations(operations: Any) -> None:
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise StatusError(413, "RequestEntityTooLarge", f"a JSON patch may have {MAX_OPERATIONS} operations at most")
    for op in operations:
        if not isinstance(op, dict) or not isinstance(op.get("op"), str) or not isinstance(op.get("path"), str):
            raise bad_request("each operation of a JSON patch has a string `op` and a string `path`")
        if op["op"] not in ("add", "remove", "replace", "move", "copy", "test"):
            raise bad_request(f"unknown JSON patch operation {op['op']!r}")
        if op["op"] in ("move", "copy") and not isinstance(op.get("from"), str):
            raise bad_request(f"the JSON patch operation {op['op']!r} needs a string `from`")
        if op["op"] in ("add", "replace", "test") and "value" not in op:
            raise bad_request(f"the JSON patch operation {op['op']!r} needs a `value`")


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply an RFC 7386 patch: objects are merged, null deletes, anything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch with its directives.

    Raises:
        StatusError: 400, a directive that makes no sense.
    """
    return _merge_map(target, patch) if isinstance(patch, dict) else patch


def _merge_map(target: Any, patch: Json) -> Json:
    directive = patch.get("$patch", "merge")
    if directive == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    if directive == "delete":
        return {}
    if directive != "merge":
        raise bad_request(f"unknown strategic merge directive {directive!r}")
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if not name.startswith("$"):
            _merge_field(merged, name, value)
    for name, value in patch.items():
        _direct(merged, name, value)
    return merged


def _merge_field(merged: Json, name: str, value: Any) -> None:
    have = merged.get(name)
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, dict):
        merged[name] = _merge_map(have, value)
    elif isinstance(value, list):
        merged[name] = _merge_list(name, have if isinstance(have, list) else [], value)
    else:
        merged[name] = value


def _direct(merged: Json, name: str, value: Any) -> None:
    directive, _, field = name.partition("/")
    if directive not in ("$retainKeys", "$deleteFromPrimitiveList", "$setElementOrder"):
        return
    if not isinstance(value, list):
        raise bad_request(f"the strategic merge directive {name!r} needs a list")
    have = merged.get(field)
    if directive == "$retainKeys":
        for gone in merged.keys() - set(map(str, value)):
            del merged[gone]
    elif isinstance(have, list):
        keep = [item for item in have if item not in value]
        merged[field] = keep if directive == "$deleteFromPrimitiveList" else _in_order(field, have, value)


def _merge_list(field: str, have: list[Any], patch: list[Any]) -> list[Any]:
    if {"$patch": "replace"} in patch:
        return [item for item in patch if item != {"$patch": "replace"}]
    if field in MERGED_SETS:
        return have + [item for item in patch if item not in have]
    key = merge_key(field, have + patch)
    if not key:
        return patch
    merged = list(have)
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"an item of {field!r} in a strategic merge patch needs {key!r}")
        _merge_item(merged, key, item)
    return merged


def _merge_item(merged: list[Any], key: str, item: Json) -> None:
    at = next((i for i, have in enumerate(merged) if isinstance(have, dict) and have.get(key) == item[key]), None)
    if item.get("$patch") == "delete":
        if at is not None:
            del merged[at]
    elif at is None:
        merged.append(_merge_map({}, item))
    else:
        merged[at] = _merge_map(merged[at], item)


def _in_order(field: str, items: list[Any], order: list[Any]) -> list[Any]:
    """Sort the items that `order` names as it says; each other item stays behind the one it followed."""
    key = merge_key(field, items)
    wanted = [_identity(o, key) for o in order]
    slots: list[list[Any]] = [[] for _ in range(len(wanted) + 1)]
    slot = 0
    for item in items:
        identity = _identity(item, key)
        if identity in wanted:
            slot = wanted.index(identity) + 1
            slots[slot].insert(0, item)
        else:
            slots[slot].append(item)
    return [item for group in slots for item in group]


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) and key else item
