"""Lay out one fault's events on a line of time, in numbers that a template can draw."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
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
    where = ", ".join(str(each) for each in (record.get("node", "?"), record.get("pci")) if each)
    return Chart(
        title=f"{_name(record)} on {where} ({marker})",
        dots=dots,
        ticks=tuple((MARGIN + tick_s * scale, f"{tick_s:g} s") for tick_s in _ticks(longest_s)),
        limit_x=MARGIN + limit_s * scale if limit_s else None,
        limit=f"limit {limit_s:g} s" if limit_s else "",
        height=_TOP + len(events) * LANE + 34,
    )


def _ticks(longest_s: float) -> list[float]:
    """Return round times from 0 on, three to six of them: their labels are exact."""
    power = 10.0 ** floor(log10(longest_s))
    step_s = next(power * part for part in (0.2, 0.5, 1.0, 2.0) if longest_s / (power * part) < 6)
    return [round(step_s * number, 9) for number in range(int(longest_s / step_s + 1e-9) + 1)]


def _name(record: dict[str, Any]) -> str:
    """Return what people call it; journals of before know it by its code alone."""
    return str(record.get("called") or f"Xid {record.get('code', '?')}")


def _events(evidence: Sequence[dict[str, Any]]) -> list[tuple[float, str, str]]:
    """Return (seconds, kind, label) of all verdicts' events, each once, in order of time."""
    found = set()
    name = _name(evidence[0]["record"])
    for event in (event for each in evidence for event in each["events"] if isinstance(event, dict)):
        after_s = _seconds(event.get("after_s"))
        if after_s is not None:
            found.add((after_s, str(event.get("what", "")), _label(event, name)))
    return sorted(found)


def _label(event: dict[str, Any], name: str) -> str:
    what = str(event.get("what", ""))
    if what == "record":
        return f"{name} on {event.get('node', '')}"
    if what == "condition":
        return f"{event.get('condition', '')}={event.get('status', '')} on {event.get('node', '')}"
    return f"{what} {event.get('node', '')}"


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) and abs(value) < 1e9 else None
