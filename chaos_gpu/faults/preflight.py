"""Everything that is checked before a run may change anything: usage, safety, rights, targets, budgets."""

import getpass
import os
import socket
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from chaos_gpu.cluster.client import Api, connect
from chaos_gpu.criteria.registry import owed
from chaos_gpu.errors import ApiError, ApiUnavailable, Forbidden, NotFound, Refused, TargetError, UsageError
from chaos_gpu.faults.activities import check_guard_is_whole, resolved
from chaos_gpu.faults.budget import check_blast_radius, check_repeats, injections_per_gpu
from chaos_gpu.faults.detectors import Detector, Watchers, find_watchers
from chaos_gpu.faults.expected import check_expected
from chaos_gpu.faults.kinds import Kind, arguments_of, kind_of
from chaos_gpu.faults.ledger import CLOSED, OPEN, STUCK, Ledger, ledgers, recent_faults
from chaos_gpu.faults.names import ENABLED, ENVIRONMENT, INJECTOR, NAMESPACE
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import FaultArguments, GpuFaultArguments, Planning
from chaos_gpu.faults.rights import ENGINE, missing_rights
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.settings import GuardArguments, Settings, new_run_id
from chaos_gpu.faults.targets import gpu_nodes


def arm(
    experiment: dict[str, Any], configuration: dict[str, Any], secrets: dict[str, Any], arguments: dict[str, Any]
) -> Run:
    """Check everything and make the run. Changes nothing.

    Raises: UsageError and Refused with the remedy; other errors of the tree as the API gives them.
    """
    settings, guard = Settings.read(configuration), GuardArguments.read(arguments)
    check_guard_is_whole(experiment)
    activities = resolved(experiment, configuration, secrets)
    run_id = settings.run or os.environ.get("CHAOS_GPU_RUN") or new_run_id()
    api = connect(settings.context)
    check_opted_in(api, settings)
    check_rights(api)
    check_no_other_run(api, run_id)
    watchers = find_watchers(api)
    check_remediators(watchers, guard)
    injecting = [(kind, arguments_of(kind, each)) for each in activities if (kind := kind_of(each))]
    plans = _plans(_planning(api, settings, guard, watchers, run_id, injecting), injecting)
    check_injectors_rights(api, plans.values())
    check_expected(activities, plans, settings)
    return Run(
        id=run_id,
        title=str(experiment.get("title", "")),
        owner=owner(),
        api=api,
        settings=settings,
        guard=guard,
        watchers=watchers,
        detectors=_judged_by(plans.values()),
        plans=plans,
        owed=owed(experiment),
        ledger=Ledger(api, run_id),
    )


def owner() -> str:
    """Say who runs this, for the people on call; in a pod the user may have no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid-{os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def check_opted_in(api: Api, settings: Settings) -> None:
    """Refuse a cluster that did not opt in, or another one than the experiment is meant for."""
    try:
        namespace = api.get(f"/api/v1/namespaces/{NAMESPACE}")
    except NotFound as failure:
        raise Refused(
            f"cluster {settings.context} is not open to experiments: it has no namespace {NAMESPACE}",
            remedy=f"chaos-gpu install --context {settings.context} --environment <name>",
        ) from failure
    annotations = namespace["metadata"].get("annotations") or {}
    if annotations.get(ENABLED) != "true":
        raise Refused(f"cluster {settings.context} has opted out ({ENABLED} is not true)", remedy="ask its owners")
    if not settings.environment:
        raise Refused(
            f"which environment the experiment is meant for is not said; cluster {settings.context} is"
            f" {annotations.get(ENVIRONMENT)!r}",
            remedy=f"set CHAOS_GPU_ENVIRONMENT={annotations.get(ENVIRONMENT)}, if you really mean this cluster",
        )
    if annotations.get(ENVIRONMENT) != settings.environment:
        raise Refused(
            f"the experiment is meant for environment {settings.environment!r},"
            f" cluster {settings.context} is {annotations.get(ENVIRONMENT)!r}",
            remedy="set CHAOS_GPU_ENVIRONMENT to the cluster's, if you really mean this cluster",
        )


def check_rights(api: Api) -> None:
    """Refuse when a right is missing that a run, or its undoing, needs."""
    missing = missing_rights(api, ENGINE)
    if missing:
        raise Refused(
            f"the user of context {api.context} may not {'; '.join(map(str, missing))}",
            remedy="chaos-gpu install grants them to ServiceAccount chaos-gpu-runner; see chaos-gpu doctor",
        )


def check_injectors_rights(api: Api, plans: Iterable[Plan]) -> None:
    """Refuse when an injector would lack a right that it needs to do its fault: it would find out in the middle."""
    needed = list(dict.fromkeys(right for plan in plans for right in plan.rights))
    remedy = "chaos-gpu install grants it anew; are its roles older than this version?"
    try:
        missing = missing_rights(api, needed, INJECTOR)
    except Forbidden as failure:
        raise Refused(f"whether the injectors may do their work cannot be asked: {failure.reason}", remedy) from failure
    if missing:
        raise Refused(f"ServiceAccount {INJECTOR} may not {'; '.join(map(str, missing))}", remedy)


def check_no_other_run(api: Api, run: str) -> None:
    """Refuse while another run is active, or one has left a fault behind, or had this run's id."""
    for entry in ledgers(api):
        if entry.state == STUCK:
            raise Refused(
                f"run {entry.run} left something behind: {'; '.join(entry.open_items)[:400] or 'see its ledger'}",
                remedy=f"chaos-gpu recover {entry.run}",
            )
        if entry.state == OPEN:
            raise Refused(
                f"run {entry.run} is active",
                remedy=f"wait for it, or: chaos-gpu abort {entry.run}; if its runner is gone, recover instead of abort",
            )
        if entry.state != CLOSED:
            raise Refused(f"the ledger of run {entry.run} cannot be read", remedy=f"chaos-gpu recover {entry.run}")
        if entry.unreadable:
            raise Refused(
                f"the ledger of run {entry.run} cannot be read ({', '.join(entry.unreadable)}):"
                " what it did to which GPU is not known",
                remedy=f"look at ConfigMap {NAMESPACE}/chaos-gpu-run-{entry.run}, and mend or delete it",
            )
        if entry.run == run:
            raise Refused(f"run id {run} was used before", remedy="unset CHAOS_GPU_RUN or choose a new one")


def check_remediators(watchers: Watchers, guard: GuardArguments) -> None:
    """Refuse when something on the cluster may do more to a node than allowed: it would on a fake record too."""
    allowed = set(guard.allow_remediation)
    for remediator in watchers.remediators:
        over = [action for action in remediator.actions if action not in allowed]
        if over:
            raise Refused(
                f"{remediator.name} may {', '.join(over)} a node when it sees the fault",
                remedy=f"pause it, or allow that openly: allow_remediation: [{', '.join([*sorted(allowed), *over])}]",
            )


def _plans(planning: Planning, injecting: list[tuple[Kind, FaultArguments]]) -> dict[str, Plan]:
    plans: dict[str, Plan] = {}
    for kind, arguments in injecting:
        plan = kind.plan(planning, arguments)
        if plan.fault in plans:
            raise UsageError(f"fault name {plan.fault!r} is used twice", remedy="each inject_… needs a name of its own")
        plans[plan.fault] = plan
    check_blast_radius(plans.values(), planning.guard, len(planning.fleet))
    check_repeats(plans.values(), planning.had, planning.guard)
    return plans


def _planning(
    api: Api,
    settings: Settings,
    guard: GuardArguments,
    watchers: Watchers,
    run: str,
    injecting: list[tuple[Kind, FaultArguments]],
) -> Planning:
    planning = Planning(
        api=api,
        settings=settings,
        guard=guard,
        run=run,
        watchers=watchers,
        fleet=gpu_nodes(api, settings.selector) if injecting else [],
        had=injections_per_gpu(recent_faults(api, datetime.now(UTC))) if injecting else Counter(),
        times=Counter(),
    )
    hits = (arguments for _, arguments in injecting if isinstance(arguments, GpuFaultArguments))
    planning.times.update(planning.wanted(each) for each in hits)
    return planning


def _judged_by(plans: Iterable[Plan]) -> list[Detector]:
    """List the detectors that will be judged; none where a fault would go unseen."""
    groups = [plan.detectors for plan in plans if plan.consequence]
    seeing = {each.name: each for group in groups for each in group}
    return list(seeing.values()) if all(groups) else []


REFUSALS = (UsageError, Refused, TargetError, ApiError, ApiUnavailable)
"""Errors that, before anything was changed, mean "not started"."""
