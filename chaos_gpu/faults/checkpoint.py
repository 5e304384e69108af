"""Faults: a training killed in the middle of a save, and one that is told to end."""

from typing import Any

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.errors import Refused, UsageError
from chaos_gpu.faults.manifest import NEEDS_JOB, gpus_of, grace_s_of, load
from chaos_gpu.faults.names import NAMESPACE, marker_of
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import Aim, GpuFaultArguments, Planning
from chaos_gpu.faults.pods import node_pod, run_labels
from chaos_gpu.faults.rights import INJECTOR_RIGHTS_BY
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.training import SUBJECT, mark_of, roles_of, trainings
from chaos_gpu.faults.xid import check_name, pod_name
from chaos_gpu.payloads.eviction import BY_API

PAYLOAD = "save_killer"
JUDGED = tuple(f"CKPT-0{number}" for number in range(1, 8))
PHASES = ("data", "sync", "commit", "pointer", "retention")
KILLS = ("freeze", "init", "rank", *BY_API)
ATTEMPTS = 10
MEMORY, GRACE_S = "2Gi", 20
"""Of the injector: it reads checkpoints, and removes them."""


class KillArguments(GpuFaultArguments):
    """Where in a save the training is to be killed, and how.

    Attributes:
        phase: one of `PHASES`.
        fraction: in phase data, share of the bytes of the save before.
        bytes: instead of a fraction, so many.
        files: instead of a fraction, so many files.
        means: one of `KILLS`.
    """

    phase: str = "data"
    fraction: float = 0.5
    bytes: int = 0
    files: int = 0
    means: str = "freeze"


class PreemptArguments(GpuFaultArguments):
    """How a training is told to end between two saves: `evict`, `delete` or `force`."""

    means: str = "evict"


def plan_kill(planning: Planning, wanted: KillArguments) -> Plan:
    """Decide one kill in the middle of a save. Raises UsageError for bad input, TargetError without a target."""
    if wanted.phase not in PHASES:
        raise UsageError(f"{wanted.fault}: no phase {wanted.phase!r}", f"one of: {', '.join(PHASES)}")
    if wanted.means not in KILLS:
        raise UsageError(f"{wanted.fault}: no means {wanted.means!r}", f"one of: {', '.join(KILLS)}")
    if not 0 < wanted.fraction < 1 or min(wanted.bytes, wanted.files) < 0:
        raise UsageError(f"{wanted.fault}: the fraction lies between 0 and 1", "fraction: 0.5")
    place = f"{wanted.phase} {wanted.fraction:.0%}" if wanted.phase == "data" else wanted.phase
    where = {"phase": wanted.phase, "fraction": wanted.fraction, "bytes": wanted.bytes, "files": wanted.files}
    change = f"a training of its own is killed ({wanted.means}) in the middle of a save ({place})"
    return _plan(planning, wanted, {**where, "means": wanted.means}, change, roles_of(planning.settings.references))


def plan_preempt(planning: Planning, wanted: PreemptArguments) -> Plan:
    """Decide one preemption. Raises UsageError for bad input, TargetError without a target."""
    if wanted.means not in BY_API:
        raise UsageError(f"{wanted.fault}: no means {wanted.means!r}", f"one of: {', '.join(BY_API)}")
    change = f"a training of its own is told to end ({wanted.means}) between two saves"
    return _plan(planning, wanted, {"phase": "step", "means": wanted.means}, change, (SUBJECT,))


def _plan(
    planning: Planning, wanted: GpuFaultArguments, how: dict[str, Any], change: str, roles: tuple[str, ...]
) -> Plan:
    check_name(wanted.fault)
    settings, run, fault = planning.settings, planning.run, wanted.fault
    aim = planning.aim(wanted)
    grace_s = 0.0
    if settings.job:
        job, _ = load(settings.job)
        _check_gpus(fault, len(roles) * gpus_of(job), planning.guard.gpus)
        grace_s = grace_s_of(job) if how["means"] != "force" else 0.0
    spec = {
        **how,
        "subject": mark_of(run, fault, SUBJECT),
        "references": [mark_of(run, fault, role) for role in roles if role != SUBJECT],
        "namespace": NAMESPACE,
        "grace_s": grace_s,
        "attempts": ATTEMPTS,
        "wait_s": settings.deadline_s,
        "deadline_s": settings.deadline_s + settings.resume_s,
    }
    return Plan(
        fault=fault,
        kind="kill-during-save" if how["phase"] != "step" else "preempt",
        target=aim.target,
        detectors=(),
        change=change,
        undo=(
            "none: a killed process stays killed; instead: the run's own trainings are deleted, with their checkpoints"
            f" (if the injector cannot: {run}-{fault}-* stays where they were saved)"
        ),
        deadline_s=settings.deadline_s + settings.resume_s,
        facts={"marker": marker_of(run, fault), **how},
        pod=_injector(settings, run, fault, aim, spec) if settings.job else None,
        objects=tuple(_made(planning, fault, aim.target.node, roles)) if settings.job else (),
        rights=INJECTOR_RIGHTS_BY.get(how["means"], ()) if settings.job else (),
        obstacles={} if settings.job else dict.fromkeys(JUDGED, Obstacle("no training is given", NEEDS_JOB)),
    )


def _made(planning: Planning, fault: str, node: str, roles: tuple[str, ...]) -> list[JsonObject]:
    settings = planning.settings
    return trainings(settings.job, planning.run, fault, node, roles, settings.deadline_s + settings.resume_s)


def _check_gpus(fault: str, wanted: int, allowed: int) -> None:
    if wanted > allowed:
        raise Refused(
            f"{fault}: its trainings would hold {wanted} GPUs, {allowed} may be touched",
            remedy="let the Job ask for fewer, or raise the guard's `gpus`",
        )


def _injector(settings: Settings, run: str, fault: str, aim: Aim, spec: dict[str, Any]) -> JsonObject:
    """Make the pod that watches and kills: with the node's processes and cgroups in sight."""
    pod = node_pod(settings, pod_name(run, fault), aim.target.node, run_labels(run, "injector", fault), PAYLOAD, spec)
    container = pod["spec"]["containers"][0]
    container["resources"]["limits"]["memory"] = MEMORY
    pod["spec"]["terminationGracePeriodSeconds"] = GRACE_S
    container["env"] = [*container.get("env", []), {"name": "CGROUP_ROOT", "value": "/node/cgroup"}]
    container["volumeMounts"].append({"name": "cgroup", "mountPath": "/node/cgroup"})
    pod["spec"]["volumes"].append({"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup", "type": "Directory"}})
    pod["spec"] |= {"hostPID": True, "automountServiceAccountToken": spec["means"] in BY_API}
    pod["spec"]["activeDeadlineSeconds"] = round(spec["wait_s"] + spec["deadline_s"] + settings.start_s + 30)
    return pod
