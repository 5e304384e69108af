"""Watch what the detectors of a target make of one fault."""

import time
from typing import Any

from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.timeline import Landed, Timeline
from chaos_gpu.criteria.xid.coverage import Sighting, Told, Watcher, sightings
from chaos_gpu.faults.observe import events_about, landed_of, timeline
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.run import Run

LOOK_S = 0.2
"""How often the Events are listed; half of it is the error of a time that rests on an Event."""


def coverage_of(run: Run, fault: str) -> dict[str, Any]:
    """Wait until every detector that can show it has seen a fault, or the condition's limit is over.

    Returns: {fault, code, form, variant, transport, node, limit_s, detectors}: the last are sightings as JSON.
    Raises: NotLanded when the fault did not land.
    """
    landed, limit_s = landed_of(run, fault), run.settings.condition_s
    watchers, events = _watchers(run, fault), _Events(run, fault, landed)
    last_s = time.monotonic() + 2 * limit_s
    while True:
        run.check()
        events.look()
        seen = timeline(run, landed)
        found = sightings(landed, seen, watchers, events.told, limit_s)
        over = _watched_s(landed, seen) >= limit_s or time.monotonic() > last_s
        if over or not any(_may_still_come(each, watcher) for each, watcher in zip(found, watchers, strict=True)):
            break
        run.pause(LOOK_S)
    said = [each.model_dump(mode="json") for each in found]
    return {
        "fault": fault,
        "code": landed.code,
        **_written(run.injection(fault).plan),
        "node": landed.node,
        "limit_s": limit_s,
        "detectors": said,
    }


def _watched_s(landed: Landed, seen: Timeline) -> float:
    """Say for how long after the record the nodes were watched at least, the errors of all times counted against it."""
    return seen.until_s - landed.at_s - landed.error_s - seen.watch_delay_s


def _written(plan: Plan) -> dict[str, str]:
    """Say how it was written; what the driver itself wrote has no form of ours."""
    return {
        "form": plan.facts.get("form", plan.kind),
        "variant": plan.facts.get("variant", ""),
        "transport": plan.facts.get("transport", "kernel"),
    }


def _watchers(run: Run, fault: str) -> list[Watcher]:
    """Take every detector of the cluster: who does not read what was written belongs into the table as well."""
    reading = {(each.namespace, each.name) for each in run.injection(fault).plan.detectors}
    return [
        Watcher(each.name, each.profile.conditions, reads=(each.namespace, each.name) in reading)
        for each in run.watchers.detectors
    ]


def _may_still_come(sighting: Sighting, watcher: Watcher) -> bool:
    return not sighting.seen and watcher.reads


class _Events:
    """The Events about a fault's target that name it, each with the time between two looks in which it came."""

    def __init__(self, run: Run, fault: str, landed: Landed) -> None:
        self._run, self._landed = run, landed
        self._known = set(run.injection(fault).events)
        self._last_s = landed.at_s
        self.told: list[Told] = []

    def look(self) -> None:
        """List them once."""
        asked_s = time.monotonic()
        for stamp, event in events_about(self._run.api, self._landed.node):
            if stamp in self._known:
                continue
            self._known.add(stamp)
            if names_record(str(event.get("message", "")), self._landed, on_target=True):
                component = event.get("reportingComponent") or (event.get("source") or {}).get("component") or ""
                self.told.append(Told(str(component), self._last_s, time.monotonic()))
        self._last_s = asked_s
