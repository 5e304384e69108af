"""Turn what the recorder saw of the nodes into the timeline that the judges read."""

import time
from collections.abc import Iterable

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.cluster.watch import Change
from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.timeline import Landed, NodeState, Timeline
from chaos_gpu.errors import NotLanded
from chaos_gpu.faults.detectors import Watchers
from chaos_gpu.faults.run import Run


def landed_of(run: Run, fault: str) -> Landed:
    """Return the proof that a fault landed. Raises NotLanded: then nothing may be judged."""
    landed = run.injection(fault).landed
    if landed is None:
        raise NotLanded(f"{fault} did not land: there is nothing to judge")
    return landed


def timeline(run: Run) -> Timeline:
    """Return everything seen of the GPU nodes since the run began, up to now."""
    until_s = time.monotonic()
    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    changes, gaps = list(run.recorder.changes), tuple(run.recorder.gaps)
    states = tuple(node_state(change, run.watchers) for change in changes if not change.deleted)
    return Timeline(states=states, until_s=until_s, gaps=gaps, watch_delay_s=run.watch_delay_s)


def node_state(change: Change, watchers: Watchers) -> NodeState:
    """Read one state of a node."""
    meta, status = change.object["metadata"], change.object.get("status") or {}
    places = {**(meta.get("labels") or {}), **(meta.get("annotations") or {})}
    return NodeState(
        at_s=change.at_s,
        node=meta["name"],
        uid=meta["uid"],
        schedulable=schedulable(change.object),
        conditions={
            each["type"]: (each.get("status", ""), each.get("reason", ""), each.get("message", ""))
            for each in status.get("conditions") or ()
        },
        attribution="\n".join(str(places[name]) for name in watchers.attribution() if name in places),
    )


def schedulable(node: JsonObject) -> bool:
    """Say whether new pods may come to a node."""
    return not (node.get("spec") or {}).get("unschedulable")


def wait_for_node(run: Run, landed: Landed, cordoned: bool, until_s: float) -> float | None:
    """Wait until the target is cordoned (or is not any more) after the record; return when that was seen, or None."""

    def when(changes: Iterable[Change]) -> float | None:
        of_target = (each for each in changes if each.object["metadata"]["uid"] == landed.node_uid)
        later = (each for each in of_target if each.at_s >= landed.at_s - landed.error_s)
        return next((each.at_s for each in later if schedulable(each.object) != cordoned), None)

    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    run.recorder.wait_for(lambda changes: when(changes) is not None, until_s)
    run.check()
    return when(list(run.recorder.changes))


def wait_for_condition(run: Run, landed: Landed, types: Iterable[str], until_s: float) -> None:
    """Wait until a condition of the target names the record, or until monotonic `until_s`."""
    wanted = {name.partition("=")[0] for name in types}

    def named(changes: list[Change]) -> bool:
        return any(
            condition["type"] in wanted and names_record(condition.get("message", ""), landed, on_target=True)
            for change in changes
            if change.object["metadata"]["uid"] == landed.node_uid
            for condition in (change.object.get("status") or {}).get("conditions") or ()
        )

    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    run.recorder.wait_for(named, until_s)
    run.check()


def events_naming(run: Run, landed: Landed) -> list[str]:
    """List the Kubernetes Events on the target node that name the record: a sign that some detector saw it."""
    events = run.api.items("/api/v1/events", fields=f"involvedObject.kind=Node,involvedObject.name={landed.node}")
    messages = (str(event.get("message", "")) for event in events if event.get("reason") != "ChaosGpuExercise")
    return [message for message in messages if names_record(message, landed, on_target=True)]
