"""The environment of a container: the node's, the pod's own `env` and `envFrom`, and its GPUs."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos_gpu.lab.client import Api
from chaos_gpu.lab.dcgm.nodes import PROGRAMS, programs_of
from chaos_gpu.lab.kubelet.devices import Gpu
from chaos_gpu.lab.kubelet.fields import Json, Mount, expand, field_value, localise
from chaos_gpu.lab.kubelet.volumes import (
    SERVICE_ACCOUNT_MOUNT,
    NotYet,
    config_bytes,
    lookup,
    secret_bytes,
)
from chaos_gpu.lab.sweep import MARK, POD_MARK

Decode = Callable[[Json], dict[str, bytes]]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class NodeEnvironment:
    """What every container on one node gets, besides what its pod asks for."""

    node: str
    lab: str
    """The lab's mark; see `chaos_gpu.lab.sweep`."""
    directory: Path
    """Holds kmsg, kmsg.in, driver/ and dcgm/ of the node."""
    platform_file: Path
    stand_ins: Path
    """Programs that come first on PATH."""
    pod_url: str
    """The server's URL for pods; it needs a ServiceAccount's token."""
    port: int

    def variables(self, pod: Json) -> dict[str, str]:
        """Return the environment that all containers of the pod share."""
        inherited = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "LANG", "TZ") if name in os.environ}
        return inherited | {
            MARK: self.lab,
            POD_MARK: pod["metadata"]["uid"],
            "PATH": f"{self.stand_ins}:{SYSTEM_PATH}",
            "HOME": "/root",
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            "LAB_NODE": self.node,
            "KMSG_FILE_PATH": str(self.directory / "kmsg"),
            "KMSG_WRITE_PATH": str(self.directory / "kmsg.in"),
            "NVIDIA_PROC_PATH": str(self.directory / "driver"),
            "DCGMI_PATH": str(self.stand_ins / PROGRAMS / "dcgmi"),
            "LAB_DCGM_PATH": str(self.directory / "dcgm"),
            "LAB_PLATFORM_FILE": str(self.platform_file),
            "KUBERNETES_API_URL": self.pod_url,
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
        }


async def container_environment(
    api: Api, node: NodeEnvironment, pod: Json, container: Json, mounts: Sequence[Mount], gpus: Sequence[Gpu]
) -> dict[str, str]:
    """Return a container's whole environment.

    Raises:
        NotYet: a ConfigMap, Secret or key that it names is missing.
    """
    variables = node.variables(pod)
    if programs := programs_of(container.get("image", "")):
        variables["PATH"] = f"{node.stand_ins / programs}:{variables['PATH']}"
    for mount in mounts:
        if mount.path == SERVICE_ACCOUNT_MOUNT:
            variables["SERVICEACCOUNT_DIR"] = str(mount.local)
    if gpus:
        variables["NVIDIA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    own: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom") or []:
        own |= await _bulk(api, namespace, source)
    for entry in container.get("env") or []:
        value = await _value(api, pod, entry, own)
        if value is not None:
            own[entry["name"]] = localise(value, mounts)
    return variables | own


async def _bulk(api: Api, namespace: str, source: Json) -> dict[str, str]:
    prefix = source.get("prefix", "")
    if spec := source.get("configMapRef"):
        found = await lookup(api, "api/v1/configmaps", namespace, spec["name"], optional=spec.get("optional", False))
        entries = config_bytes(found or {})
    else:
        spec = source["secretRef"]
        found = await lookup(api, "api/v1/secrets", namespace, spec["name"], optional=spec.get("optional", False))
        entries = secret_bytes(found or {})
    return {prefix + key: data.decode(errors="replace") for key, data in entries.items()}


async def _value(api: Api, pod: Json, entry: Json, earlier: Mapping[str, str]) -> str | None:
    source = entry.get("valueFrom")
    if not source:
        return expand(entry.get("value") or "", earlier)
    if field := source.get("fieldRef"):
        try:
            return field_value(pod, field["fieldPath"])
        except KeyError as missing:
            raise NotYet("CreateContainerConfigError", f"fieldRef {missing} is not modelled by the lab") from None
    for kind, collection, decode in (
        ("configMapKeyRef", "api/v1/configmaps", config_bytes),
        ("secretKeyRef", "api/v1/secrets", secret_bytes),
    ):
        if spec := source.get(kind):
            return await _keyed(api, pod["metadata"]["namespace"], collection, spec, decode)
    raise NotYet("CreateContainerConfigError", f"env {entry['name']}: {', '.join(source)} is not modelled by the lab")


async def _keyed(api: Api, namespace: str, collection: str, spec: Json, decode: Decode) -> str | None:
    optional = bool(spec.get("optional", False))
    found = await lookup(api, collection, namespace, spec["name"], optional=optional)
    entries = decode(found or {})
    if spec["key"] in entries:
        return entries[spec["key"]].decode(errors="replace")
    if optional:
        return None
    raise NotYet("CreateContainerConfigError", f"couldn't find key {spec['key']} in {collection} {spec['name']}")
