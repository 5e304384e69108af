"""Fault: an Xid that the driver itself reports, since a process of ours does on a GPU what no program may.

One pod with two containers, so that each has only the rights it needs: the culprit has a GPU and no rights at all; the
witness has no GPU and is privileged, as whoever reads a node's kernel log must be.
"""

from typing import Any

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.xid.catalog import lookup
from chaos_gpu.errors import Refused, TargetError, UsageError
from chaos_gpu.faults.names import GPU, marker_of
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import Aim, GpuFaultArguments, Planning
from chaos_gpu.faults.pods import node_pod, payload_pod, run_labels
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.targets import Target, gpu_selector
from chaos_gpu.faults.xid import PAYLOAD as SCANNER
from chaos_gpu.faults.xid import check_name, foreseen_by, obstacles, pod_name

KIND, PAYLOAD = "application-xid", "application_xid"
DEEDS = {13: "stores to an odd address", 31: "stores where no memory is", 43: "traps"}
"""What our process does, by the code that the driver reports it under."""
SHARED = "/shared"
SHARING = "nvidia.com/gpu.sharing-strategy"
"""GPU feature discovery's label; `time-slicing` and `mps` give one GPU to several pods."""
RESOURCES = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "4Gi", GPU: "1"}}
"""Of the culprit: CUDA takes a few hundred MiB of the host's memory for one context."""
LANDING_S = 20
"""How long the witness looks for the record; on an H200 it came within 0.13 s."""


class ApplicationXidArguments(GpuFaultArguments):
    """Which Xid; `gpu` names the one that the device plugin must give, "" for any."""

    code: int = 31


def plan_application_xid(planning: Planning, wanted: ApplicationXidArguments) -> Plan:
    """Decide one application fault.

    Raises: UsageError for a code that no application's fault has, TargetError without a target or on shared GPUs.
    """
    check_name(wanted.fault)
    if wanted.code not in DEEDS:
        codes = ", ".join(map(str, DEEDS))
        raise UsageError(f"{wanted.fault}: no program of ours makes the driver report Xid {wanted.code}", codes)
    settings, run, fault, code = planning.settings, planning.run, wanted.fault, wanted.code
    aim = planning.aim(wanted)
    _check_not_shared(planning, aim.target.node)
    gpu = gpu_selector(planning.wanted(wanted)[1])
    _check_repeats(planning, wanted)
    marker = marker_of(run, fault)
    scan = {"mode": "scan", "markers": [marker], "after_seq": 0}
    return Plan(
        fault=fault,
        kind=KIND,
        target=Target(node=aim.target.node, node_uid=aim.target.node_uid, gpu=gpu),
        detectors=tuple(aim.detectors),
        change=f"a process of ours {DEEDS[code]} on a GPU; the driver reports Xid {code} ({lookup(code).mnemonic})",
        undo="none: the driver's record stays in the log, the process has ended; instead: a reaction is seen through",
        consequence=foreseen_by(aim.detectors, settings),
        deadline_s=settings.deadline_s,
        facts={"code": code, "form": "driver", "variant": "", "transport": "driver", "marker": marker},
        pod=_pod(settings, run, wanted, aim, gpu),
        scan_pod=node_pod(
            settings, f"{pod_name(run, fault)}-scan", aim.target.node, run_labels(run, "scan", fault), SCANNER, scan
        ),
        obstacles=obstacles(aim.detectors, settings.expectation_for(code).action),
    )


def _check_repeats(planning: Planning, wanted: ApplicationXidArguments) -> None:
    """Refuse more faults than one GPU may have: the device plugin may give us the same one each time."""
    times, most = planning.times[planning.wanted(wanted)], planning.guard.repeats_per_day
    if times > most:
        raise Refused(
            f"{wanted.fault}: {times} application faults may all hit one GPU, which may have {most} a day",
            remedy="take some out of the experiment, or raise the guard's `repeats_per_day`",
        )


def _check_not_shared(planning: Planning, node: str) -> None:
    labels = next(each["metadata"].get("labels") or {} for each in planning.fleet if each["metadata"]["name"] == node)
    strategy = labels.get(SHARING, "none")
    if strategy != "none":
        raise TargetError(
            f"the GPUs of node {node} are shared ({SHARING}={strategy}): others may work on the one that we get",
            remedy="choose a node whose GPUs are each given to one pod",
        )


def _pod(settings: Settings, run: str, wanted: ApplicationXidArguments, aim: Aim, gpu: dict[str, str]) -> JsonObject:
    spec: dict[str, Any] = {
        "code": wanted.code,
        "marker": marker_of(run, wanted.fault),
        "gpu": gpu,
        "refuse": aim.exhausted,
        "start_s": settings.start_s / 2,  # the pod itself has to start within the whole of it
        "landing_s": LANDING_S,
        "deadline_s": settings.deadline_s,
    }
    labels = run_labels(run, "injector", wanted.fault)
    pod = node_pod(settings, pod_name(run, wanted.fault), aim.target.node, labels, PAYLOAD, spec)
    (witness,) = pod["spec"]["containers"]
    (culprit,) = payload_pod(settings, PAYLOAD, spec)["spec"]["containers"]
    culprit |= {"name": "culprit", "command": [*culprit["command"], "--culprit"], "resources": RESOURCES}
    witness["env"].append({"name": "CHAOS_GPU_SHARED", "value": SHARED})
    culprit["env"] = [*witness["env"], {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}]
    for container in (witness, culprit):
        container["volumeMounts"].append({"name": "shared", "mountPath": SHARED})
    pod["spec"]["containers"].append(culprit)
    pod["spec"]["volumes"].append({"name": "shared", "emptyDir": {"sizeLimit": "1Mi"}})
    pod["spec"]["activeDeadlineSeconds"] = round(settings.deadline_s + settings.start_s + 30)
    return pod
