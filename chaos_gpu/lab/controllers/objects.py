"""Small facts about objects that several controllers need. Pure."""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def random_suffix(length: int = 5) -> str:
    """Return letters as generated names have them."""
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def controller_of(obj: Json) -> Json | None:
    """Return the owner reference of the controller."""
    for owner in obj["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            return dict(owner)
    return None


def owned_by(objects: Iterable[Json], uid: str) -> list[Json]:
    """Return the objects whose controller has this UID, oldest first."""
    mine = [obj for obj in objects if (controller_of(obj) or {}).get("uid") == uid]
    return sorted(mine, key=lambda obj: (obj["metadata"]["creationTimestamp"], obj["metadata"]["name"]))


def owner_reference(api_version: str, kind: str, owner: Json) -> Json:
    """Return the reference that makes `owner` the controller of an object."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_from(template: Json, name: str, namespace: str, owner: Json) -> Json:
    """Return a pod made from a template; `owner` is an owner reference."""
    metadata = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [owner],
        },
        "spec": dict(template["spec"]),
    }


def selects(selector: Json | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a label selector matches; an empty one matches everything, none nothing."""
    if selector is None:
        return False
    have = labels or {}
    if any(have.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(matches(expression, have) for expression in selector.get("matchExpressions") or [])


def matches(expression: Json, have: Mapping[str, str]) -> bool:
    """Whether one `key operator values` holds: In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    key, operator, values = expression["key"], expression["operator"], expression.get("values") or []
    if operator == "In":
        return have.get(key) in values
    if operator == "NotIn":
        return have.get(key) not in values
    if operator == "Exists":
        return key in have
    if operator == "DoesNotExist":
        return key not in have
    try:
        number, limit = int(have[key]), int(values[0])
    except (KeyError, ValueError, IndexError):
        return False
    return number > limit if operator == "Gt" else number < limit


def is_finished(pod: Json) -> bool:
    """Whether a pod's containers have ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_ready(pod: Json) -> bool:
    """Whether a pod's condition Ready holds."""
    return has_condition(pod, "Ready")


def has_condition(obj: Json, kind: str) -> bool:
    """Whether a condition is True."""
    conditions = obj.get("status", {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)
