"""What the ledger says of one injection: intent, undo and foreseen consequence before it, the proof after it."""

import json
import time
from typing import Any

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.faults.ledger import utc
from chaos_gpu.faults.names import EXERCISE
from chaos_gpu.faults.plan import ApiChange, Plan
from chaos_gpu.faults.run import Run
from chaos_gpu.payloads.undo import GO

SPEC = "chaos-gpu/spec"


def exercise_note(run: Run, plan: Plan) -> str:
    """Say to the people on call what this is, on the node itself."""
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + plan.deadline_s))
    who = {"run": run.id, "fault": plan.fault, "owner": run.owner, "until": until}
    return json.dumps({"note": "this is an exercise", **who})


def ahead(run: Run, plan: Plan, note: str) -> dict[str, Any]:
    """Make the records to write before the change; written at once, so all of them are there or none."""
    own = {f"change.{plan.fault}.{number}": _undo_of(each) for number, each in enumerate(plan.changes, start=2)}
    return {
        f"fault.{plan.fault}": _fault(plan, plan.target.gpu, "planned"),
        **_mark(plan, note, state="planned"),
        **own,
        **_consequence(run, plan, {}),
        GO: {},
    }


def replaced(plan: Plan, said: str, later: Plan) -> dict[str, Any]:
    """Make the record to write once a later fault's mark stands where this one's was: there is nothing to undo."""
    return _mark(plan, said, state="gone", note=f"replaced by the mark of {later.fault}", ended_at=utc())


def after(run: Run, plan: Plan, landed: Landed, boot_id: str) -> dict[str, Any]:
    """Make the records to write once the fault has landed: where, and what its record looks like."""
    known = {"pci": landed.pci, "uuid": landed.gpu_uuid}
    gpu = {**plan.target.gpu, **{key: name for key, name in known.items() if name}}
    return {
        f"fault.{plan.fault}": {**_fault(plan, gpu, "landed"), "seq": landed.seq},
        **_consequence(run, plan, {"state": "landed"}, landed, boot_id),
    }


def never(run: Run, plan: Plan, reason: str) -> dict[str, Any]:
    """Make the records for a fault of which the injector says that it changed nothing: it does not count."""
    return {
        f"fault.{plan.fault}": {"fault": plan.fault, "state": "not landed", "reason": reason},
        **_consequence(run, plan, {"state": "settled", "how": f"nothing injected: {reason}"}),
    }


def foreseen(run: Run, plan: Plan, landed: Landed | None = None, boot_id: str = "") -> dict[str, Any]:
    """Make the record of a reaction of the platform that may come, with all that is needed to know it for ours."""
    assert plan.consequence is not None  # noqa: S101 - asked for where one is foreseen
    return {
        "fault": plan.fault,
        "node": plan.target.node,
        "selector": run.settings.selector,
        "schedulable_before": True,
        "code": plan.facts.get("code", 0),
        "marker": plan.facts["marker"],
        "pci": landed.pci if landed else plan.target.gpu.get("pci", ""),
        "gpu_uuid": landed.gpu_uuid if landed else plan.target.gpu.get("uuid", ""),
        **plan.consequence.model_dump(mode="json"),
        "scan": _scan_after(plan.scan_pod, landed.seq if landed else 0, boot_id) if plan.scan_pod else None,
        "state": "foreseen",
    }


def made(plan: Plan, number: int, found: JsonObject, path: str, state: str = "planned") -> dict[str, Any]:
    """Make the record of an object that is made for a fault: undone by its deletion. Its UID is not known ahead."""
    what = f"{found['kind']} {found['metadata']['name']}"
    record = {"what": what, "kind": "delete", "path": path, "uid": found["metadata"].get("uid", ""), "state": state}
    return {f"change.{plan.fault}.{number}": record}


def _consequence(
    run: Run, plan: Plan, state: dict[str, Any], landed: Landed | None = None, boot_id: str = ""
) -> dict[str, Any]:
    if plan.consequence is None:
        return {}
    return {f"consequence.{plan.fault}": {**foreseen(run, plan, landed, boot_id), **state}}


def _mark(plan: Plan, said: str, /, **state: str) -> dict[str, Any]:
    path = f"/metadata/annotations/{EXERCISE.replace('/', '~1')}"
    undo = [{"op": "test", "path": path, "value": said}, {"op": "remove", "path": path}]
    where = {"kind": "patch", "path": f"/api/v1/nodes/{plan.target.node}", "uid": plan.target.node_uid}
    return {f"change.{plan.fault}.1": {"what": f"mark on node {plan.target.node}", **where, "undo": undo, **state}}


def _undo_of(change: ApiChange) -> dict[str, Any]:
    where = {"what": change.what, "kind": "patch", "path": change.path, "uid": change.uid}
    return {**where, "undo": list(change.undo), "state": "planned"}


def _fault(plan: Plan, gpu: dict[str, str], state: str) -> dict[str, Any]:
    where = {"node": plan.target.node, "node_uid": plan.target.node_uid, "gpu": gpu}
    return {"fault": plan.fault, "kind": plan.kind, "state": state, "at": utc(), **where, **plan.facts}


def _scan_after(pod: JsonObject, seq: int, boot_id: str) -> JsonObject:
    """Let the kernel log reader start behind our record."""
    annotations = pod["metadata"]["annotations"]
    spec = json.dumps({**json.loads(annotations[SPEC]), "after_seq": seq, "boot_id": boot_id})
    return {**pod, "metadata": {**pod["metadata"], "annotations": {**annotations, SPEC: spec}}}
