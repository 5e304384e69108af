"""What is known of one interrupted training: what it logged, what its store showed, how it was killed.

A training logs one JSON object a line: `{"step": 5, "loss": 1.2, "lr": 0.001, "at": 3.4}` for each step that it has
done (`at` in seconds, of any clock that only goes forward), and where it can `{"event": "resumed", "source": …,
"step": …}` when it takes up a checkpoint and `{"event": "saved", "step": …, "blocked_s": …}`. Other lines are left out.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple, Self

MOST_LINE = 65536


class Step(NamedTuple):
    """One step that was done."""

    step: int
    loss: float
    lr: float | None


class Resumed(NamedTuple):
    """What a run says that it goes on from."""

    source: str
    step: int | None


@dataclass(frozen=True)
class Attempt:
    """One start of a training's program, to its end or up to now."""

    steps: tuple[Step, ...] = ()
    resumed: Resumed | None = None
    blocked_s: Mapping[int, float] = field(default_factory=dict)
    """Step → how long its save kept the training from going on, as the training says."""
    exit_code: int | None = None

    @classmethod
    def of(cls, lines: Iterable[str], exit_code: int | None = None) -> Self:
        """Read a log. Lines that are no JSON objects, or say nothing of use, are left out."""
        steps: list[Step] = []
        blocked: dict[int, float] = {}
        resumed = None
        for facts in filter(None, map(_object, lines)):
            number, event = _whole(facts.get("step")), facts.get("event")
            if event == "resumed":
                resumed = Resumed(str(facts.get("source", "")), number)
            elif event == "saved" and number is not None and (taken := _real(facts.get("blocked_s"))) is not None:
                blocked[number] = taken
            elif event is None and number is not None and (loss := _loss(facts.get("loss"))) is not None:
                steps.append(Step(number, loss, _real(facts.get("lr"))))
        return cls(tuple(steps), resumed, blocked, exit_code)


@dataclass(frozen=True)
class Saved:
    """One save that ended, as its files showed it.

    Attributes:
        step: of the checkpoint, None where its reader found none.
        complete: "yes", "no" or "suspect", by the checkpoint's reader; "" where it could not be read.
        crcs: name of each tensor or value → CRC of its content; None where the format has none.
        without_crc: how many values have none.
        begun_s: first byte, seconds of the node's clock.
        durable_s: last change of a name or of content.
        kept: complete checkpoints in the store afterwards.
        least: the fewest complete ones at any look since the first.
        garbage: files that belong to no checkpoint → bytes.
    """

    step: int | None
    complete: str
    components: tuple[str, ...]
    crcs: Mapping[str, int] | None
    begun_s: float
    durable_s: float
    size_bytes: int = 0
    kept: int = 0
    least: int = 0
    garbage: Mapping[str, int] = field(default_factory=dict)
    without_crc: int = 0

    @property
    def seconds(self) -> float:
        """How long the save took from its first byte until it was all there."""
        return self.durable_s - self.begun_s

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """Read an event `saved` of the store's watcher."""
        checkpoint = event.get("checkpoint") or {}
        return cls(
            step=_whole(checkpoint.get("step")),
            complete=str(checkpoint.get("complete") or ""),
            components=tuple(checkpoint.get("components") or ()),
            crcs=checkpoint.get("state_crcs"),
            begun_s=event["begun_ns"] / 1e9,
            durable_s=event["durable_ns"] / 1e9,
            size_bytes=int(event.get("bytes") or 0),
            kept=int(event.get("complete") or 0),
            least=int(event.get("least") or 0),
            garbage=dict(event.get("garbage") or {}),
            without_crc=_whole(checkpoint.get("without_crc")) or 0,
        )


@dataclass(frozen=True)
class Kill:
    """How a training was interrupted, and what its store held at that moment.

    Attributes:
        uncommitted: the frozen store showed a save that was not all there.
        newest: the newest complete checkpoint at death, "" where none was.
        newest_step: its step.
        torn: names of those that were not complete.
        at_s: when, seconds of the node's clock.
        wall_s: the same as the node's wall clock had it, which its kubelet dates starts by; 0 where it is not known.
        pod: which one.
        what: for people.
    """

    uncommitted: bool
    newest: str
    newest_step: int | None
    torn: tuple[str, ...]
    at_s: float
    what: str
    grace_s: float = 0.0
    note: str = ""
    place: Mapping[str, Any] = field(default_factory=dict)
    pod: str = ""
    wall_s: float = 0.0

    @classmethod
    def of(cls, evidence: Mapping[str, Any]) -> Self:
        """Read the evidence of an injector that landed."""
        store = evidence.get("store") or {}
        members = store.get("members") or ()
        torn = (str(each.get("name")) for each in members if each.get("complete") != "yes")
        interrupted = (str(name) for name in evidence.get("files") or ())
        shown = ("fraction", "phase", "asked", "written_bytes", "expected_bytes", "record_bytes", "files", "frozen_ms")
        return cls(
            uncommitted=bool(evidence.get("uncommitted")),
            newest=str(store.get("newest_complete") or ""),
            newest_step=_whole(store.get("newest_step")),
            torn=tuple(dict.fromkeys([*torn, *(interrupted if evidence.get("uncommitted") else ())])),
            at_s=evidence["between_ns"][0] / 1e9,
            what=str(evidence.get("text", "")),
            grace_s=float(evidence.get("grace_s") or 0.0),
            note=str(evidence.get("note", "")),
            pod=str(evidence.get("pod") or ""),
            wall_s=float(evidence.get("wall_s") or 0.0),
            place={key: evidence[key] for key in (*shown, "frozen_by", "misses", "orphans") if key in evidence},
        )

    @classmethod
    def at_end(cls, evidence: Mapping[str, Any], ended: Mapping[str, Any] | None) -> Self:
        """Read the evidence of one that was told to end: what counts is its end, up to which it may have saved.

        Args:
            evidence: of the injector that landed.
            ended: its event `ended`, or None where its processes were not seen to end: then nothing is known.
        """
        end_ns = ended["ended_ns"] if ended else sys.maxsize
        store = ended.get("store") if ended else None
        return cls.of({**evidence, "uncommitted": False, "store": store, "between_ns": [end_ns, end_ns]})

    def precedes(self, pod: str, start: int, started_s: float) -> bool:
        """Whether a start of the program came after it.

        Args:
            pod: where it was started.
            start: how often it had been started there before.
            started_s: as the kubelet says, whole seconds since the epoch; 0 where it does not.
        """
        if pod == self.pod and start == 0 or not self.wall_s or not started_s:
            return start > 0
        return started_s >= int(self.wall_s)

    def as_json(self) -> dict[str, Any]:
        """Return what every verdict about it shows."""
        newest = {"name": self.newest, "step": self.newest_step}
        return {"text": self.what, "newest_complete": newest, "torn": list(self.torn), **self.place, "note": self.note}


@dataclass(frozen=True)
class Story:
    """One training that was killed and started again, and others that were left alone.

    Attributes:
        before: up to the kill; None where that log is gone.
        after: every start since, oldest first, as far as their logs were still there.
        restarts: how often its program was started again.
        lost: of how many of these starts the log was gone before it could be read.
        failed: why the Job controller gave it up, or "".
        finished: whether it came to its end.
        references: uninterrupted trainings with the same start; at least one to judge by, two to know the spread.
        saves: of the killed training, oldest first.
        reference_saves: of the first reference.
        other_saves: of each further one.
    """

    kill: Kill
    before: Attempt | None
    after: tuple[Attempt, ...]
    restarts: int
    failed: str
    finished: bool
    references: tuple[Attempt, ...]
    saves: tuple[Saved, ...]
    reference_saves: tuple[Saved, ...]
    other_saves: tuple[tuple[Saved, ...], ...] = ()
    lost: int = 0

    @property
    def new_steps(self) -> tuple[Step, ...]:
        """What was done since the kill."""
        return tuple(step for attempt in self.after for step in attempt.steps)

    @property
    def new_saves(self) -> tuple[Saved, ...]:
        """Those that began after the kill."""
        return tuple(save for save in self.saves if save.begun_s >= self.kill.at_s)


def _object(line: str) -> dict[str, Any] | None:
    if len(line) > MOST_LINE or "{" not in line:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: Any) -> float | None:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return number if number is not None and isfinite(number) else None


def _loss(value: Any) -> float | None:
    """Read a loss; one that is not finite is a loss too."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
