"""Fault: a job of our own that holds GPUs of a node, for what a platform must do while a job runs."""

from pydantic import Field

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.errors import Refused
from chaos_gpu.faults.names import GPU, INJECTOR, NAMESPACE, marker_of
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import GpuFaultArguments, Planning
from chaos_gpu.faults.pods import PROC_DRIVER, need_go, payload_pod, run_labels
from chaos_gpu.faults.records import obstacle
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.xid import check_name, pod_name

KIND, PAYLOAD = "gpu-job", "gpu_job"
JUDGED_BY_RECORDS = ("DEV-02", "DEV-03", "DEV-05")
"""What is judged of such a job by the platform's records."""


class JobArguments(GpuFaultArguments):
    """The job: how many GPUs it asks for. Which of the node's it gets is the device plugin's to say."""

    gpus: int = Field(default=1, ge=1)


def plan_job(planning: Planning, wanted: JobArguments) -> Plan:
    """Decide a sacrificial job on the target node.

    Raises: UsageError for a name that is none, Refused for more GPUs than the guard allows, TargetError without a
    target.
    """
    check_name(wanted.fault)
    if wanted.gpus > planning.guard.gpus:
        raise Refused(
            f"{wanted.fault} asks for {wanted.gpus} GPUs, {planning.guard.gpus} may be touched",
            remedy="raise the guard's `gpus`",
        )
    aim = planning.aim(wanted)
    lacking = obstacle(planning.api, planning.settings)
    return Plan(
        fault=wanted.fault,
        kind=KIND,
        target=aim.target,
        detectors=tuple(aim.detectors),
        change=f"one pod of ours with {wanted.gpus} GPU, on the target node",
        undo="the pod is deleted",
        deadline_s=planning.settings.deadline_s,
        facts={"marker": marker_of(planning.run, wanted.fault), "gpus": wanted.gpus},
        pod=_job(planning.settings, planning.run, wanted, aim.target.node),
        obstacles=dict.fromkeys(JUDGED_BY_RECORDS, lacking) if lacking else {},
    )


def _job(settings: Settings, run: str, wanted: JobArguments, node: str) -> JsonObject:
    """Make the pod: no more rights than any user's, and the driver's list of the node's GPUs to read."""
    pod = payload_pod(settings, PAYLOAD, {"deadline_s": settings.deadline_s})
    labels = run_labels(run, "injector", wanted.fault)
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] |= {"name": pod_name(run, wanted.fault), "namespace": NAMESPACE, "labels": labels}
    container = pod["spec"]["containers"][0]
    container["resources"]["limits"][GPU] = str(wanted.gpus)
    container["volumeMounts"].append({"name": "driver", "mountPath": f"/node{PROC_DRIVER}", "readOnly": True})
    need_go(pod, run)
    pod["spec"]["volumes"].append({"name": "driver", "hostPath": {"path": PROC_DRIVER}})
    pod["spec"] |= {
        "nodeName": node,
        "serviceAccountName": INJECTOR,
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "activeDeadlineSeconds": round(settings.deadline_s + settings.start_s + 30),
    }
    return pod
