"""The kubelet of all simulated nodes: gives each pod bound to one of them a worker, and keeps the nodes alive."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos_gpu.lab.client import TRANSIENT, Api
from chaos_gpu.lab.events import EventRecorder
from chaos_gpu.lab.kubelet.devices import Devices
from chaos_gpu.lab.kubelet.environment import NodeEnvironment
from chaos_gpu.lab.kubelet.fields import Json
from chaos_gpu.lab.kubelet.pod import PodWorker
from chaos_gpu.lab.times import rfc3339_micro

_log = logging.getLogger(__name__)
LEASES = "apis/coordination.k8s.io/v1/leases"
HEARTBEAT_S = 10.0
HOSTS = 254


@dataclass(frozen=True)
class Node:
    """A node that this kubelet serves."""

    name: str
    index: int
    environment: NodeEnvironment
    devices: Devices

    @property
    def address(self) -> str:
        """Its IP: a loopback address of its own."""
        return f"127.0.{self.index + 1}.1"


class Kubelet:
    """Runs pods; attach it to the pods' informer with `pods.on_event(kubelet.on_pod)`."""

    def __init__(self, api: Api, nodes: Sequence[Node], directory: Path, port: int) -> None:
        """Keep the pods' files below `directory`; the lab's own `port` tells its pods' addresses from other labs'."""
        self._api = api
        self._nodes = {node.name: node for node in nodes}
        self._directory = directory
        self._events = EventRecorder(api, "kubelet")
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._network = f"127.{port >> 8 or HOSTS + 1}.{port & 0xFF}"
        self._addresses: dict[str, str] = {}
        self._last_host = 0

    def worker(self, pod: Json) -> PodWorker | None:
        """Return who runs a pod, if it is here."""
        return self._workers.get(pod["metadata"]["uid"])

    def on_pod(self, kind: str, pod: Json) -> None:
        """A pod has changed."""
        uid = pod["metadata"]["uid"]
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker:
                worker.vanish()
        elif worker:
            worker.update(pod)
        elif node := self._nodes.get(pod["spec"].get("nodeName", "")):
            self._start(uid, pod, node)

    def _start(self, uid: str, pod: Json, node: Node) -> None:
        worker = PodWorker(
            self._api,
            pod,
            node.environment,
            node.devices,
            self._events,
            self._directory / uid,
            (self._address(uid, pod, node), node.address),
        )
        self._workers[uid] = worker
        task = self._tasks[uid] = asyncio.create_task(worker.run(), name=f"pod {pod['metadata']['name']}")
        task.add_done_callback(lambda done: self._forget(uid, done))

    def _address(self, uid: str, pod: Json, node: Node) -> str:
        """Choose the loopback address that has been free for longest; with more pods than there are, some share one."""
        if pod["spec"].get("hostNetwork"):
            return node.address
        taken = set(self._addresses.values())
        for _ in range(HOSTS):
            self._last_host = self._last_host % HOSTS + 1
            address = f"{self._network}.{self._last_host}"
            if address not in taken:
                break
        self._addresses[uid] = address
        return address

    def _forget(self, uid: str, task: asyncio.Task[None]) -> None:
        del self._workers[uid]
        del self._tasks[uid]
        self._addresses.pop(uid, None)
        if not task.cancelled() and (error := task.exception()):
            _log.error("%s broke", task.get_name(), exc_info=error)

    async def heartbeat(self) -> None:
        """Renew the nodes' Leases until cancelled."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            patch = {"spec": {"renewTime": rfc3339_micro()}}
            for name in self._nodes:
                with contextlib.suppress(*TRANSIENT):
                    await self._api.patch(LEASES, ("kube-node-lease", name), patch)

    async def close(self) -> None:
        """End every pod's processes."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def lease(name: str) -> Json:
    """Return the Lease that says that a node is alive."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro()},
    }
