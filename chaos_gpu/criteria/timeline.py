"""What was seen of the nodes around one injected record, and how to read times off it without fooling oneself.

All times are seconds of the runner's monotonic clock. A state is stamped when it arrives, so the change itself lies at
most `watch_delay_s` earlier; while the watch was interrupted nothing is known at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any


@dataclass(frozen=True)
class NodeState:
    """One node as a watch event or a list showed it."""

    at_s: float
    node: str
    uid: str
    schedulable: bool
    conditions: Mapping[str, tuple[str, str, str]]
    """Condition type → (status, reason, message)."""
    attribution: str
    """The text in the detector's attribution places, "" if there is none."""


@dataclass(frozen=True)
class Landed:
    """One fault whose effect was read back."""

    at_s: float
    """When it came about, on the runner's clock: for a kernel record, its kernel time."""
    error_s: float
    """That time is known to plus or minus this."""
    code: int
    pci: str
    gpu_uuid: str
    node: str
    node_uid: str
    marker: str
    text: str
    seq: int
    evidence: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """All that the injector said of it."""
    called: str = ""
    """What it is, for people: `Xid 79 (fallen gpu)`, `double-bit-ecc (DCGM field 311)`; "" for an Xid by its code."""

    @property
    def name(self) -> str:
        """What it is, for people."""
        return self.called or f"Xid {self.code}"


@dataclass(frozen=True)
class Timeline:
    """Every state of the GPU nodes from before the record until the observation ended."""

    states: tuple[NodeState, ...]
    """Ascending in time; the first ones, of all GPU nodes, lie before the record."""
    until_s: float
    gaps: tuple[tuple[float, float], ...] = ()
    """Times without a watch, (from, to)."""
    watch_delay_s: float = 0.0
    """Longest that an event took to arrive, as measured in this run."""


@dataclass(frozen=True)
class Episode:
    """A time during which a node was unschedulable, from a state that shows the change to one that shows its end."""

    states: tuple[NodeState, ...]
    end: NodeState | None

    @property
    def node(self) -> str:
        """The node's name."""
        return self.states[0].node

    @property
    def from_s(self) -> float:
        """When the change was seen."""
        return self.states[0].at_s

    @property
    def seconds(self) -> float:
        """From the state that shows the change to the one that shows its end; 0 while it lasts."""
        return (self.end or self.states[0]).at_s - self.from_s


@dataclass(frozen=True)
class Measured:
    """Time from the record to a reaction, seconds, and what is known of its error."""

    seconds: float
    error_s: float
    earliest_s: float
    """It may have happened this early: unlike `seconds - error_s` this also counts interruptions of the watch."""

    def within(self, limit_s: float) -> bool | None:
        """Say whether the reaction came within the limit; None if the error does not let us say."""
        if self.seconds + self.error_s <= limit_s:
            return True
        return False if self.earliest_s > limit_s else None

    def __str__(self) -> str:
        return timed(self.seconds, self.error_s)


def timed(seconds: float, error_s: float) -> str:
    """Say a time with its error; of one that is smaller than its error, only what it was at the most."""
    if error_s < seconds or error_s == 0:
        return f"{seconds:.3f} s ± {error_s:.3f} s"
    return f"at most {max(0.0, seconds) + error_s:.3f} s"


@dataclass(frozen=True)
class Scene:
    """A timeline as seen from one record: the target before it, the target after it, the other nodes."""

    landed: Landed
    timeline: Timeline
    before: NodeState | None
    after: tuple[NodeState, ...]
    others: Mapping[str, tuple[NodeState, ...]]

    @classmethod
    def of(cls, landed: Landed, timeline: Timeline) -> "Scene":
        """Sort the states. What was seen before the record can have been written is no reaction to it."""
        start_s = landed.at_s - landed.error_s
        of_node: dict[str, list[NodeState]] = {}
        for state in timeline.states:
            of_node.setdefault(state.node, []).append(state)
        target = [state for state in of_node.pop(landed.node, []) if state.uid == landed.node_uid]
        return cls(
            landed=landed,
            timeline=timeline,
            before=next((state for state in reversed(target) if state.at_s < start_s), None),
            after=tuple(state for state in target if state.at_s >= start_s),
            others={name: tuple(of_node[name]) for name in sorted(of_node)},
        )

    @property
    def error_s(self) -> float:
        """Error of every time that is measured from the record to a state."""
        return self.landed.error_s + self.timeline.watch_delay_s

    @property
    def clocks_known(self) -> bool:
        """Whether the stated errors can be errors at all."""
        return isfinite(self.landed.at_s) and isfinite(self.error_s) and min(self.landed.error_s, self.error_s) >= 0

    @property
    def observed_s(self) -> float:
        """How long after the record the nodes were watched."""
        return self.timeline.until_s - self.landed.at_s

    def unwatched(self, limit_s: float) -> bool:
        """Whether a reaction within the limit could have escaped: a gap of the watch, or its end, came too early."""
        return self.observed_s - self.error_s < limit_s or bool(
            self.gaps_between(self.landed.at_s - self.landed.error_s, self.landed.at_s + limit_s + self.error_s)
        )

    def gaps_between(self, from_s: float, to_s: float) -> list[tuple[float, float]]:
        """Return the interruptions of the watch that overlap a time."""
        return [(start, end) for start, end in self.timeline.gaps if start < to_s and end > from_s]

    def measure(self, seen_s: float) -> Measured:
        """Measure from the record to a change that was seen at a time."""
        gaps = self.gaps_between(self.landed.at_s - self.landed.error_s, seen_s)
        first_s = min([seen_s, *(start for start, _ in gaps)])
        return Measured(seen_s - self.landed.at_s, self.error_s, first_s - self.landed.at_s - self.error_s)

    def cordons(self) -> list[Episode]:
        """Return the times for which the target became unschedulable after the record."""
        return list(episodes(self.after, was_schedulable=self.before is None or self.before.schedulable))

    def cordons_elsewhere(self) -> list[Episode]:
        """Return the times for which other nodes became unschedulable after the record."""
        start_s = self.landed.at_s - self.landed.error_s
        found = (episode for states in self.others.values() for episode in episodes(states, was_schedulable=False))
        return sorted((episode for episode in found if episode.from_s >= start_s), key=lambda episode: episode.from_s)

    def held(self, episode: Episode, hold_s: float) -> bool | None:
        """Say whether an episode lasted at least so long; None if that was not seen."""
        delay_s = self.timeline.watch_delay_s
        end_s = episode.end.at_s if episode.end else self.timeline.until_s
        hidden = [start for start, _ in self.gaps_between(episode.from_s, end_s)]
        if min([end_s, *hidden]) - episode.from_s - delay_s >= hold_s:
            return True
        earlier = [start for start, _ in self.gaps_between(self.landed.at_s - self.landed.error_s, episode.from_s)]
        longest_s = end_s - min([episode.from_s, *earlier]) + delay_s
        return False if episode.end and longest_s < hold_s else None


def episodes(states: Sequence[NodeState], *, was_schedulable: bool) -> Iterator[Episode]:
    """Cut one node's states into the times during which it was unschedulable, leaving out one that began before."""
    run: list[NodeState] = []
    previous = was_schedulable
    for state in states:
        if run and state.schedulable:
            yield Episode(tuple(run), state)
            run = []
        elif run or (previous and not state.schedulable):
            run.append(state)
        previous = state.schedulable
    if run:
        yield Episode(tuple(run), None)


def evidence_of(scene: Scene) -> dict[str, Any]:
    """Return what every judgement on this timeline rests on, as plain JSON, times in seconds after the record."""
    landed = scene.landed
    return {
        "record": {
            "called": landed.name,
            "code": landed.code,
            "node": landed.node,
            "node_uid": landed.node_uid,
            "pci": landed.pci,
            "gpu_uuid": landed.gpu_uuid,
            "marker": landed.marker,
            "seq": landed.seq,
            "text": landed.text,
            "error_s": _rounded(landed.error_s),
        },
        "events": [{"what": "record", "node": landed.node, "after_s": 0.0}, *_events(scene)],
        "watch": {
            "until_s": _rounded(scene.observed_s),
            "delay_s": _rounded(scene.timeline.watch_delay_s),
            "gaps_s": [[_rounded(t - landed.at_s) for t in gap] for gap in scene.timeline.gaps],
        },
    }


def _events(scene: Scene) -> list[dict[str, Any]]:
    target = [*([scene.before] if scene.before else []), *scene.after]
    found = [event for old, new in pairwise(target) for event in _changes(old, new, scene.landed.at_s)]
    for episode in scene.cordons_elsewhere():
        found.append(_event("cordon", episode.states[0], scene.landed.at_s))
        found += [_event("uncordon", episode.end, scene.landed.at_s)] if episode.end else []
    return sorted(found, key=lambda event: event["after_s"])


def _changes(old: NodeState, new: NodeState, zero_s: float) -> Iterator[dict[str, Any]]:
    if old.schedulable != new.schedulable:
        yield _event("uncordon" if new.schedulable else "cordon", new, zero_s)
    for name, (status, reason, _) in sorted(new.conditions.items()):
        if old.conditions.get(name, ("",))[0] != status:
            yield {**_event("condition", new, zero_s), "condition": name, "status": status, "reason": reason}


def _event(what: str, state: NodeState, zero_s: float) -> dict[str, Any]:
    return {"what": what, "node": state.node, "after_s": _rounded(state.at_s - zero_s)}


def _rounded(seconds: float) -> float | None:
    # JSON has no infinity; a microsecond is finer than any clock here.
    return round(seconds, 6) if isfinite(seconds) else None
