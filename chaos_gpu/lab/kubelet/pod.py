"""The life of one pod on its node: admission, volumes, init containers, containers with restarts, termination.

As the real kubelet, with these differences: the restart back-off is 0.1 s doubling to 5 s (10 s to 5 min there),
forgotten after 10 s of running (10 min); on termination only the main process of a container gets SIGTERM, and
everything in the container gets SIGKILL when that ends, but it is not PID 1 (which ignores signals that it does not
handle). A pod deleted by force is killed at once. Not modelled: preStop and postStart hooks, liveness and startup
probes, sidecar (restartable) init containers, ephemeral containers, images and pull policies, memory and CPU limits.
"""

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Coroutine
from pathlib import Path

from chaos_gpu.lab.client import TRANSIENT, Api, ApiFailure, key_of
from chaos_gpu.lab.events import EventRecorder
from chaos_gpu.lab.kubelet.container import Container
from chaos_gpu.lab.kubelet.devices import GPU_RESOURCE, Devices, Gpu
from chaos_gpu.lab.kubelet.environment import NodeEnvironment, container_environment
from chaos_gpu.lab.kubelet.fields import Json
from chaos_gpu.lab.kubelet.readiness import watch_readiness
from chaos_gpu.lab.kubelet.status import PodRecord, pod_status
from chaos_gpu.lab.kubelet.volumes import NotYet, Volumes
from chaos_gpu.lab.sweep import POD_MARK, carriers, end_process
from chaos_gpu.lab.times import rfc3339, seconds_since

PODS = "api/v1/pods"
BACK_OFF_S = 0.1
BACK_OFF_MAX_S = 5.0
BACK_OFF_RESET_S = 10.0
RETRY_S = 0.2
REFRESH_S = 60.0
DEFAULT_GRACE_S = 30


class PodWorker:
    """Runs one pod until its object is gone."""

    def __init__(
        self,
        api: Api,
        pod: Json,
        node: NodeEnvironment,
        devices: Devices,
        events: EventRecorder,
        directory: Path,
        addresses: tuple[str, str],
    ) -> None:
        """Prepare; `addresses` are the pod's and the node's."""
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        spec = pod["spec"]
        self.containers = [Container(c, directory / "containers" / c["name"]) for c in spec["containers"]]
        self.init_containers = [
            Container(c, directory / "containers" / c["name"]) for c in spec.get("initContainers") or []
        ]
        self._record = PodRecord(
            restart_policy=spec.get("restartPolicy", "Always"),
            containers=[c.record for c in self.containers],
            init_containers=[c.record for c in self.init_containers],
            start_time=rfc3339(),
            pod_ip=addresses[0],
            host_ip=addresses[1],
        )
        self._api, self._node, self._devices, self._events = api, node, devices, events
        self._directory = directory
        self._volumes = Volumes(api, directory / "volumes")
        self._gpus: dict[str, list[Gpu]] = {}
        self._published: Json = pod.get("status", {})
        self._publishing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._deleted = asyncio.Event()
        self._gone = False
        self._frozen = False
        self._background: set[asyncio.Task[None]] = set()

    # what the kubelet tells it

    def update(self, pod: Json) -> None:
        """The object has changed."""
        before, self.pod = self.pod, pod
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp"):
            self._deleted.set()
            grace_s, before_s = (each["metadata"].get("deletionGracePeriodSeconds") for each in (pod, before))
            if before_s is not None and grace_s < before_s:
                self._spawn(self._kill_in(grace_s))
        elif any(before["metadata"].get(part) != metadata.get(part) for part in ("annotations", "labels")):
            self._spawn(self._refresh_volumes())

    def vanish(self) -> None:
        """The object is gone: kill what runs."""
        self._gone = True
        self._deleted.set()
        for container in self._all():
            container.kill()

    def _all(self) -> list[Container]:
        return [*self.init_containers, *self.containers]

    def _addressed(self) -> Json:
        """Return the object with the addresses that it has here, published or not yet."""
        addresses = {"podIP": self._record.pod_ip, "hostIP": self._record.host_ip}
        return {**self.pod, "status": {**self.pod.get("status", {}), **addresses}}

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # the life

    async def run(self) -> None:
        """Run the pod; returns when its object is gone and nothing of it runs."""
        try:
            self.update(self.pod)
            await self._live()
            await self._publish()
            await self._deleted.wait()
            await self._remove_object()
        finally:
            for task in self._background:
                task.cancel()
            for container in self._all():
                container.kill()
            await self._clean_up()

    async def _live(self) -> None:
        if self._deleted.is_set() or self._finished_before():
            return
        if not self._admit():
            return
        work = asyncio.create_task(self._work())
        self._spawn(self._keep_volumes_fresh())
        deleted = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait({work, deleted}, timeout=self._deadline_s(), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                await self._terminate(by_deadline=not deleted.done())
            await work
        finally:
            work.cancel()
            deleted.cancel()
            self._devices.release(self.uid)

    def _finished_before(self) -> bool:
        """Whether the pod is over already when the kubelet first sees it; then its status is left as it is."""
        self._frozen = self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        return self._frozen

    def _deadline_s(self) -> float | None:
        limit = self.pod["spec"].get("activeDeadlineSeconds")
        return None if limit is None else max(0.0, limit - seconds_since(self._record.start_time))

    def _admit(self) -> bool:
        for container in self._all():
            limits = (container.spec.get("resources") or {}).get("limits") or {}
            count = int(limits.get(GPU_RESOURCE, 0))
            given = self._devices.allocate(self.uid, count)
            if given is None:
                self._devices.release(self.uid)
                self._record.failure = (
                    "UnexpectedAdmissionError",
                    f"Allocate failed due to requested number of devices unavailable for {GPU_RESOURCE}. "
                    f"Requested: {count}, which is unexpected",
                )
                return False
            self._gpus[container.record.name] = given
        return True

    async def _work(self) -> None:
        for container in self.init_containers:
            if not await self._run_to_success(container):
                return
        await asyncio.gather(*(self._keep(container) for container in self.containers))

    async def _run_to_success(self, container: Container) -> bool:
        """Run an init container; False when the pod is not to go on."""
        back_off = BACK_OFF_S
        while True:
            code = await self._run_once(container)
            if self._stopping.is_set() or code is None:
                return False
            if code == 0:
                return True
            if self._record.restart_policy == "Never":
                return False
            await self._wait_to_restart(container, back_off)
            back_off = min(2 * back_off, BACK_OFF_MAX_S)

    async def _keep(self, container: Container) -> None:
        """Run a container, and again as the restart policy says."""
        back_off = BACK_OFF_S
        while True:
            began = time.monotonic()
            code = await self._run_once(container)
            policy = self._record.restart_policy
            if self._stopping.is_set() or policy == "Never" or (policy == "OnFailure" and code == 0):
                return
            if time.monotonic() - began > BACK_OFF_RESET_S:
                back_off = BACK_OFF_S
            await self._wait_to_restart(container, back_off)
            back_off = min(2 * back_off, BACK_OFF_MAX_S)

    async def _run_once(self, container: Container) -> int | None:
        """Start a container and wait for its end; None if the pod ends before it could start."""
        if not await self._prepare(container):
            return None
        if not container.start(container.environment, container.mounts):
            await self._publish()
            return container.record.exit_code
        self._events.pod_event(self.pod, "Started", f"Started container {container.record.name}")
        probing = None
        if container.spec.get("readinessProbe"):
            probing = asyncio.create_task(watch_readiness(container, self._record.pod_ip, self._publish))
        await self._publish()
        code = await container.ended()
        if probing:
            probing.cancel()
        await self._publish()
        return code

    async def _prepare(self, container: Container) -> bool:
        """Make volumes and environment, waiting for what is missing; False if the pod ends meanwhile."""
        while not self._stopping.is_set():
            try:
                await self._volumes.refresh(self.pod)
                mounts = self._volumes.mounts(container.spec)
                gpus = self._gpus[container.record.name]
                container.environment = await container_environment(
                    self._api, self._node, self._addressed(), container.spec, mounts, gpus
                )
                container.mounts = mounts
                return True
            except NotYet as missing:
                container.record.state = {"waiting": {"reason": missing.reason, "message": str(missing)}}
                await self._publish()
            except TRANSIENT:
                pass
            await self._pause(RETRY_S)
        return False

    async def _refresh_volumes(self) -> None:
        with contextlib.suppress(NotYet, *TRANSIENT):
            await self._volumes.refresh(self.pod)

    async def _keep_volumes_fresh(self) -> None:
        while self.pod["spec"].get("volumes"):
            await asyncio.sleep(REFRESH_S)
            await self._refresh_volumes()

    async def _wait_to_restart(self, container: Container, back_off_s: float) -> None:
        record = container.record
        record.last_state = record.state
        record.state = {
            "waiting": {
                "reason": "CrashLoopBackOff",
                "message": f"back-off {back_off_s:.1f}s restarting failed container={record.name}",
            }
        }
        self._events.pod_event(self.pod, "BackOff", f"Back-off restarting failed container {record.name}", "Warning")
        await self._publish()
        await self._pause(back_off_s)
        if self._stopping.is_set():
            record.state, record.last_state = record.last_state, {}
        else:
            record.restart_count += 1

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # the end

    async def _terminate(self, *, by_deadline: bool) -> None:
        self._stopping.set()
        self._record.terminating = True
        spec, metadata = self.pod["spec"], self.pod["metadata"]
        grace_s = metadata.get("deletionGracePeriodSeconds")
        if grace_s is None:
            grace_s = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        if by_deadline:
            self._record.failure = (
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline",
            )
        running = [container for container in self._all() if container.running]
        for container in running:
            self._events.pod_event(self.pod, "Killing", f"Stopping container {container.record.name}")
            container.signal(signal.SIGTERM)
        ends = [asyncio.create_task(c.process.wait()) for c in running if c.process]
        if ends:
            await asyncio.wait(ends, timeout=0 if self._gone else grace_s)
        for container in running:
            container.kill()

    async def _kill_in(self, seconds: float) -> None:
        """Whoever deletes it again may leave it less time."""
        await asyncio.sleep(seconds)
        for container in self._all():
            container.kill()

    async def _remove_object(self) -> None:
        while not self._gone:
            try:
                await self._api.delete(PODS, key_of(self.pod), uid=self.uid, gracePeriodSeconds=0)
                return
            except TRANSIENT:
                await asyncio.sleep(RETRY_S)

    async def _clean_up(self) -> None:
        while left := list(carriers(POD_MARK, self.uid)):
            for pid in left:
                end_process(pid)
            await asyncio.sleep(0.01)
        shutil.rmtree(self._directory, ignore_errors=True)

    # status

    async def _publish(self) -> None:
        """Write the status if it has changed, again and again until the server takes it or the pod is gone."""
        async with self._publishing:
            while not self._gone and not self._frozen:
                status = pod_status(self._record, self._published, rfc3339())
                if status == self._published:
                    return
                try:
                    patch = {"metadata": {"uid": self.uid}, "status": status}
                    await self._api.patch(PODS, key_of(self.pod), patch, "strategic", "status")
                    self._published = status
                    return
                except ApiFailure as failure:
                    if failure.code in (404, 409, 422):
                        return
                except TRANSIENT:
                    pass
                await asyncio.sleep(RETRY_S)
