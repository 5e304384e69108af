"""The status of a pod as the kubelet reports it, made from what is known of its containers. Pure.

Source: Kubernetes, pkg/kubelet/kubelet_pods.go (getPhase, convertStatusToAPIStatus) and pkg/kubelet/status.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass
class ContainerRecord:
    """What is known of one container."""

    name: str
    image: str
    state: Json = field(default_factory=lambda: {"waiting": {"reason": "ContainerCreating"}})
    last_state: Json = field(default_factory=dict)
    restart_count: int = 0
    ready: bool = False
    container_id: str = ""

    @property
    def exit_code(self) -> int | None:
        """The exit code if the container has ended and is not to be restarted right now."""
        terminated = self.state.get("terminated")
        return None if terminated is None else int(terminated["exitCode"])

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return "running" in self.state

    def as_status(self) -> Json:
        """Return an entry of containerStatuses."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": self.container_id,
            "ready": self.ready,
            "started": self.running,
            "restartCount": self.restart_count,
            "state": self.state,
            "lastState": self.last_state,
        }


@dataclass
class PodRecord:
    """What is known of one pod."""

    restart_policy: str
    containers: list[ContainerRecord]
    init_containers: list[ContainerRecord]
    start_time: str
    pod_ip: str
    host_ip: str
    failure: tuple[str, str] | None = None
    """Reason and message of a pod that the kubelet itself has failed."""
    terminating: bool = False
    """Nothing will be started again."""


def terminated(
    exit_code: int, started: str, finished: str, container_id: str, reason: str = "", text: str = ""
) -> Json:
    """Return the state of a container that has ended."""
    state: Json = {
        "exitCode": exit_code,
        "reason": reason or ("Completed" if exit_code == 0 else "Error"),
        "startedAt": started,
        "finishedAt": finished,
        "containerID": container_id,
    }
    return {"terminated": state | ({"message": text} if text else {})}


def phase_of(pod: PodRecord) -> str:
    """Return Pending, Running, Succeeded or Failed."""
    if pod.failure:
        return "Failed"
    init_codes = [record.exit_code for record in pod.init_containers]
    if any(code != 0 for code in init_codes):
        failed = pod.restart_policy == "Never" and any(code for code in init_codes if code is not None)
        return "Failed" if failed else "Pending"
    codes = [record.exit_code for record in pod.containers]
    if pod.terminating and None not in codes:
        return "Failed" if any(codes) else "Succeeded"
    if None in codes or pod.restart_policy == "Always":
        started = any(record.running or record.exit_code is not None or record.last_state for record in pod.containers)
        return "Running" if started else "Pending"
    if any(codes):
        return "Failed" if pod.restart_policy == "Never" else "Running"
    return "Succeeded"


def pod_status(pod: PodRecord, before: Json, now: str) -> Json:
    """Return the status to publish; conditions keep the time of their last change from `before`."""
    phase = phase_of(pod)
    reason, message = pod.failure or (None, None)
    status: Json = {
        "phase": phase,
        "reason": reason,
        "message": message,
        "startTime": pod.start_time,
        "hostIP": pod.host_ip,
        "hostIPs": [{"ip": pod.host_ip}],
        "podIP": pod.pod_ip,
        "podIPs": [{"ip": pod.pod_ip}],
        "qosClass": before.get("qosClass", "BestEffort"),
        "containerStatuses": [record.as_status() for record in pod.containers],
        "conditions": _conditions(pod, phase, before.get("conditions") or [], now),
    }
    if pod.init_containers:
        status["initContainerStatuses"] = [record.as_status() for record in pod.init_containers]
    return status


def _conditions(pod: PodRecord, phase: str, before: Sequence[Json], now: str) -> list[Json]:
    finished = phase in ("Succeeded", "Failed")
    initialized = phase == "Succeeded" or all(record.exit_code == 0 for record in pod.init_containers)
    unready = [record.name for record in pod.containers if not record.ready]
    if phase == "Succeeded":
        cause = {"reason": "PodCompleted"}
    elif phase == "Failed":
        cause = {"reason": "PodFailed"}
    elif unready:
        cause = {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    else:
        cause = {}
    ready = not cause
    wanted = [
        _condition("PodReadyToStartContainers", not finished, {}),
        _condition("Initialized", initialized, {"reason": "PodCompleted"} if phase == "Succeeded" else {}),
        _condition("Ready", ready, cause),
        _condition("ContainersReady", ready, cause),
        _condition("PodScheduled", True, {}),
    ]
    known = {condition["type"]: condition for condition in before}
    return [_with_time(condition, known.get(condition["type"]), now) for condition in wanted]


def _condition(kind: str, holds: bool, cause: Json) -> Json:
    return {"type": kind, "status": str(holds), "reason": None, "message": None, "lastProbeTime": None, **cause}


def _with_time(condition: Json, known: Json | None, now: str) -> Json:
    same = known is not None and known["status"] == condition["status"]
    return {**condition, "lastTransitionTime": known["lastTransitionTime"] if known and same else now}
