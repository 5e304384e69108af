"""Runs all controllers on one set of informers.

Owner references and namespaces are seen to by the API server itself (`chaos_gpu.lab.apiserver.deletion`).
"""

import asyncio
from typing import TYPE_CHECKING, Any

from chaos_gpu.lab.client import Api, Informer
from chaos_gpu.lab.controllers.daemonset import DaemonSetController
from chaos_gpu.lab.controllers.deployment import DeploymentController, ReplicaSetController
from chaos_gpu.lab.controllers.job import JobController
from chaos_gpu.lab.controllers.scheduler import Scheduler
from chaos_gpu.lab.controllers.small import CordonTaintController, DisruptionController, NamespaceController

if TYPE_CHECKING:
    from chaos_gpu.lab.controllers.loop import Loop

_FOLLOWED = (
    "api/v1/pods",
    "api/v1/nodes",
    "api/v1/namespaces",
    "apis/batch/v1/jobs",
    "apis/apps/v1/daemonsets",
    "apis/apps/v1/deployments",
    "apis/apps/v1/replicasets",
    "apis/policy/v1/poddisruptionbudgets",
)


class Manager:
    """All controllers of the lab; others may listen to `pods` before `start`."""

    def __init__(self, api: Api) -> None:
        """Set everything up; nothing is asked of the server yet."""
        self._informers = {collection: Informer(api, collection) for collection in _FOLLOWED}
        self.pods, nodes, namespaces, jobs, daemon_sets, deployments, replica_sets, budgets = self._informers.values()
        self.daemon_sets, self.deployments = daemon_sets, deployments
        self._loops: list[Loop[Any]] = [
            Scheduler(api, self.pods, nodes).loop,
            DaemonSetController(api, daemon_sets, self.pods, nodes).loop,
            JobController(api, jobs, self.pods).loop,
            DeploymentController(api, deployments, replica_sets).loop,
            ReplicaSetController(api, replica_sets, self.pods).loop,
            NamespaceController(api, namespaces).loop,
            CordonTaintController(api, nodes).loop,
            DisruptionController(api, budgets, self.pods).loop,
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start informers and loops; return when every informer has its first list."""
        self._tasks = [asyncio.create_task(informer.run()) for informer in self._informers.values()]
        await asyncio.gather(*(informer.synced.wait() for informer in self._informers.values()))
        self._tasks += [asyncio.create_task(loop.run()) for loop in self._loops]

    async def run(self) -> None:
        """Return only if one of them breaks: with its error, for a lab without its controllers is none."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
