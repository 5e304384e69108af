"""Kubernetes Events of the lab's kubelet and controllers: told once, best effort, never waited for."""

import asyncio
import contextlib
import uuid
from typing import Any

from chaos_gpu.lab.client import TRANSIENT, Api
from chaos_gpu.lab.times import rfc3339

Json = dict[str, Any]


class EventRecorder:
    """Writes Events in the name of one component."""

    def __init__(self, api: Api, component: str) -> None:
        """Write through `api`; `component` is the reporting component ("kubelet")."""
        self._api = api
        self._component = component
        self._tasks: set[asyncio.Task[None]] = set()

    def pod_event(self, pod: Json, reason: str, message: str, kind: str = "Normal") -> None:
        """Tell something about a pod."""
        self.event("v1", "Pod", pod, reason, message, kind)

    def event(
        self, api_version: str, kind: str, obj: Json, reason: str, message: str, severity: str = "Normal"
    ) -> None:
        """Tell something about an object."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default")
        now = rfc3339()
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": api_version,
                "kind": kind,
                "name": metadata["name"],
                "namespace": namespace,
                "uid": metadata.get("uid", ""),
            },
            "reason": reason,
            "message": message,
            "type": severity,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component},
            "reportingComponent": self._component,
        }
        task = asyncio.create_task(self._write(body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, body: Json) -> None:
        with contextlib.suppress(*TRANSIENT):
            await self._api.create("api/v1/events", body)
