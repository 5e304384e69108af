"""DCGM's programs for containers that bring none: an archive of this code beside its commands, in a ConfigMap.

In the lab a node has the programs. On a real cluster any image with Python will do: the ConfigMap is mounted where
programs are looked for, and what an engine knows lies on its node, where engine, exporter, agent and diagnostics meet.
"""

import base64
import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import chaos_gpu
from chaos_gpu.lab.dcgm.nodes import ENGINE

Json = dict[str, Any]

NAME = "dcgm-programs"
WHERE = "/usr/local/bin"
STATE = "/var/lib/lab-dcgm"
"""On every node; the inventory of its engine (`nodes.inventory`) must be there as engine.json."""
_ARCHIVE, _PLATFORM = "dcgm.zip", "platform.json"
_PARTS = ("__init__.py", "lab/__init__.py", "lab/dcgm/*.py", "lab/platform/__init__.py")
_DETECTOR = ("records", "rules", "wire", "detector")
"""Of which the agent uses some."""
_ENVIRONMENT = f"""#!/bin/sh
export LAB_DCGM_PATH={STATE} LAB_PLATFORM_FILE={WHERE}/{_PLATFORM} PYTHONPATH={WHERE}/{_ARCHIVE}
"""
_RUN = _ENVIRONMENT + 'exec python3 -SP -m chaos_gpu.lab.dcgm.{} "$@"\n'
_STAY = '-a nv-hostengine "$(command -v python3)" -c "import signal; signal.pause()"'
"""Whoever looks for the engine looks for a process of that name. With it, busybox's exec searches no PATH."""
_COMMANDS = {
    "dcgmi": _RUN.format("dcgmi"),
    "dcgm-exporter": _RUN.format("exporter"),
    "dcgm-health-agent": _RUN.format("agent"),
    "nv-hostengine": _ENVIRONMENT + "rm -f $LAB_DCGM_PATH/faults.json\n" + ENGINE.format(stay=_STAY),
}


class Bundle(NamedTuple):
    """What the containers of DCGM are made with on such a cluster."""

    image: str
    """With python3 of 3.11 or newer, flock and a shell."""
    platform: Json
    """Content of the platform file."""

    def placed(self, objects: Iterable[Json]) -> Iterator[Json]:
        """Give namespaces the programs, and the pods of workloads what they need to run them."""
        for obj in objects:
            template = obj.get("spec", {}).get("template")
            if template:
                spec = {**obj["spec"], "template": {**template, "spec": self.fitted(template["spec"])}}
                yield {**obj, "spec": spec}
            else:
                yield obj
            if obj["kind"] == "Namespace":
                yield self.config_map(obj["metadata"]["name"])

    def fitted(self, spec: Json) -> Json:
        """Return a pod's spec with the image, the programs and the engine's files of its node."""
        containers = [{**each, **self.container} for each in spec["containers"]]
        return {**spec, "containers": containers, **self.pod}

    @property
    def container(self) -> Json:
        """What each container has besides its command."""
        mounts = [
            {"name": "programs", "mountPath": WHERE, "readOnly": True},
            {"name": "engine", "mountPath": STATE},
        ]
        return {"image": self.image, "volumeMounts": mounts}

    @property
    def pod(self) -> Json:
        """What each pod has besides its containers."""
        programs = {"name": NAME, "defaultMode": 0o555}
        volumes = [
            {"name": "programs", "configMap": programs},
            {"name": "engine", "hostPath": {"path": STATE, "type": "Directory"}},
        ]
        return {"volumes": volumes}

    def config_map(self, namespace: str) -> Json:
        """Return the programs as an object."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace},
            "data": {**_COMMANDS, _PLATFORM: json.dumps(self.platform)},
            "binaryData": {_ARCHIVE: base64.b64encode(archive()).decode()},
        }


def archive() -> bytes:
    """Return the code of the programs as a zip file that Python imports from; the same code, the same bytes."""
    root = Path(chaos_gpu.__file__).parent
    files = [path for part in _PARTS for path in sorted(root.glob(part))]
    files += [root / f"lab/platform/{name}.py" for name in _DETECTOR]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archived:
        for path in files:
            entry = zipfile.ZipInfo(str(path.relative_to(root.parent)))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archived.writestr(entry, path.read_bytes())
    return made.getvalue()
