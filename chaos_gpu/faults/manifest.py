"""The manifest that a run's trainings are made from: a file of the runner's, with a Job and the ConfigMaps it reads.

What cannot be read, or would not be what it is taken for, is refused before anything is made.
"""

import json
import os
import stat
from collections.abc import Iterator
from typing import Any

import yaml

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.errors import UsageError
from chaos_gpu.payloads.freezer import MARK, POD, STORE

MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError)
STORE_AT = "chaos-gpu/store"
GPU = "nvidia.com/"
NEEDS_JOB = "set CHAOS_GPU_JOB to the file of a Job that trains, see docs/trainings.md"
LARGEST_BYTES = 4 << 20
"""More than a Job and the ConfigMaps of a training, of at most 1 MiB each, have."""
DEEPEST = 100


class _Loader(yaml.SafeLoader):
    """YAML as kubectl prints it: few levels, and no aliases, by which a small file becomes endless."""

    level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Read one node. Raises ValueError for what is left out here."""
        if self.check_event(yaml.AliasEvent):
            raise ValueError("it has aliases; write out what they stand for")
        if self.level > DEEPEST:
            raise ValueError(f"it has more than {DEEPEST} levels")
        self.level += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.level -= 1


def load(path: str) -> tuple[JsonObject, list[JsonObject]]:
    """Read a manifest: the Job, and the ConfigMaps that come with it.

    Raises: UsageError when it cannot be read, holds other objects or no Job, or is one that no training is made of.
    """
    try:
        found = yaml.load_all(_read(path), Loader=_Loader)  # noqa: S506 - a SafeLoader
        documents = [json.loads(json.dumps(each, allow_nan=False)) for each in found if each]
    except (OSError, TypeError, ValueError, yaml.YAMLError) as failure:
        reason = f"the manifest {path} cannot be read: {type(failure).__name__}: {str(failure).splitlines()[0]}"
        raise UsageError(reason, NEEDS_JOB) from failure
    kinds = [each.get("kind") if isinstance(each, dict) else None for each in documents]
    if kinds.count("Job") != 1 or set(map(str, kinds)) - {"Job", "ConfigMap"}:
        raise UsageError(f"{path} holds {kinds}: one Job and ConfigMaps are wanted", NEEDS_JOB)
    job, configs = documents[kinds.index("Job")], [each for each in documents if each["kind"] == "ConfigMap"]
    try:
        store = _shape(job, configs)
        _check_ours(path, job["spec"]["template"]["spec"])
    except MALFORMED as failure:
        reason = f"{path} is no manifest of a Job: {type(failure).__name__}: {failure}"
        raise UsageError(reason, "try it: kubectl apply --dry-run=server -f FILE") from failure
    if not store.startswith("/"):
        raise UsageError(f"the Job of {path} has no annotation {STORE_AT}", "say where its volume is mounted")
    return job, configs


def _read(path: str) -> bytes:
    """Read a regular file of a manifest's size; a pipe is not waited for, a device not read."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        text = file.read(LARGEST_BYTES + 1)
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"it has more than {LARGEST_BYTES} bytes")
    return text


def _shape(job: JsonObject, configs: list[JsonObject]) -> str:
    """Touch all that is made use of, so that what is malformed fails here. Returns where the store is."""
    template = job["spec"]["template"]
    pod, metadata = template["spec"], template.get("metadata") or {}
    env = [variable for each in _containers(pod) for variable in each.get("env") or ()]
    for mapping in (metadata, metadata.get("labels"), pod.get("affinity"), *env):
        dict(mapping or {})
    for name in (pod["containers"][0]["name"], *(each["metadata"]["name"] for each in configs)):
        name.encode()
    gpus_of(job), grace_s_of(job)
    return str((job["metadata"].get("annotations") or {}).get(STORE_AT, ""))


def _check_ours(path: str, pod: JsonObject) -> None:
    """Refuse what would take the place of what the run decides."""
    if pod.get("nodeName"):
        raise UsageError(
            f"the Job of {path} names a node", "leave out nodeName: its pods go to the guard's target (CHAOS_GPU_NODE)"
        )
    env = {variable.get("name") for each in _containers(pod) for variable in each.get("env") or ()}
    if taken := sorted(env & {MARK, STORE, POD}):
        raise UsageError(f"the Job of {path} sets {', '.join(taken)}", "leave out what the run sets itself")


def _containers(pod: JsonObject) -> Iterator[JsonObject]:
    yield from pod["containers"]
    yield from pod.get("initContainers") or ()


def gpus_of(job: JsonObject) -> int:
    """Return how many GPUs a Job holds at most, with all its pods; a slice of one counts as one.

    Raises: ValueError for a count that is no whole number.
    """
    pod = job["spec"]["template"]["spec"]
    first = [(each.get("restartPolicy") == "Always", _gpus(each)) for each in pod.get("initContainers") or ()]
    beside = sum(gpus for stays, gpus in first if stays)
    before = max((gpus for stays, gpus in first if not stays), default=0)
    a_pod = beside + max(before, sum(map(_gpus, pod["containers"])))
    return max(a_pod, _gpus(pod)) * _whole(job["spec"].get("parallelism", 1))


def _gpus(owner: JsonObject) -> int:
    limits = (owner.get("resources") or {}).get("limits") or {}
    return sum(_whole(count) for name, count in limits.items() if name.startswith(GPU))


def _whole(value: Any) -> int:
    """Return a count that may be written as text, as quantities are."""
    if isinstance(value, bool) or not (isinstance(value, int) or str(value).isdecimal()) or int(value) < 0:
        raise ValueError(f"{value!r} is no whole number")
    return int(value)


def grace_s_of(job: JsonObject) -> float:
    """Return the grace period of a Job's pods, seconds. Raises ValueError for one that is no whole number."""
    return float(_whole(job["spec"]["template"]["spec"].get("terminationGracePeriodSeconds", 30)))
