"""Fault: fake records of an Xid or SXid in a node's kernel log, where the platform's detectors look for real ones."""

from collections.abc import Sequence

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.xid.catalog import lookup
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.criteria.xid.record import PCI_PLACEHOLDER, Form, Record, Transport, compose, writes
from chaos_gpu.errors import Refused, UsageError
from chaos_gpu.faults.detectors import REMEDY_DETECTOR, Detector, cannot_judge
from chaos_gpu.faults.names import FAULT_NAME, marker_of
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.plan import Consequence, Plan
from chaos_gpu.faults.planning import Aim, GpuFaultArguments, Planning
from chaos_gpu.faults.pods import node_pod, run_labels
from chaos_gpu.faults.settings import GuardArguments, Settings

KIND, PAYLOAD = "xid", "kmsg"
JUDGED = ("DEV-02", "DEV-06", "DEV-07")
LANDING_S = 5
"""How long the injector looks for its records, seconds."""

DCGM_BLANKS_ALL = 119
"""DCGM's kernel log reader takes this code for a dead driver and blanks every field until its engine restarts."""


class XidArguments(GpuFaultArguments):
    """The records that an experiment asks for.

    Attributes:
        code: an Xid code of the catalogue; for form `sxid`, an NVSwitch's.
        form: how they are worded, one of `Form`.
        variant: of the form, "" for its default.
        transport: `kmsg`, `bracket`, `both`, or "" for what the target's detectors read.
    """

    code: int
    form: str = "process"
    variant: str = ""
    transport: str = ""


def plan_xid(planning: Planning, wanted: XidArguments) -> Plan:
    """Decide one Xid injection.

    Raises: UsageError for bad input, Refused for a code that needs to be allowed by name, TargetError without a target.
    """
    return xid_plan(planning.settings, planning.guard, planning.run, wanted, planning.aim(wanted))


def xid_plan(settings: Settings, guard: GuardArguments, run: str, wanted: XidArguments, aim: Aim) -> Plan:
    """Decide one Xid injection on a chosen target.

    Args:
        settings: the experiment's configuration.
        guard: what the experiment allows.
        run: the run's id.
        wanted: the record.
        aim: the target and what watches over it.

    Raises: UsageError for bad input, Refused for a code that needs to be allowed by name.
    """
    fault, code = wanted.fault, wanted.code
    check_name(fault)
    transport = transport_for(wanted, aim.detectors)
    marker = marker_of(run, fault)
    record = compose(code, PCI_PLACEHOLDER, form=wanted.form, variant=wanted.variant, marker=marker)
    check_code(fault, code, transport, guard)
    scan = {"mode": "scan", "markers": [marker], "after_seq": 0}
    seeing = tuple(each for each in aim.detectors if each.profile.sees(transport))
    facts = {"code": code, "form": str(record.form), "variant": record.variant, "transport": str(transport)}
    return Plan(
        fault=fault,
        kind=KIND,
        target=aim.target,
        detectors=seeing,
        change=_change(record, transport),
        undo="none: a kernel record stays in the log; instead: the platform's reaction is seen through",
        consequence=foreseen_by(aim.detectors, settings),
        deadline_s=settings.deadline_s,
        facts={**facts, "called": record.called, "marker": marker, "text": record.text},
        pod=_injector(settings, run, fault, aim, record, transport),
        scan_pod=node_pod(
            settings, f"{pod_name(run, fault)}-scan", aim.target.node, run_labels(run, "scan", fault), PAYLOAD, scan
        ),
        obstacles=no_policy(record) or obstacles(seeing, settings.action_for(code)),
    )


def no_policy(record: Record) -> dict[str, Obstacle]:
    """Say that no criterion on Xids speaks of an NVSwitch's error."""
    remedy = "see by detectors_see who sees it; it judges nothing, so leave the criterion out of criteria_hold"
    obstacle = Obstacle(f"SXid {record.code}: the policy is one of Xids", remedy)
    return dict.fromkeys(JUDGED, obstacle) if record.form is Form.SXID else {}


def _change(record: Record, transport: Transport) -> str:
    count = len(writes(record, transport))
    many = "one kernel record" if count == 1 else f"{count} kernel records"
    what = f"SXid {record.code}" if record.form is Form.SXID else f"Xid {record.code} ({lookup(record.code).mnemonic})"
    return f"{many} {what}, {record.shape}, transport {transport}"


def obstacles(detectors: Sequence[Detector], action: Action) -> dict[str, Obstacle]:
    """Say which criteria could not be judged by what these detectors tell: criterion → why."""
    found = {criterion: cannot_judge(criterion, detectors, action) for criterion in JUDGED}
    return {criterion: Obstacle(why, REMEDY_DETECTOR) for criterion, why in found.items() if why}


def check_name(fault: str) -> None:
    """Raise UsageError for a fault name that cannot be part of a pod's."""
    if not FAULT_NAME.fullmatch(fault):
        raise UsageError(
            f"fault name {fault!r} is not a DNS label of up to 20 characters",
            remedy="use lower-case letters, digits and dashes, as in xid-48",
        )


def check_code(fault: str, code: int, transport: Transport, guard: GuardArguments) -> None:
    """Raise Refused for a code that does harm of its own and was not allowed by name."""
    if code == DCGM_BLANKS_ALL and code not in guard.allow_codes and transport is not Transport.BRACKET:
        raise Refused(
            f"{fault}: a raw Xid {code} makes DCGM blank all its fields until its engine restarts",
            remedy=f"if that may be, add `allow_codes: [{code}]` to the guard's arguments",
        )


def foreseen_by(detectors: list[Detector], settings: Settings) -> Consequence:
    """Say what the detectors of a node may do about a fault record."""
    return Consequence(
        conditions=tuple(dict.fromkeys(name for each in detectors for name in each.profile.conditions)),
        attribution=tuple(dict.fromkeys(name for each in detectors for name in each.profile.attribution)),
        reaction_s=settings.reaction_s,
        uncordon_s=settings.uncordon_s,
    )


def pod_name(run: str, fault: str) -> str:
    """Name a fault's injector pod."""
    return f"chaos-gpu-{run}-{fault}"


def _injector(settings: Settings, run: str, fault: str, aim: Aim, record: Record, transport: Transport) -> JsonObject:
    spec = {
        "mode": "inject",
        "gpu": aim.target.gpu,
        "records": [data.decode() for data in writes(record, transport)],
        "marker": record.marker,
        "refuse": aim.exhausted,
        "deadline_s": settings.deadline_s,
        "landing_s": LANDING_S,
    }
    labels = run_labels(run, "injector", fault)
    pod = node_pod(settings, pod_name(run, fault), aim.target.node, labels, PAYLOAD, spec)
    pod["spec"]["activeDeadlineSeconds"] = round(settings.deadline_s + settings.start_s + 30)
    return pod


def transport_for(wanted: XidArguments, detectors: list[Detector]) -> Transport:
    """Choose how to write, so that the node's detectors can see it.

    Where some read what others do not, those that take nodes out of service decide: theirs is the reaction that is
    judged. Raises UsageError where that does not decide either.
    """
    if wanted.transport:
        if wanted.transport not in list(Transport):
            raise UsageError(
                f"{wanted.fault}: no transport {wanted.transport!r}", remedy=f"one of: {', '.join(Transport)}"
            )
        return Transport(wanted.transport)
    acting = [each for each in detectors if each.profile.actions or each.profile.attribution]
    every = _ways(detectors)
    for ways in (every, _ways(acting)):
        if len(ways) == 1:
            return Transport(ways.pop())
    if not every:
        return Transport.KMSG
    raise UsageError(
        f"{wanted.fault}: {' and '.join(each.name for each in detectors)} do not read the same records, and one write"
        " reaches one",
        remedy=f"name one at inject_xid, as transport: {' or '.join(sorted(every, reverse=True))}, and the other is not"
        " judged; or both, which writes it twice",
    )


def _ways(detectors: Sequence[Detector]) -> set[str]:
    """Say which ways of writing are the only one for some detector."""
    return {str(each.profile.transport) for each in detectors} - {"", "both"}
