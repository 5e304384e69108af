"""Events folded into incidents: what happened, as opposed to how many records tell of it.

One fault is often a burst: up to three records within a few milliseconds, not all of them with a pid, or one code and
those that follow from it. And one fault is often told again and again. So records of one GPU belong to one incident if
they come within `BURST_S`, or repeat a code within `REPEAT_S`; where a log has no times, if they repeat a code. A
record that is read twice, because a reader started anew at the ring buffer's beginning, is counted once.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from chaos_gpu.criteria.xid.advice import DRAIN_AND_RESET, IGNORE
from chaos_gpu.criteria.xid.event import Event, Kind
from chaos_gpu.criteria.xid.guide import gravity
from chaos_gpu.criteria.xid.moment import Moment, gap_s, moment_of

BURST_S = 0.05
"""Longest silence inside a burst; an H200's took 3 ms."""

REPEAT_S = 180.0
"""Longest silence between repetitions."""

MAX_INCIDENTS = 4096
MAX_CODES = 64
MAX_REMEMBERED = 65_536
"""Records of /dev/kmsg remembered to know a replay by: more than a ring buffer holds."""

_RECOVERY = 154
_DBE, _PREEMPTIVE = 48, 45
_REMAPPINGS = {63, 64}


@dataclass(slots=True)
class Incident:
    """What happened to one GPU, or one NVSwitch, at one time."""

    first: Event
    last: Event
    culprit: Event | None = None
    """The first record that names a process; in a burst not every record does."""
    faults: int = 1
    """Bursts."""
    records: int = 0
    injected: int = 0
    """Records known not to be the driver's own."""
    counts: dict[int, int] = field(default_factory=dict)
    """Records by code."""
    examples: dict[int, Event] = field(default_factory=dict)
    """The first record of each code; of Xid 154 the last, since it says what is asked for now."""
    moment: Moment | None = None
    """When the last record was written, as far as its log says."""

    @property
    def pci(self) -> str | None:
        """Address of the GPU or NVSwitch."""
        return self.first.pci

    @property
    def gravest(self) -> Event:
        """The record that decides, the first of the gravest ones."""
        return max(self.examples.values(), key=lambda event: gravity(self.action_of(event)))

    @property
    def action(self) -> str:
        """What to do, all records seen together."""
        return self.action_of(self.gravest)

    def action_of(self, event: Event) -> str:
        """Return what one of the records asks for, beside the others (NVIDIA's workflows for Xid 45, 48 and 154)."""
        codes = self.examples.keys()
        if event.kind is not Kind.XID:
            return event.action
        if event.code == _PREEMPTIVE and codes - {_PREEMPTIVE, _RECOVERY}:
            return IGNORE
        if event.code == _DBE and codes & _REMAPPINGS:
            return DRAIN_AND_RESET
        if event.action == "XID_154_EVAL" and _RECOVERY in codes:
            return self.examples[_RECOVERY].action
        return event.action

    def add(self, event: Event, moment: Moment | None) -> None:
        """Count one more record."""
        self.last, self.moment = event, moment
        if self.culprit is None and (event.process is not None or event.pid is not None):
            self.culprit = event
        self.records += 1
        self.injected += event.injected is True
        self.counts[event.code] = self.counts.get(event.code, 0) + 1
        if event.code == _RECOVERY or event.code not in self.examples:
            self.examples[event.code] = event


class Incidents:
    """Folds events one by one, in constant memory."""

    def __init__(self) -> None:
        self.records = 0
        """Without replays."""
        self.replayed = 0
        self.forgotten = 0
        """Incidents, the oldest, that were more than are kept."""
        self._kept: deque[Incident] = deque()
        self._by_code: dict[tuple[str | None, int], Incident] = {}
        self._latest: dict[str | None, Incident] = {}
        self._seen: OrderedDict[int, None] = OrderedDict()

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, event: Event) -> None:
        """Put one event where it belongs."""
        if event.seq is not None and self._is_replay(event):
            self.replayed += 1
            return
        self.records += 1
        now = moment_of(event)
        incident = self._latest.get(event.pci)
        if incident is not None and len(incident.counts) < MAX_CODES and _within(incident, now, BURST_S):
            pass
        elif (incident := self._by_code.get((event.pci, event.code))) is not None and _repeats(incident, now):
            incident.faults += now is not None
        else:
            incident = self._begin(event)
        incident.add(event, now)
        self._latest[event.pci] = self._by_code[event.pci, event.code] = incident

    def _begin(self, event: Event) -> Incident:
        if len(self._kept) == MAX_INCIDENTS:
            self._forget(self._kept.popleft())
        incident = Incident(event, event)
        self._kept.append(incident)
        return incident

    def _forget(self, incident: Incident) -> None:
        self.forgotten += 1
        if self._latest.get(incident.pci) is incident:
            del self._latest[incident.pci]
        for code in incident.counts:
            if self._by_code.get((incident.pci, code)) is incident:
                del self._by_code[incident.pci, code]

    def _is_replay(self, event: Event) -> bool:
        """A ring buffer's record is known by number, time and text; numbers alone begin anew with each boot."""
        record = hash((event.seq, event.usec, event.code, event.text))
        if record in self._seen:
            return True
        self._seen[record] = None
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return False


def incidents_of(events: Iterable[Event]) -> list[Incident]:
    """Fold events that are all there."""
    incidents = Incidents()
    for event in events:
        incidents.add(event)
    return list(incidents)


def _within(incident: Incident, now: Moment | None, limit_s: float) -> bool:
    before = incident.moment
    gap = gap_s(before, now) if before and now else None
    return gap is not None and gap <= limit_s


def _repeats(incident: Incident, now: Moment | None) -> bool:
    """Without comparable times, a code that comes again is taken for a repetition."""
    before = incident.moment
    gap = gap_s(before, now) if before and now else None
    return gap is None or gap <= REPEAT_S
