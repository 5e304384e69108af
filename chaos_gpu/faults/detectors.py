"""Who on this cluster detects GPU faults, what it can see, and what it may do about them.

A home-made detector declares itself by a label and an annotation on its DaemonSet or Deployment:
    chaos-gpu/detector: <name>
    chaos-gpu/detector-profile: {"transport": "kmsg", "conditions": […], "attribution": […], "actions": ["cordon"]}
and a remediator by `chaos-gpu/remediator: cordon.drain.reboot` on its Deployment, StatefulSet, DaemonSet or CronJob.
Source of the known ones: NVSentinel, gpud, node-problem-detector (AKS), EKS node monitoring agent, in their own code.
"""

import json
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.names import DETECTOR, DETECTOR_PROFILE, REMEDIATOR
from chaos_gpu.faults.settings import problems


class Profile(BaseModel):
    """What is known of a detector.

    Attributes:
        transport: which injected kernel records it sees: `kmsg` (raw), `bracket` (prefixed, for journald readers),
            `both`, or "" when it reads no kernel log.
        conditions: node conditions that it sets, unhealthy when True; `Type=False` for one that is so when False.
        attribution: node labels or annotations in which it says why it cordoned.
        actions: what it, or what acts on its word, may do to a node.
        dcgm: whether it acts on what DCGM's health watches say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    transport: Literal["", "kmsg", "bracket", "both"] = ""
    conditions: tuple[str, ...] = ()
    attribution: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    dcgm: bool = False

    def sees(self, transport: str) -> bool:
        """Say whether it sees a record that is written so."""
        return bool(self.transport) and (self.transport == transport or "both" in (self.transport, transport))


class Detector(BaseModel):
    """A detector's DaemonSet on this cluster."""

    model_config = ConfigDict(frozen=True)

    name: str
    namespace: str
    pod_labels: dict[str, str]
    profile: Profile


class Remediator(BaseModel):
    """A workload that may act on a node on its own."""

    model_config = ConfigDict(frozen=True)

    name: str
    actions: tuple[str, ...]


DAEMONSETS = "/apis/apps/v1/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/deployments"
WORKLOADS = (DAEMONSETS, DEPLOYMENTS, "/apis/apps/v1/statefulsets", "/apis/batch/v1/cronjobs")
NVSENTINEL_CONDITIONS = ("SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff", "GpuAllWatch", "GpuMemWatch")
NVSENTINEL = Profile(
    transport="bracket",
    conditions=NVSENTINEL_CONDITIONS,
    attribution=("quarantineHealthEvent", "k8saas.nvidia.com/cordon-reason"),
)
KNOWN_DETECTORS: dict[str, Profile] = {
    "syslog-health-monitor": NVSENTINEL,
    "gpu-health-monitor": NVSENTINEL.model_copy(update={"transport": "", "dcgm": True}),
    "gpud": Profile(transport="both"),
    "node-problem-detector": Profile(transport="both", conditions=("XIDErrors", "GPUMissing")),
    "eks-node-monitoring-agent": Profile(conditions=("AcceleratedHardwareReady=False",)),  # reads no kernel log
}
KNOWN_REMEDIATORS: dict[str, tuple[str, ...]] = {
    "fault-quarantine": ("cordon",),
    "node-drainer": ("drain",),
    "fault-remediation": ("reset", "reboot", "terminate"),
    "janitor": ("reset", "reboot", "terminate"),
    "eks-node-monitoring-agent": ("reboot", "terminate"),
    "node-healthcheck-controller-manager": ("reboot", "terminate"),
    "self-node-remediation": ("reboot",),
    "fence-agents-remediation": ("reboot",),
    "machine-api-controllers": ("terminate",),
    "cluster-api-controller-manager": ("terminate",),
    "capi-controller-manager": ("terminate",),
    "karpenter": ("terminate",),
    "kured": ("drain", "reboot"),
    "draino": ("cordon", "drain"),
    "gpu-reset": ("reset",),
}


class Watchers(BaseModel):
    """Everything found on a cluster that watches over GPU nodes."""

    model_config = ConfigDict(frozen=True)

    detectors: tuple[Detector, ...] = ()
    remediators: tuple[Remediator, ...] = ()

    def readers(self) -> tuple[Detector, ...]:
        """Return the detectors that read the kernel log."""
        return tuple(each for each in self.detectors if each.profile.transport)

    def conditions(self) -> tuple[str, ...]:
        """Return every node condition that some detector sets."""
        return _all(each.profile.conditions for each in self.detectors)

    def attribution(self) -> tuple[str, ...]:
        """Return every label or annotation in which some detector says why it cordoned."""
        return _all(each.profile.attribution for each in self.detectors)


def find_watchers(api: Api) -> Watchers:
    """Look through the cluster's workloads. Raises UsageError on a malformed declared profile."""
    workloads = {path: list(api.items(path)) for path in WORKLOADS}
    declared = (each for each in workloads[DEPLOYMENTS] if DETECTOR in (each["metadata"].get("labels") or {}))
    detectors = [found for found in map(_detector, [*workloads[DAEMONSETS], *declared]) if found]
    remediators = [found for each in workloads.values() for found in map(_remediator, each) if found]
    acting = [Remediator(name=each.name, actions=each.profile.actions) for each in detectors if each.profile.actions]
    return Watchers(detectors=tuple(detectors), remediators=tuple(remediators + acting))


def detectors_by_node(api: Api, watchers: Watchers, node: str = "") -> dict[str, list[Detector]]:
    """Return, by node, the detectors that read its kernel log: those with a Ready pod there. One list a detector.

    Args:
        api: the connection.
        watchers: what was found on the cluster.
        node: ask about this node alone.
    """
    found: dict[str, list[Detector]] = {}
    for detector in watchers.readers():
        if not detector.pod_labels:
            continue
        labels = ",".join(f"{key}={value}" for key, value in sorted(detector.pod_labels.items()))
        path = f"/api/v1/namespaces/{detector.namespace}/pods"
        pods = api.items(path, labels=labels, fields=f"spec.nodeName={node}" if node else "")
        for name in sorted({str(pod["spec"].get("nodeName") or "") for pod in pods if _is_ready(pod)} - {""}):
            found.setdefault(name, []).append(detector)
    return found


REMEDY_DETECTOR = "deploy one that reads the kernel log of the GPU nodes, or complete its profile (docs/safety.md)"


def cannot_judge(criterion: str, detectors: Iterable[Detector], action: Action) -> str:
    """Say why what these detectors tell is not enough to judge a criterion by, or "" when it is.

    Args:
        criterion: its id.
        detectors: those that can see the record.
        action: what the policy calls for.
    """
    there = list(detectors)
    if not there:
        return "no detector reads the kernel log there"
    names = ", ".join(each.name for each in there)
    conditions = any(each.profile.conditions for each in there)
    if criterion == "DEV-02" and not conditions:
        return f"{names}: no node condition is known that could name the record"
    if action is Action.CORDON and not conditions and not any(each.profile.attribution for each in there):
        return f"{names}: no condition, label or annotation is known that could say why a node was cordoned"
    return ""


def _detector(daemonset: JsonObject) -> Detector | None:
    meta = daemonset["metadata"]
    declared = (meta.get("labels") or {}).get(DETECTOR)
    profile = _declared(meta, declared) if declared else _known_detector(meta["name"])
    if profile is None:
        return None
    pod_labels = (daemonset["spec"].get("selector") or {}).get("matchLabels") or {}
    return Detector(name=declared or meta["name"], namespace=meta["namespace"], pod_labels=pod_labels, profile=profile)


def _declared(meta: JsonObject, name: str) -> Profile:
    text = (meta.get("annotations") or {}).get(DETECTOR_PROFILE, "{}")
    try:
        return Profile.model_validate(json.loads(text))
    except (ValidationError, ValueError) as failure:
        why = problems(failure) if isinstance(failure, ValidationError) else "not JSON"
        raise UsageError(
            f"detector {name}: its {DETECTOR_PROFILE} annotation cannot be read: {why}",
            remedy="mend it on the DaemonSet, or remove the label chaos-gpu/detector",
        ) from failure


def _remediator(workload: JsonObject) -> Remediator | None:
    meta = workload["metadata"]
    declared = (meta.get("labels") or {}).get(REMEDIATOR)
    actions = tuple(declared.split(".")) if declared else _known_remediator(meta["name"])
    return Remediator(name=f"{meta['namespace']}/{meta['name']}", actions=actions) if actions else None


def _known_detector(name: str) -> Profile | None:
    """Find it by whole words: `gpudirect-…` is no `gpud`, and what is no detector must not be waited for."""
    words = f"-{name}-"
    return next((profile for part, profile in KNOWN_DETECTORS.items() if f"-{part}-" in words), None)


def _known_remediator(name: str) -> tuple[str, ...]:
    """Find it by any part of its name: one too many asks for a word of the experiment, one too few costs a node."""
    return next((actions for part, actions in KNOWN_REMEDIATORS.items() if part in name), ())


def _is_ready(pod: JsonObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _all(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for group in groups for name in group))
