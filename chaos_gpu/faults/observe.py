"""Turn what the recorder saw of the nodes into the timeline that the judges read."""

import time
from collections.abc import Callable, Iterable, Iterator

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.cluster.watch import Change
from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.device import condition_naming
from chaos_gpu.criteria.timeline import Landed, NodeState, Timeline
from chaos_gpu.errors import ApiError, ApiUnavailable, NotLanded
from chaos_gpu.faults.detectors import Watchers
from chaos_gpu.faults.names import EXERCISE_REASON
from chaos_gpu.faults.run import Run, Stamp

CATCH_UP_S = 5.0
"""How long the watch may take to show what a list shows."""
LOOK_S, LOOK_SHARE, LOOK_MOST_S = 0.01, 0.02, 1.0
"""How often a node is asked for while its cordon is waited for: each 2 % of the time since the record, in bounds."""


def landed_of(run: Run, fault: str) -> Landed:
    """Return the proof that a fault landed. Raises NotLanded: then nothing may be judged."""
    landed = run.injection(fault).landed
    if landed is None:
        raise NotLanded(f"{fault} did not land: there is nothing to judge")
    return landed


def timeline(run: Run, landed: Landed) -> Timeline:
    """Return everything seen of the GPU nodes since the run began, up to now, once the watch is known to be alive."""
    until_s = time.monotonic()
    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    run.recorder.confirm(CATCH_UP_S)
    changes, gaps = list(run.recorder.changes), tuple(run.recorder.gaps)
    states = tuple(node_state(change, run.watchers) for change in changes if not change.deleted)
    return Timeline(states=states, until_s=until_s, gaps=gaps, watch_delay_s=watch_delay_s(run, landed))


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


def watch_delay_s(run: Run, landed: Landed) -> float:
    """Return the longest that an event can have taken to arrive, seconds.

    A change is timed before each fault. The event of the cordon itself may have been slower, but not by more than the
    time since the node was last asked for and was in service, or since the record.
    """
    seen_s = _cordon_seen_s(run, landed)
    if seen_s is None:
        return run.watch_delay_s
    begun_s = max(landed.at_s - landed.error_s, run.in_service_s.get(landed.marker, 0.0))
    return max(run.watch_delay_s, seen_s - begun_s)


def wait_for_cordon(run: Run, landed: Landed, until_s: float) -> float | None:
    """Wait until the target is cordoned after the record; return when that was seen (monotonic), or None."""
    _await(run, landed, lambda _: _cordon_seen_s(run, landed) is not None, until_s)
    return _cordon_seen_s(run, landed)


def _cordon_seen_s(run: Run, landed: Landed) -> float | None:
    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    of_target = (each for each in list(run.recorder.changes) if each.object["metadata"]["uid"] == landed.node_uid)
    later = (each for each in of_target if each.at_s >= landed.at_s - landed.error_s)
    return next((each.at_s for each in later if not schedulable(each.object)), None)


def _await(run: Run, landed: Landed, seen: Callable[[list[Change]], bool], until_s: float) -> None:
    """Wait for the recorder to see something, and ask for the node meanwhile: a late event is known by its answer."""
    assert run.recorder is not None  # noqa: S101 - a run in which something landed records
    while True:
        run.check()
        asked_s = time.monotonic()
        if _is_in_service(run, landed):
            run.in_service_s[landed.marker] = asked_s
        pause_s = min(LOOK_MOST_S, max(LOOK_S, LOOK_SHARE * (asked_s - landed.at_s)))
        if run.recorder.wait_for(seen, min(until_s, time.monotonic() + pause_s)) or time.monotonic() >= until_s:
            return run.check()


def _is_in_service(run: Run, landed: Landed) -> bool:
    try:
        node = run.api.request("GET", f"/api/v1/nodes/{landed.node}", deadline_s=LOOK_MOST_S)
    except (ApiError, ApiUnavailable):  # then the watch has to do
        return False
    return node["metadata"]["uid"] == landed.node_uid and schedulable(node)


def wait_for_condition(run: Run, landed: Landed, types: Iterable[str], until_s: float) -> None:
    """Wait until a condition of the target names the record, or until monotonic `until_s`."""
    wanted = tuple(types)
    if not wanted:
        return

    def named(changes: list[Change]) -> bool:
        of_target = (each for each in changes if each.object["metadata"]["uid"] == landed.node_uid)
        return any(condition_naming(node_state(each, run.watchers), landed, wanted)[1] for each in of_target)

    _await(run, landed, named, until_s)


def events_naming(run: Run, fault: str) -> list[str]:
    """List the Events on the target node that name the record and were not there before it: a detector saw it."""
    injection = run.injection(fault)
    landed = landed_of(run, fault)
    fresh = {stamp: text for stamp, text in events_on(run.api, landed.node).items() if stamp not in injection.events}
    return [text for text in fresh.values() if names_record(text, landed, on_target=True)]


def events_on(api: Api, node: str) -> dict[Stamp, str]:
    """List the Events about a node, but for our own: (UID, count) → message. One that comes again counts anew."""
    return {stamp: str(event.get("message", "")) for stamp, event in events_about(api, node)}


def events_about(api: Api, node: str) -> Iterator[tuple[Stamp, JsonObject]]:
    """Yield the Events about a node, but for our own, as they are now."""
    for event in api.items("/api/v1/events", fields=f"involvedObject.kind=Node,involvedObject.name={node}"):
        if event.get("reason") != EXERCISE_REASON:
            yield (str(event["metadata"]["uid"]), int(event.get("count") or 1)), event


def kept(node: JsonObject) -> JsonObject:
    """Take of a node what judges, settlement and the steady state read; the rest of it is large."""
    meta, status = node["metadata"], node.get("status") or {}
    names = ("name", "uid", "resourceVersion", "labels", "annotations")
    return {
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"unschedulable": (node.get("spec") or {}).get("unschedulable", False)},
        "status": {name: status[name] for name in ("conditions", "capacity", "allocatable") if name in status},
    }
