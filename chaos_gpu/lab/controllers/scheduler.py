"""The scheduler: binds pods to nodes, and says in their status why it cannot.

Among the nodes that fit, it takes the one with the fewest pods, by name if equal.
"""

from collections import Counter

from chaos_gpu.lab.client import Api, ApiFailure, Informer, Key, key_of
from chaos_gpu.lab.controllers.loop import Loop
from chaos_gpu.lab.controllers.objects import Json, is_finished
from chaos_gpu.lab.controllers.placement import why_no_room, why_not_eligible
from chaos_gpu.lab.events import EventRecorder
from chaos_gpu.lab.times import rfc3339

PODS = "api/v1/pods"


class Scheduler:
    """Follows pods and nodes."""

    def __init__(self, api: Api, pods: Informer, nodes: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._pods, self._nodes = api, pods, nodes
        self._events = EventRecorder(api, "default-scheduler")
        self._assumed: dict[str, str] = {}
        self.loop: Loop[Key] = Loop(self._reconcile)
        pods.on_event(self._on_pod)
        nodes.on_event(lambda _kind, _node: self._retry_all())

    def _on_pod(self, kind: str, pod: Json) -> None:
        if kind == "DELETED" or pod["spec"].get("nodeName"):
            self._assumed.pop(pod["metadata"]["uid"], None)
        if _waits(pod) and kind != "DELETED":
            self.loop.add(key_of(pod))
        elif kind == "DELETED" or is_finished(pod):
            self._retry_all()

    def _retry_all(self) -> None:
        for key, pod in self._pods.objects.items():
            if _waits(pod):
                self.loop.add(key)

    async def _reconcile(self, key: Key) -> None:
        pod = self._pods.objects.get(key)
        if pod is None or not _waits(pod) or pod["metadata"]["uid"] in self._assumed:
            return
        names, reasons = self._fitting(pod)
        if names:
            await self._bind(pod, names[0])
        else:
            await self._refuse(pod, reasons)

    def _fitting(self, pod: Json) -> tuple[list[str], Counter[str]]:
        reasons: Counter[str] = Counter()
        fitting: list[tuple[int, str]] = []
        for node in self._nodes.objects.values():
            name = node["metadata"]["name"]
            others = [other for other in self._pods.objects.values() if self._node_of(other) == name]
            reason = why_not_eligible(pod["spec"], node) or why_no_room(pod["spec"], node, others)
            if reason:
                reasons[reason] += 1
            else:
                fitting.append((sum(not is_finished(other) for other in others), name))
        return [name for _, name in sorted(fitting)], reasons

    def _node_of(self, pod: Json) -> str:
        return pod["spec"].get("nodeName") or self._assumed.get(pod["metadata"]["uid"], "")

    async def _bind(self, pod: Json, node: str) -> None:
        metadata = pod["metadata"]
        binding: Json = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        self._assumed[metadata["uid"]] = node
        try:
            await self._api.request("POST", path, binding)
        except ApiFailure as failure:
            self._assumed.pop(metadata["uid"], None)
            if failure.code not in (404, 409):
                raise
            return
        message = f"Successfully assigned {metadata['namespace']}/{metadata['name']} to {node}"
        self._events.pod_event(pod, "Scheduled", message)

    async def _refuse(self, pod: Json, reasons: Counter[str]) -> None:
        counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        message = f"0/{len(self._nodes.objects)} nodes are available: {counted or 'no nodes'}."
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastProbeTime": None,
        }
        for known in pod.get("status", {}).get("conditions") or []:
            if known["type"] == "PodScheduled" and known.get("message") == message:
                return
        condition["lastTransitionTime"] = rfc3339()
        patch = {"status": {"conditions": [condition]}}
        await self._api.patch(PODS, key_of(pod), patch, "strategic", "status")
        self._events.pod_event(pod, "FailedScheduling", message, "Warning")


def _waits(pod: Json) -> bool:
    spec = pod["spec"]
    return (
        not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", "default-scheduler") == "default-scheduler"
        and not pod["metadata"].get("deletionTimestamp")
        and not is_finished(pod)
    )
