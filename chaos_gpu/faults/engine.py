"""Carry out a plan: everything that undoes it is in place before anything is changed."""

import time
from typing import Any

from chaos_gpu.cluster.client import JSON_PATCH, JsonObject
from chaos_gpu.cluster.clock import compare_clocks
from chaos_gpu.cluster.watch import Change, Recorder
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.errors import Conflict, Invalid, NotLanded, Refused, TargetError
from chaos_gpu.faults import intent, ours
from chaos_gpu.faults.keeper import Keeper
from chaos_gpu.faults.ledger import utc
from chaos_gpu.faults.names import EXERCISE, EXERCISE_REASON, LEASE, NAMESPACE, collection_of, jobs_path
from chaos_gpu.faults.observe import events_on, kept
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.pods import CONTAINER, events_of, reverter_job, start_job, start_pod
from chaos_gpu.faults.run import Injection, Run
from chaos_gpu.faults.targets import unfit


def inject_planned(run: Run, fault: str) -> Landed:
    """Inject a fault of the guard's plan.

    Raises: UsageError for one that is not in it, NotLanded for one that had nothing to act on when it was planned;
    otherwise as `inject`.
    """
    plan = run.planned(fault)
    if plan.pod is None and not plan.changes:
        told = dict.fromkeys(plan.obstacles.values())
        raise NotLanded(f"{fault}: {'; '.join(map(str, told))}", remedy="; ".join(each.remedy for each in told))
    landed = inject(run, plan).landed
    assert landed is not None  # noqa: S101 - inject raises otherwise
    return landed


def inject(run: Run, plan: Plan) -> Injection:
    """Inject one fault and prove that it landed.

    Raises: TargetError when the target is not fit any more, NotLanded when the effect was not read back, Refused when
    another run holds the Lease, ApiError and ApiUnavailable as they come.
    """
    run.check()
    _require_settled(run, plan)
    try:
        _engage(run)
    except Refused as failure:
        run.refused = {"reason": failure.reason, "remedy": failure.remedy}
        raise
    node = _require_fit(run, plan)
    known = frozenset(events_on(run.api, plan.target.node))
    note = intent.exercise_note(run, plan)
    run.injections[plan.fault] = injection = Injection(plan, known, note)
    run.ledger.write(intent.ahead(run, plan, note))
    run.check()
    _mark_node(run, plan, note)
    _replace_mark(run, plan, node)
    run.check()
    injection.landed = _land(run, injection)
    return injection


def _engage(run: Run) -> None:
    """Before the first change: reverter alive, Lease held, ledger open, recorder running."""
    if run.recorder:
        return
    if run.engaged:
        raise NotLanded("the run could not be secured at its first fault: nothing more is injected")
    run.engaged = True
    spec = {
        "run": run.id,
        "namespace": NAMESPACE,
        "lease": LEASE,
        "lease_s": run.settings.lease_s,
        "ledger_wait_s": min(30.0, max(5.0, 2 * run.settings.lease_s)),
    }
    avoid = sorted({plan.target.node for plan in run.plans.values()})
    run.keeper = Keeper(run)
    run.keeper.make_way()
    start_job(run.api, reverter_job(run.settings, run.id, avoid, spec), run.ledger.token, run.settings.start_s)
    run.keeper.acquire()
    about = {"experiment": run.title, "owner": run.owner, "environment": run.settings.environment}
    run.ledger.open({**about, "seed": run.settings.seed or run.id})
    run.keeper.start()
    recorder = Recorder(run.api, "/api/v1/nodes", run.settings.selector, kept)
    recorder.start()
    run.recorder = recorder


def _require_settled(run: Run, plan: Plan) -> None:
    if plan.fault in run.injections:
        raise TargetError(f"fault {plan.fault} was injected already in this run")
    for fault, injection in run.injections.items():
        if injection.plan.consequence and not injection.settled:
            raise TargetError(
                f"the consequence of {fault} is not settled yet",
                remedy="call revert and recovered for it first: faults are injected one at a time",
            )


def _require_fit(run: Run, plan: Plan) -> JsonObject:
    node = run.api.get(f"/api/v1/nodes/{plan.target.node}")
    if node["metadata"]["uid"] != plan.target.node_uid:
        raise TargetError(f"node {plan.target.node} was replaced since the plan was made")
    if reason := unfit(node, run.watchers.conditions(), run.watchers.attribution()):
        raise TargetError(f"node {plan.target.node} is not fit as a target: {reason}")
    return node


def _mark_node(run: Run, plan: Plan, note: str) -> None:
    """Tell the people on call, and time by the same change how long the watch takes to show one."""
    sent_at = time.monotonic()
    run.api.patch(f"/api/v1/nodes/{plan.target.node}", {"metadata": {"annotations": {EXERCISE: note}}})

    def marked(change: Change) -> bool:
        return (change.object["metadata"].get("annotations") or {}).get(EXERCISE) == note

    assert run.recorder is not None  # noqa: S101 - engaged runs have one
    if not run.recorder.wait_for(lambda changes: any(map(marked, changes)), sent_at + run.api.deadlines.total_s):
        raise NotLanded(f"{plan.fault}: the watch on the nodes does not show our own mark: a reaction would be missed")
    shown_at = next(change.at_s for change in run.recorder.changes if marked(change))
    run.watch_delay_s = max(run.watch_delay_s, shown_at - sent_at)
    run.api.create("/api/v1/namespaces/default/events", _event(run, plan))


def _replace_mark(run: Run, plan: Plan, before: JsonObject) -> None:
    """Note in the ledger that an earlier fault's mark is gone: the new one, which has its own undo, took its place."""
    there = (before["metadata"].get("annotations") or {}).get(EXERCISE)
    for injection in run.injections.values():
        if injection.note == there:
            run.ledger.write(intent.replaced(injection.plan, there, plan))


def _event(run: Run, plan: Plan) -> JsonObject:
    now = utc().split(".")[0] + "Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "chaos-gpu-", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": plan.target.node, "uid": plan.target.node_uid, "apiVersion": "v1"},
        "reason": EXERCISE_REASON,
        "message": f"this is an exercise: run {run.id} of {run.owner} injects {plan.change}",
        "type": "Normal",
        "source": {"component": "chaos-gpu"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _land(run: Run, injection: Injection) -> Landed:
    """Start the injector and wait for its proof. Raises NotLanded with the reason."""
    plan = injection.plan
    _make(run, plan)
    changed = _change(run, plan)
    if plan.pod is None:
        landed = _changed(plan, changed)
        run.ledger.write(intent.after(run, plan, landed, ""))
        return landed
    name, over = plan.pod["metadata"]["name"], ""
    start_pod(run.api, plan.pod, run.settings.start_s)
    for event in events_of(run.api, name, run.settings.start_s):
        if event["event"] == "landed":
            landed = _landed(run, plan, name, event["evidence"])
            run.ledger.write(intent.after(run, plan, landed, str(event["evidence"].get("boot_id", ""))))
            return landed
        if event["event"] == "failed":
            reason = str(event.get("reason"))
            if event.get("written"):  # the record may be there all the same: see a reaction through
                raise NotLanded(f"{plan.fault}: {reason}")
            raise _never(run, injection, reason)
        if event["event"] == "holding":
            if over:  # for one event and the time to the next: what it did before it was over has been said by now
                raise _never(run, injection, f"what it waits for is over: {over}")
            over = _over(run, plan)
    raise NotLanded(f"{plan.fault}: the injector ended without a word", remedy=f"kubectl -n {NAMESPACE} logs {name}")


def _never(run: Run, injection: Injection, reason: str) -> NotLanded:
    """Write down that nothing was injected. Returns what is to be raised."""
    run.ledger.write(intent.never(run, injection.plan, reason))
    injection.settled = True
    return NotLanded(f"{injection.plan.fault}: {reason}")


def _over(run: Run, plan: Plan) -> str:
    """Say how the Job that is to be hit has ended, the first of the plan's; "" while it has not."""
    name = next((body["metadata"]["name"] for body in plan.objects if body["kind"] == "Job"), "")
    if not name:
        return ""
    job = run.api.find(f"{jobs_path()}/{name}")
    if job is None:
        return f"Job {name} is gone"
    conditions = (job.get("status") or {}).get("conditions") or ()
    ends = (each["type"] for each in conditions if each["type"] in ("Complete", "Failed") and each["status"] == "True")
    return next((f"Job {name} is {end}" for end in ends), "")


def _make(run: Run, plan: Plan) -> None:
    """Make the objects of a fault. Each belongs to the run's reverter too: with that it goes, come what may."""
    if not plan.objects:
        return
    reverter = run.api.get(f"{jobs_path()}/chaos-gpu-reverter-{run.id}")["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": reverter["name"], "uid": reverter["uid"]}
    for number, body in enumerate(plan.objects, start=2 + len(plan.changes)):
        collection = collection_of(body)
        owned = {**body, "metadata": {**body["metadata"], "ownerReferences": [owner]}}
        if body["kind"] != "Job":  # what it reads goes with the reverter: nobody needs a right to delete ledgers
            ours.create(run.api, collection, owned, run.ledger.token)
            continue
        path = f"{collection}/{body['metadata']['name']}"
        run.ledger.write(intent.made(plan, number, body, path))  # ahead: its name is the run's own
        try:
            found = {**owned, **ours.create(run.api, collection, owned, run.ledger.token)}
        except Conflict:
            run.ledger.write(intent.made(plan, number, body, path, "foreign"))
            raise
        run.ledger.write(intent.made(plan, number, found, path))


def _change(run: Run, plan: Plan) -> tuple[float, float]:
    """Make the changes of a fault through the API. Returns when they began and when they were there (monotonic)."""
    began_s = time.monotonic()
    for change in plan.changes:
        patch = [{"op": "test", "path": "/metadata/uid", "value": change.uid}, *change.patch]
        try:
            run.api.patch(change.path, patch, JSON_PATCH)
        except (Conflict, Invalid) as failure:
            raise NotLanded(f"{plan.fault}: {change.what}: not as it was when planned: {failure.reason}") from failure
    return began_s, time.monotonic()


def _changed(plan: Plan, between_s: tuple[float, float]) -> Landed:
    """Say that the changes are there: the API server has answered each."""
    first_s, last_s = between_s
    return Landed(
        at_s=(first_s + last_s) / 2,
        error_s=(last_s - first_s) / 2,
        code=0,
        pci="",
        gpu_uuid="",
        node=plan.target.node,
        node_uid=plan.target.node_uid,
        marker=plan.facts["marker"],
        text="; ".join(change.what for change in plan.changes),
        seq=0,
        called=_called(plan),
    )


def _landed(run: Run, plan: Plan, pod: str, evidence: dict[str, Any]) -> Landed:
    """Put the time of the change on the runner's clock.

    It came about between two readings of the node's clock; a record's kernel time stands if it lies between them.
    """
    clock = compare_clocks(run.api, NAMESPACE, pod, CONTAINER)
    first_ns, last_ns = evidence["between_ns"]
    kernel_ns = evidence.get("kernel_us", 0) * 1000
    at_ns = kernel_ns if first_ns <= kernel_ns <= last_ns else (first_ns + last_ns) / 2
    return Landed(
        at_s=clock.on_runner(at_ns),
        error_s=clock.error_s + max(at_ns - first_ns, last_ns - at_ns) / 1e9,
        code=plan.facts.get("code", 0),
        pci=evidence.get("switch", "").rpartition(".")[0] or evidence.get("gpu", {}).get("pci", ""),
        gpu_uuid=evidence.get("gpu", {}).get("uuid", ""),
        node=plan.target.node,
        node_uid=plan.target.node_uid,
        marker=plan.facts["marker"],
        text=evidence["text"],
        seq=evidence.get("seq", 0),
        evidence=evidence,
        called=_called(plan),
    )


def _called(plan: Plan) -> str:
    """Name a fault for people; one that is no error with a code goes by its own name in the experiment."""
    return str(plan.facts.get("called") or ("" if plan.facts.get("code") else plan.fault))
