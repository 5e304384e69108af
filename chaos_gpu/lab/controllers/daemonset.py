"""The DaemonSet controller: one pod on every eligible node, replaced one at a time when the template changes.

Its pods are pinned by affinity to metadata.name and tolerate cordons, as the real one's; the scheduler binds them.
A pod that has ended is deleted and made again. Not modelled: maxSurge, revision history. Source: pkg/controller/daemon.
"""

import hashlib
import json

from chaos_gpu.lab.client import Api, Informer, Key, key_of
from chaos_gpu.lab.controllers.loop import Loop
from chaos_gpu.lab.controllers.objects import (
    Json,
    controller_of,
    is_finished,
    is_ready,
    owned_by,
    owner_reference,
    pod_from,
    random_suffix,
)
from chaos_gpu.lab.controllers.placement import why_not_eligible

DAEMON_SETS = "apis/apps/v1/daemonsets"
PODS = "api/v1/pods"
HASH_LABEL = "controller-revision-hash"
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


class DaemonSetController:
    """Follows daemon sets, pods and nodes."""

    def __init__(self, api: Api, sets: Informer, pods: Informer, nodes: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._sets, self._pods, self._nodes = api, sets, pods, nodes
        self._expected: set[tuple[str, str]] = set()
        self._deleted: set[str] = set()
        self.loop: Loop[Key] = Loop(self._reconcile)
        sets.on_event(lambda _kind, obj: self.loop.add(key_of(obj)))
        pods.on_event(self._on_pod)
        nodes.on_event(self._on_node)

    def _on_node(self, _kind: str, _node: Json) -> None:
        for key in self._sets.objects:
            self.loop.add(key)

    def _on_pod(self, kind: str, pod: Json) -> None:
        if kind == "DELETED":
            self._deleted.discard(pod["metadata"]["uid"])
        owner = controller_of(pod)
        if owner and owner["kind"] == "DaemonSet":
            self._expected.discard((owner["uid"], target_node(pod)))
            self.loop.add((pod["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> None:
        daemons = self._sets.objects.get(key)
        if daemons is None or daemons["metadata"].get("deletionTimestamp"):
            return
        uid = daemons["metadata"]["uid"]
        revision = template_hash(daemons["spec"]["template"])
        by_node: dict[str, list[Json]] = {}
        for pod in owned_by(self._pods.objects.values(), uid):
            by_node.setdefault(target_node(pod), []).append(pod)
        wanted = {name for (_, name), node in self._nodes.objects.items() if not _why_not(daemons, node)}
        for name in sorted(wanted):
            if not by_node.get(name) and (uid, name) not in self._expected:
                await self._create_pod(daemons, name, revision)
        for name, pods in by_node.items():
            surplus = pods[1:] if name in wanted else pods
            for pod in [*surplus, *(pod for pod in pods[:1] if is_finished(pod))]:
                await self._delete_pod(pod)
        current = {name: pods[0] for name, pods in by_node.items() if name in wanted}
        if len(current) == len(wanted):
            await self._update_one(daemons, current, revision)
        await self._write(daemons, wanted, current, by_node, revision)

    async def _create_pod(self, daemons: Json, node: str, revision: str) -> None:
        metadata = daemons["metadata"]
        name = f"{metadata['name']}-{random_suffix()}"
        owner = owner_reference("apps/v1", "DaemonSet", daemons)
        pod = pod_from(daemons["spec"]["template"], name, metadata["namespace"], owner)
        pod["metadata"]["labels"][HASH_LABEL] = revision
        pod["spec"] = pinned(pod["spec"], node)
        self._expected.add((metadata["uid"], node))
        try:
            await self._api.create(PODS, pod)
        except BaseException:
            self._expected.discard((metadata["uid"], node))
            raise

    async def _delete_pod(self, pod: Json) -> None:
        if self._is_ending(pod):
            return
        self._deleted.add(pod["metadata"]["uid"])
        try:
            await self._api.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        except BaseException:
            self._deleted.discard(pod["metadata"]["uid"])
            raise

    def _is_ending(self, pod: Json) -> bool:
        """Whether the pod is being deleted; the informer may not know yet what this controller has asked for."""
        return bool(pod["metadata"].get("deletionTimestamp")) or pod["metadata"]["uid"] in self._deleted

    async def _update_one(self, daemons: Json, current: dict[str, Json], revision: str) -> None:
        """Delete one outdated pod, if all the others are there and ready."""
        if (daemons["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        outdated = [pod for pod in current.values() if pod["metadata"]["labels"].get(HASH_LABEL) != revision]
        broken = [pod for pod in outdated if not is_ready(pod)]
        if broken:
            await self._delete_pod(broken[0])
        elif outdated and all(is_ready(pod) and not self._is_ending(pod) for pod in current.values()):
            await self._delete_pod(outdated[0])

    async def _write(
        self, daemons: Json, wanted: set[str], current: dict[str, Json], by_node: dict[str, list[Json]], revision: str
    ) -> None:
        ready = sum(is_ready(pod) for pod in current.values())
        updated = sum(pod["metadata"]["labels"].get(HASH_LABEL) == revision for pod in current.values())
        status = {
            "observedGeneration": daemons["metadata"].get("generation", 1),
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(current),
            "numberMisscheduled": len(by_node.keys() - wanted),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
            "updatedNumberScheduled": updated,
        }
        if status != daemons.get("status"):
            await self._api.patch(DAEMON_SETS, key_of(daemons), {"status": status}, "merge", "status")


def _why_not(daemons: Json, node: Json) -> str:
    spec = daemons["spec"]["template"]["spec"]
    return why_not_eligible({**spec, "tolerations": [*(spec.get("tolerations") or []), *_tolerations()]}, node)


def _tolerations() -> list[Json]:
    return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]


def pinned(spec: Json, node: str) -> Json:
    """Return a pod spec that can only run on one node, whether that is cordoned or not."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    return {
        **spec,
        "affinity": {**(spec.get("affinity") or {}), **affinity},
        "tolerations": [*(spec.get("tolerations") or []), *_tolerations()],
    }


def target_node(pod: Json) -> str:
    """Return the node a daemon pod is pinned to."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or []:
        for field in term.get("matchFields") or []:
            return str(field["values"][0])
    return str(pod["spec"].get("nodeName", ""))


def template_hash(template: Json) -> str:
    """Return a short name for the content of a pod template."""
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]
