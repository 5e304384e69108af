"""Lay out one fault's events on a line of time, in numbers that a template can draw."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from chaos_gpu.verdict import Verdict

WIDTH = 720
MARGIN = 40
LANE = 22
_TOP = 30


@dataclass(frozen=True)
class Dot:
    """One event, where to draw it and what to write beside it."""

    x: float
    y: float
    kind: str
    label: str
    anchor: str


@dataclass(frozen=True)
class Chart:
    """One fault's line of time."""

    title: str
    dots: tuple[Dot, ...]
    ticks: tuple[tuple[float, str], ...]
    limit_x: float | None
    limit: str
    height: float


def charts(verdicts: Iterable[Verdict]) -> list[Chart]:
    """Return one chart per injected record, from the events in the verdicts' evidence."""
    faults: dict[str, list[dict[str, Any]]] = {}
    for verdict in verdicts:
        record = verdict.evidence.get("record")
        marker = record.get("marker") if isinstance(record, dict) else None
        if isinstance(marker, str) and isinstance(verdict.evidence.get("events"), list):
            faults.setdefault(marker, []).append(verdict.evidence)
    return [_chart(marker, evidence) for marker, evidence in faults.items()]


def _chart(marker: str, evidence: Sequence[dict[str, Any]]) -> Chart:
    events = _events(evidence)
    limit_s = next((seconds for seconds in (_seconds(each.get("limit_s")) for each in evidence) if seconds), None)
    longest_s = max([1.0, *(s for s, _, _ in events), *([limit_s] if limit_s else [])])
    scale = (WIDTH - 2 * MARGIN) / longest_s
    dots = tuple(
        Dot(
            x=MARGIN + max(0.0, after_s) * scale,
            y=_TOP + lane * LANE,
            kind=kind,
            label=f"{label} {after_s:.3f} s",
            anchor="end" if after_s > longest_s * 0.6 else "start",
        )
        for lane, (after_s, kind, label) in enumerate(events)
    )
    record = evidence[0]["record"]
    return Chart(
        title=f"Xid {record.get('code', '?')} on {record.get('node', '?')}, {record.get('pci', '')} ({marker})",
        dots=dots,
        ticks=tuple((MARGIN + longest_s * part / 4 * scale, f"{longest_s * part / 4:.1f} s") for part in range(5)),
        limit_x=MARGIN + limit_s * scale if limit_s else None,
        limit=f"limit {limit_s:g} s" if limit_s else "",
        height=_TOP + len(events) * LANE + 34,
    )


def _events(evidence: Sequence[dict[str, Any]]) -> list[tuple[float, str, str]]:
    """Return (seconds, kind, label) of all verdicts' events, each once, in order of time."""
    found = set()
    for event in (event for each in evidence for event in each["events"] if isinstance(event, dict)):
        after_s = _seconds(event.get("after_s"))
        if after_s is not None:
            found.add((after_s, str(event.get("what", "")), _label(event)))
    return sorted(found)


def _label(event: dict[str, Any]) -> str:
    what = str(event.get("what", ""))
    if what == "condition":
        return f"{event.get('condition', '')}={event.get('status', '')} on {event.get('node', '')}"
    return f"{what} {event.get('node', '')}"


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and abs(value) < 1e9 else None
