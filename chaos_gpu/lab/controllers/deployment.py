"""Deployments and ReplicaSets, as far as `kubectl scale`, `rollout` and owner chains need them.

A changed template gets its own ReplicaSet; the old ones shrink as the new one's pods become ready. Not modelled:
surge and unavailability limits, pause, rollback, progress deadlines. Source: Kubernetes, pkg/controller/deployment
and replicaset.
"""

from typing import Any

from chaos_gpu.lab.client import Api, Informer, Key, key_of
from chaos_gpu.lab.controllers.daemonset import template_hash
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
from chaos_gpu.lab.times import rfc3339

DEPLOYMENTS = "apis/apps/v1/deployments"
REPLICA_SETS = "apis/apps/v1/replicasets"
PODS = "api/v1/pods"
HASH_LABEL = "pod-template-hash"


class DeploymentController:
    """Follows deployments and replica sets."""

    def __init__(self, api: Api, deployments: Informer, sets: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._deployments, self._sets = api, deployments, sets
        self.loop: Loop[Key] = Loop(self._reconcile)
        deployments.on_event(lambda _kind, obj: self.loop.add(key_of(obj)))
        sets.on_event(self._on_set)

    def _on_set(self, _kind: str, replica_set: Json) -> None:
        owner = controller_of(replica_set)
        if owner and owner["kind"] == "Deployment":
            self.loop.add((replica_set["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> None:
        deployment = self._deployments.objects.get(key)
        if deployment is None or deployment["metadata"].get("deletionTimestamp"):
            return
        revision = template_hash(deployment["spec"]["template"])
        sets = owned_by(self._sets.objects.values(), deployment["metadata"]["uid"])
        current = [s for s in sets if s["metadata"]["labels"].get(HASH_LABEL) == revision]
        old = [s for s in sets if s not in current]
        wanted = deployment["spec"].get("replicas", 1)
        if current:
            await self._scale(current[0], wanted)
        else:
            await self._create_set(deployment, revision, wanted)
        if current and _count(current[0], "readyReplicas") >= wanted:
            for replica_set in old:
                await self._scale(replica_set, 0)
        await self._write(deployment, sets, current, wanted)

    async def _create_set(self, deployment: Json, revision: str, replicas: int) -> None:
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: revision}
        await self._api.create(
            REPLICA_SETS,
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "name": f"{metadata['name']}-{revision}",
                    "namespace": metadata["namespace"],
                    "labels": labels,
                    "ownerReferences": [owner_reference("apps/v1", "Deployment", deployment)],
                },
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
                },
            },
        )

    async def _scale(self, replica_set: Json, replicas: int) -> None:
        if replica_set["spec"].get("replicas", 1) != replicas:
            await self._api.patch(REPLICA_SETS, key_of(replica_set), {"spec": {"replicas": replicas}})

    async def _write(self, deployment: Json, sets: list[Json], current: list[Json], wanted: int) -> None:
        available = sum(_count(s, "availableReplicas") for s in sets)
        status: Json = {
            "observedGeneration": deployment["metadata"].get("generation", 1),
            "replicas": sum(_count(s, "replicas") for s in sets),
            "updatedReplicas": sum(_count(s, "replicas") for s in current),
            "readyReplicas": sum(_count(s, "readyReplicas") for s in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, wanted - available),
        }
        known = deployment.get("status") or {}
        holds = "True" if available >= wanted else "False"
        before = next((c for c in known.get("conditions") or [] if c["type"] == "Available"), None)
        changed = before is None or before["status"] != holds
        if changed:
            status["conditions"] = [_available(holds)]
        if changed or any(known.get(name) != value for name, value in status.items()):
            await self._api.patch(DEPLOYMENTS, key_of(deployment), {"status": status}, "strategic", "status")


class ReplicaSetController:
    """Follows replica sets and pods."""

    def __init__(self, api: Api, sets: Informer, pods: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._sets, self._pods = api, sets, pods
        self._expected: dict[str, set[str]] = {}
        self.loop: Loop[Key] = Loop(self._reconcile)
        sets.on_event(lambda _kind, obj: self.loop.add(key_of(obj)))
        pods.on_event(self._on_pod)

    def _on_pod(self, _kind: str, pod: Json) -> None:
        owner = controller_of(pod)
        if owner and owner["kind"] == "ReplicaSet":
            self._expected.get(owner["uid"], set()).discard(pod["metadata"]["name"])
            self.loop.add((pod["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> None:
        replica_set = self._sets.objects.get(key)
        if replica_set is None or replica_set["metadata"].get("deletionTimestamp"):
            return
        uid = replica_set["metadata"]["uid"]
        expected = self._expected.setdefault(uid, set())
        active = [
            pod
            for pod in owned_by(self._pods.objects.values(), uid)
            if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")
        ]
        wanted = replica_set["spec"].get("replicas", 1)
        for _ in range(wanted - len(active) - len(expected)):
            await self._create_pod(replica_set, expected)
        surplus = sorted(active, key=is_ready)[: max(0, len(active) - wanted)]
        for pod in surplus:
            await self._api.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        ready = sum(is_ready(pod) for pod in active)
        status: dict[str, Any] = {
            "observedGeneration": replica_set["metadata"].get("generation", 1),
            "replicas": len(active),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "fullyLabeledReplicas": len(active),
        }
        if status != replica_set.get("status"):
            await self._api.patch(REPLICA_SETS, key, {"status": status}, "merge", "status")

    async def _create_pod(self, replica_set: Json, expected: set[str]) -> None:
        metadata = replica_set["metadata"]
        name = f"{metadata['name']}-{random_suffix()}"
        owner = owner_reference("apps/v1", "ReplicaSet", replica_set)
        expected.add(name)
        try:
            await self._api.create(PODS, pod_from(replica_set["spec"]["template"], name, metadata["namespace"], owner))
        except BaseException:
            expected.discard(name)
            raise


def _count(replica_set: Json, field: str) -> int:
    return int((replica_set.get("status") or {}).get(field, 0))


def _available(holds: str) -> Json:
    now = rfc3339()
    return {
        "type": "Available",
        "status": holds,
        "reason": "MinimumReplicasAvailable" if holds == "True" else "MinimumReplicasUnavailable",
        "message": "",
        "lastUpdateTime": now,
        "lastTransitionTime": now,
    }
