"""Detection coverage: which of a cluster's detectors saw a fault as it was written, by what, and how soon.

A detector shows that it saw a record by a node condition of its own, or by an Event, that names the record. One that
has neither, as far as is known, says nothing through Kubernetes: of that one nothing can be told.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.timeline import Landed, Scene, Timeline


@dataclass(frozen=True)
class Watcher:
    """What is known of one detector.

    Attributes:
        name: the detector's.
        conditions: node conditions that it sets; `Type` is unhealthy when True, `Type=False` when False.
        reads: whether it reads what was written, in the way in which it was written.
    """

    name: str
    conditions: tuple[str, ...]
    reads: bool


@dataclass(frozen=True)
class Told:
    """An Event about the target that names the record.

    Attributes:
        component: who wrote it.
        after_s: when the Events were last listed without it, seconds of the runner's monotonic clock.
        at_s: when they were first listed with it.
    """

    component: str
    after_s: float
    at_s: float


class Sighting(BaseModel):
    """What one detector made of one fault.

    Attributes:
        seen: whether it showed that it saw it; None: that cannot be told.
        by: what showed it.
        seconds: from the record to that, with `error_s` to either side.
        why: why it cannot be told, or was not expected.
    """

    model_config = ConfigDict(frozen=True)

    detector: str
    seen: bool | None
    by: str = ""
    seconds: float | None = None
    error_s: float | None = None
    why: str = ""


def sightings(
    landed: Landed, timeline: Timeline, watchers: Sequence[Watcher], events: Sequence[Told], limit_s: float
) -> list[Sighting]:
    """Say of each detector whether it saw the fault within the limit.

    Args:
        landed: the record, read back.
        timeline: the nodes around it.
        watchers: the detectors.
        events: those that name the record.
        limit_s: how long each had.
    """
    scene = Scene.of(landed, timeline)
    return [_sighting(scene, watcher, events, limit_s) for watcher in watchers]


def _sighting(scene: Scene, watcher: Watcher, events: Sequence[Told], limit_s: float) -> Sighting:
    signs = sorted([*_by_condition(scene, watcher), *_by_event(scene, watcher, events)])
    if signs:
        seconds, error_s, by = signs[0]
        return Sighting(detector=watcher.name, seen=True, by=by, seconds=round(seconds, 6), error_s=round(error_s, 6))
    if not watcher.reads:
        return Sighting(detector=watcher.name, seen=None, why="does not read what was written")
    if not watcher.conditions:
        return Sighting(detector=watcher.name, seen=None, why="no condition of it is known, and no Event came")
    if not scene.clocks_known or scene.unwatched(limit_s):
        return Sighting(detector=watcher.name, seen=None, why=f"not watched all of {limit_s:g} s")
    return Sighting(detector=watcher.name, seen=False)


def _by_condition(scene: Scene, watcher: Watcher) -> Iterator[tuple[float, float, str]]:
    split = [condition.partition("=") for condition in watcher.conditions]
    for state in scene.after if scene.clocks_known else ():
        for name, _, bad in split:
            status, reason, message = state.conditions.get(name, ("", "", ""))
            named = names_record(f"{reason} {message}", scene.landed, on_target=True)
            if status == (bad or "True") and named:
                measured = scene.measure(state.at_s)
                yield measured.seconds, measured.error_s, f"condition {name}"


def _by_event(scene: Scene, watcher: Watcher, events: Sequence[Told]) -> Iterator[tuple[float, float, str]]:
    """Time Events by when they were listed: what they say of time themselves is of whole seconds."""
    for event in events if scene.clocks_known else ():
        if event.component == watcher.name:
            half_s = (event.at_s - event.after_s) / 2
            yield event.at_s - half_s - scene.landed.at_s, half_s + scene.landed.error_s, "Event"
