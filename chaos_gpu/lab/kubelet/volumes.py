"""Volumes of a pod as directories below its own, and the files that configMap, secret, downwardAPI and projected bring.

Not modelled: persistent volume claims, subPathExpr, mount options, read-only mounts; hostPath is the host's path
itself.
"""

import base64
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Any

from chaos_gpu.lab.client import Api, ApiFailure
from chaos_gpu.lab.kubelet.fields import Json, Mount, field_value

SERVICE_ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
DEFAULT_TOKEN_S = 3607
_RENEW_AT = 0.8


class NotYet(Exception):
    """The pod cannot start now but may later; `reason` goes into the container's waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep both for the status."""
        super().__init__(message)
        self.reason = reason


async def lookup(api: Api, collection: str, namespace: str, name: str, *, optional: bool) -> Json | None:
    """Return a ConfigMap or Secret that a pod names; None if it is missing and optional.

    Raises:
        NotYet: it is missing.
    """
    try:
        return await api.get(collection, (namespace, name))
    except ApiFailure as failure:
        if failure.code == 404 and optional:
            return None
        raise NotYet("CreateContainerConfigError", str(failure)) from failure


def secret_bytes(secret: Json) -> dict[str, bytes]:
    """Return the decoded entries of a Secret."""
    return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}


def config_bytes(config_map: Json) -> dict[str, bytes]:
    """Return the entries of a ConfigMap."""
    entries = {key: value.encode() for key, value in (config_map.get("data") or {}).items()}
    return entries | secret_bytes({"data": config_map.get("binaryData")})


class Volumes:
    """The volumes of one pod; `refresh` brings them up to date as often as called."""

    def __init__(self, api: Api, directory: Path) -> None:
        """Put volumes below `directory`."""
        self._api = api
        self._directory = directory
        self._paths: dict[str, Path] = {}
        self._renew: dict[Path, float] = {}

    def mounts(self, container: Json) -> list[Mount]:
        """Return where a container's volumes are."""
        mounts = []
        for mount in container.get("volumeMounts") or []:
            local = self._paths[mount["name"]]
            if sub_path := mount.get("subPath"):
                local = _inside(local, sub_path)
                if not local.exists():
                    local.mkdir(parents=True)
            mounts.append(Mount(mount["mountPath"].rstrip("/"), local))
        return mounts

    async def refresh(self, pod: Json) -> None:
        """Create or update every volume of the pod.

        Raises:
            NotYet: something that a volume needs is missing, or the volume type is not modelled.
        """
        for volume in pod["spec"].get("volumes") or []:
            if "hostPath" in volume:
                self._paths[volume["name"]] = Path(volume["hostPath"]["path"])
                continue
            root = self._directory / volume["name"]
            root.mkdir(parents=True, exist_ok=True)
            self._paths[volume["name"]] = root
            for source in _sources(volume):
                async for path, data, mode in self._files(pod, source, root):
                    write_atomically(_inside(root, path), data, mode)

    async def _files(self, pod: Json, source: Json, root: Path) -> AsyncIterator[tuple[str, bytes, int]]:
        """Yield path, content and mode of each file that one source brings."""
        mode = source.get("defaultMode", 0o644)
        namespace = pod["metadata"]["namespace"]
        if spec := source.get("configMap"):
            found = await lookup(self._api, "api/v1/configmaps", namespace, spec["name"], optional=_optional(spec))
            for entry in _picked(config_bytes(found or {}), spec, mode):
                yield entry
        elif spec := source.get("secret"):
            name = spec.get("secretName") or spec["name"]
            found = await lookup(self._api, "api/v1/secrets", namespace, name, optional=_optional(spec))
            for entry in _picked(secret_bytes(found or {}), spec, mode):
                yield entry
        elif spec := source.get("downwardAPI"):
            for item in spec.get("items") or []:
                yield item["path"], field_value(pod, item["fieldRef"]["fieldPath"]).encode(), item.get("mode", mode)
        elif spec := source.get("serviceAccountToken"):
            path = _inside(root, spec["path"])
            if time.monotonic() >= self._renew.get(path, 0.0):
                yield spec["path"], await self._token(pod, spec, path), 0o600

    async def _token(self, pod: Json, spec: Json, path: Path) -> bytes:
        namespace, account = pod["metadata"]["namespace"], pod["spec"].get("serviceAccountName", "default")
        lifetime_s = spec.get("expirationSeconds", DEFAULT_TOKEN_S)
        request: Json = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [spec["audience"]] if spec.get("audience") else [],
                "expirationSeconds": lifetime_s,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"],
                },
            },
        }
        url = f"api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        try:
            answer = await self._api.request("POST", url, request)
        except ApiFailure as failure:
            raise NotYet("ContainerCreating", str(failure)) from failure
        self._renew[path] = time.monotonic() + _RENEW_AT * lifetime_s
        return str(answer["status"]["token"]).encode()


def _sources(volume: Json) -> list[Json]:
    """Return a volume's sources in the form that projected volumes have.

    Raises:
        NotYet: the volume type is not modelled.
    """
    if "projected" in volume:
        default = volume["projected"].get("defaultMode", 0o644)
        return [{**source, "defaultMode": default} for source in volume["projected"].get("sources") or []]
    for kind in ("configMap", "secret", "downwardAPI"):
        if kind in volume:
            return [{kind: volume[kind], "defaultMode": volume[kind].get("defaultMode", 0o644)}]
    if "emptyDir" in volume or set(volume) == {"name"}:
        return []
    kinds = ", ".join(sorted(set(volume) - {"name"}))
    raise NotYet("ContainerCreating", f"volume {volume['name']!r}: {kinds} is not modelled by the lab")


def _picked(entries: dict[str, bytes], spec: Json, mode: int) -> list[tuple[str, bytes, int]]:
    items: list[dict[str, Any]] | None = spec.get("items")
    if not items:
        return [(key, data, mode) for key, data in entries.items()]
    missing = [item["key"] for item in items if item["key"] not in entries]
    if missing and not _optional(spec):
        raise NotYet("ContainerCreating", f"references non-existent key: {missing[0]}")
    return [(item["path"], entries[item["key"]], item.get("mode", mode)) for item in items if item["key"] in entries]


def _optional(spec: Json) -> bool:
    return bool(spec.get("optional", False))


def _inside(root: Path, relative: str) -> Path:
    path = PurePosixPath(relative)
    if path.is_absolute() or ".." in path.parts:
        raise NotYet("CreateContainerConfigError", f"path {relative!r} leaves its volume")
    return root / path


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """Give the file this content in one step; an unchanged file is not touched."""
    if path.exists() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(data)
    fresh.chmod(mode | 0o400)
    fresh.replace(path)
