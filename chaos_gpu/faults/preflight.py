"""Everything that is checked before a run may change anything: usage, safety, rights, targets, budgets."""

import getpass
import os
import socket
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from chaos_gpu.cluster.client import Api, JsonObject, connect
from chaos_gpu.criteria.registry import owed
from chaos_gpu.errors import ApiError, ApiUnavailable, NotFound, Refused, TargetError, UsageError
from chaos_gpu.faults.activities import INJECT_XID, Activity, check_guard_is_whole, does, resolved, xid_arguments
from chaos_gpu.faults.budget import GpuName, check_blast_radius, check_repeats, exhausted, injections_per_gpu
from chaos_gpu.faults.detectors import Detector, Watchers, detectors_by_node, find_watchers
from chaos_gpu.faults.ledger import CLOSED, OPEN, STUCK, Ledger, ledgers, recent_faults
from chaos_gpu.faults.names import ENABLED, ENVIRONMENT, NAMESPACE
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.rights import ENGINE, missing_rights
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.settings import GuardArguments, Settings, new_run_id
from chaos_gpu.faults.targets import Target, choose_gpu, choose_node, foreign_work, gpu_nodes, unfit
from chaos_gpu.faults.xid import Aim, Wanted, plan_xid


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
    plans, detectors = _plans(api, settings, guard, watchers, run_id, activities)
    return Run(
        id=run_id,
        title=str(experiment.get("title", "")),
        owner=owner(),
        api=api,
        settings=settings,
        guard=guard,
        watchers=watchers,
        detectors=detectors,
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
                f"run {entry.run} is active", remedy=f"wait for it, or: chaos-gpu abort {entry.run} (chaos-gpu status)"
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


def _plans(
    api: Api, settings: Settings, guard: GuardArguments, watchers: Watchers, run: str, activities: list[Activity]
) -> tuple[dict[str, Plan], list[Detector]]:
    wanted = [each for each in activities if does(each, INJECT_XID)]
    if not wanted:
        return {}, []
    had = injections_per_gpu(recent_faults(api, datetime.now(UTC)))
    times = Counter(_wanted(settings, xid_arguments(each)) for each in wanted)
    fleet = gpu_nodes(api, settings.selector)
    chooser = _Chooser(api, fleet, guard, watchers, had, times, settings.seed or run)
    plans: dict[str, Plan] = {}
    for activity in wanted:
        plan = _plan_one(settings, guard, run, activity, chooser)
        if plan.fault in plans:
            raise UsageError(f"fault name {plan.fault!r} is used twice", remedy="each inject_… needs a name of its own")
        plans[plan.fault] = plan
    check_blast_radius(plans.values(), guard, len(fleet))
    check_repeats(plans.values(), had, guard)
    groups = [plan.detectors for plan in plans.values()]
    seeing = {each.name: each for group in groups for each in group}
    return plans, list(seeing.values()) if all(groups) else []


def _wanted(settings: Settings, given: dict[str, Any]) -> tuple[str, str]:
    return given["node"] or settings.node, given["gpu"] or settings.gpu


def _plan_one(settings: Settings, guard: GuardArguments, run: str, activity: Activity, chooser: "_Chooser") -> Plan:
    given = xid_arguments(activity)
    aim = chooser.target(_wanted(settings, given))
    return plan_xid(settings, guard, run, Wanted(*(given[each] for each in Wanted._fields)), aim)


class _Chooser:
    """Chooses each target once, so that the faults of one experiment hit the same GPU unless told otherwise."""

    def __init__(
        self,
        api: Api,
        fleet: list[JsonObject],
        guard: GuardArguments,
        watchers: Watchers,
        had: Counter[GpuName],
        times: Counter[tuple[str, str]],
        seed: str,
    ) -> None:
        self._api, self._fleet, self._guard, self._watchers = api, fleet, guard, watchers
        self._had, self._times, self._seed = had, times, seed
        self._chosen: dict[tuple[str, str], Aim] = {}

    def target(self, wanted: tuple[str, str]) -> Aim:
        """Return the target, the detectors that read its kernel log, and the GPUs there without budget."""
        if wanted not in self._chosen:
            self._chosen[wanted] = self._choose(*wanted)
        return self._chosen[wanted]

    def _choose(self, wanted_node: str, wanted_gpu: str) -> Aim:
        node = choose_node(self._api, self._fleet, wanted_node, self._seed, self._why_not)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        spent = exhausted(uid, self._had, self._guard, self._times[wanted_node, wanted_gpu])
        gpu = choose_gpu(node, wanted_gpu, spent, self._seed)
        refuse = {each["uuid"]: "it had its injections of the last 24 h" for each in spent if "uuid" in each}
        target = Target(node=name, node_uid=uid, gpu=gpu)
        readers = detectors_by_node(self._api, self._watchers, name).get(name, [])
        return Aim(target, readers, refuse)

    def _why_not(self, node: JsonObject) -> str:
        reason = unfit(node, self._watchers.conditions(), self._watchers.attribution())
        if reason or self._guard.allow_foreign_work:
            return reason
        work = ", ".join(foreign_work(self._api, node["metadata"]["name"])[:3])
        return f"it runs {work}, which is not part of this run" if work else ""


REFUSALS = (UsageError, Refused, TargetError, ApiError, ApiUnavailable)
"""Errors that, before anything was changed, mean "not started"."""
