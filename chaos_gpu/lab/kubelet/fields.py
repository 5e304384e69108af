"""What a pod can tell its containers about itself: fieldRef, `$(VAR)`, local paths of mounts. Pure.

Source: Kubernetes, "Downward API" and pkg/fieldpath; third_party/forked/golang/expansion.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Json = dict[str, Any]

_SUBSCRIPT = re.compile(r"^metadata\.(annotations|labels)\['(?P<key>.+)'\]$")
_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")


class Mount(NamedTuple):
    """A volume in a container."""

    path: str
    """Where the container sees it, without a trailing slash."""
    local: Path
    """Where it is on this machine."""


def field_value(pod: Json, path: str) -> str:
    """Return the value of a fieldRef.

    Raises:
        KeyError: there is no such field.
    """
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    if subscript := _SUBSCRIPT.match(path):
        return str((metadata.get(subscript[1]) or {}).get(subscript["key"], ""))
    if path in ("metadata.annotations", "metadata.labels"):
        entries = metadata.get(path.split(".")[1]) or {}
        return "".join(f"{key}={_quoted(entries[key])}\n" for key in sorted(entries)).removesuffix("\n")
    values = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.hostIP": status.get("hostIP", ""),
        "status.podIP": status.get("podIP", ""),
        "status.podIPs": status.get("podIP", ""),
    }
    return str(values[path])


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable's value; `$$` is a dollar sign; an unknown name stays as it is."""

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return "$"
        return variables.get(name, match[0])

    return _REFERENCE.sub(value, text)


def localise(value: str, mounts: Sequence[Mount]) -> str:
    """Turn a value that begins with a mount's path into the path on this machine."""
    for mount in sorted(mounts, key=lambda m: len(m.path), reverse=True):
        if value == mount.path or value.startswith(mount.path + "/"):
            return f"{mount.local}{value[len(mount.path) :]}"
    return value
