"""Fault: a bad sample in a node's DCGM engine, where health watches, exporter and diagnostics look for real ones."""

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.dcgm.injection import Injection, injection
from chaos_gpu.errors import Refused
from chaos_gpu.faults.dcgm_pods import Engine, dcgm_pod, engine_on
from chaos_gpu.faults.detectors import Detector
from chaos_gpu.faults.names import marker_of
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import Aim, GpuFaultArguments, Planning
from chaos_gpu.faults.pods import run_labels
from chaos_gpu.faults.xid import check_name, foreseen_by, pod_name

KIND = "dcgm"
READ_RIGHT, CRITERION = "DEV-08", "DEV-09"
REMEDY_WATCHER = 'declare what acts on DCGM\'s health: "dcgm": true in its chaos-gpu/detector-profile (docs/safety.md)'


class DcgmArguments(GpuFaultArguments):
    """The sample that an experiment asks for.

    Attributes:
        error: a name of `criteria.dcgm.injection.NAMED`, or "" for a raw field.
        field: DCGM's number, 0 with a name.
        value: a number as text; "" for the named error's own.
        allow_sticky: inject even what only a restart of the engine removes.
    """

    error: str = ""
    field: int = 0
    value: str = ""
    allow_sticky: bool = False


def plan_dcgm(planning: Planning, wanted: DcgmArguments) -> Plan:
    """Decide one injection into DCGM. Nothing is changed.

    Raises: UsageError for bad input, TargetError without a target, Refused where the node's engine takes no injections,
    or for what would stay. A node without any is no refusal: then nothing can be judged there.
    """
    check_name(wanted.fault)
    sample = injection(wanted.error, wanted.field, wanted.value)
    if sample.sticky and not wanted.allow_sticky:
        raise Refused(
            f"{wanted.fault}: {sample.sticky}; putting the value back mends the exporter only",
            remedy="if that may be, give allow_sticky: true, and restart the node's nvidia-dcgm pod afterwards",
        )
    aim, settings = planning.aim(wanted), planning.settings
    engine = engine_on(planning.api, aim.target.node)
    if engine.there and engine.closed:
        raise Refused(engine.closed, remedy=engine.remedy)
    watching = _watching(planning)
    return Plan(
        fault=wanted.fault,
        kind=KIND,
        target=aim.target,
        detectors=tuple(watching),
        change=f"DCGM's cache says {sample}; renewed until the end; hardware and driver are not touched",
        undo=_undo(sample),
        consequence=foreseen_by(watching, settings),
        deadline_s=settings.deadline_s,
        facts=_facts(planning.run, wanted.fault, sample),
        pod=_injector(planning, wanted.fault, sample, aim),
        obstacles=_obstacles(engine, watching),
    )


def _watching(planning: Planning) -> list[Detector]:
    return [each for each in planning.watchers.detectors if each.profile.dcgm]


def _obstacles(engine: Engine, watching: list[Detector]) -> dict[str, Obstacle]:
    if engine.closed:
        return dict.fromkeys((READ_RIGHT, CRITERION), Obstacle(engine.closed, engine.remedy))
    return {} if watching else {CRITERION: Obstacle("no detector is known to watch DCGM's health", REMEDY_WATCHER)}


def _undo(sample: Injection) -> str:
    back = "the value that was there is put back, dated later than any that was injected"
    if sample.sticky:
        return f"{back}; that is not all: {sample.sticky}"
    return f"{back}; health feels the change once more, a minute later" if sample.grows else back


def _facts(run: str, fault: str, sample: Injection) -> dict[str, object]:
    code = int(sample.value) if sample.sticky else sample.named.code if sample.named else 0
    known = {"error": sample.error, "field": sample.field, "value": sample.value, "sticky": sample.sticky}
    return {"marker": marker_of(run, fault), "called": sample.called, "code": code, **known}


def _injector(planning: Planning, fault: str, sample: Injection, aim: Aim) -> JsonObject:
    settings = planning.settings
    spec = {
        "mode": "inject",
        "gpu": aim.target.gpu,
        "field": sample.field,
        "value": sample.value,
        "step": sample.value if sample.grows else 0,
        "baseline": sample.facts.baseline,
        "systems": sample.facts.systems,
        "refuse": aim.exhausted,
        "deadline_s": settings.deadline_s,
        "sticky": sample.sticky,
    }
    name, labels = pod_name(planning.run, fault), run_labels(planning.run, "injector", fault)
    pod = dcgm_pod(settings, name, aim.target.node, labels, spec)
    pod["spec"]["activeDeadlineSeconds"] = round(settings.deadline_s + settings.start_s + 30)
    return pod
