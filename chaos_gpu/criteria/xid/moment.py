"""When a record was written, as far as its log says: enough to tell a burst from a repetition."""

import re
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from chaos_gpu.criteria.xid.event import Event

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NUMBER = re.compile(r"([0-9]{1,12}\.[0-9]{1,9})(?: <.*)?", re.ASCII)
_WALL = re.compile(
    r"(?:[A-Z][a-z]{2} )?(?:(?P<iso>[0-9]{4}-[0-9]{2}-[0-9]{2})|(?P<month>[A-Z][a-z]{2}) {0,2}(?P<day>[0-9]{1,2})) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r"(?: (?P<year>[0-9]{4}))?(?![0-9])",
    re.ASCII,
)
_ANY_LEAP_YEAR = 2024
_UNIX_FROM_S = 1e9


class Moment(NamedTuple):
    """A point on one of a log's clocks; two are comparable only on the same one."""

    clock: str
    at_s: float
    resolution_s: float


def moment_of(event: Event) -> Moment | None:
    """Return when the event was written; None if its log does not say."""
    if event.usec is not None:
        return Moment("uptime", event.usec / 1e6, 1e-6)
    return _read(event.stamp) if event.stamp else None


def gap_s(earlier: Moment, later: Moment) -> float | None:
    """Return the time between two records, at least, whatever their order; None on different clocks."""
    if earlier.clock != later.clock:
        return None
    return max(0.0, abs(later.at_s - earlier.at_s) - max(earlier.resolution_s, later.resolution_s))


@lru_cache(maxsize=4096)
def _read(stamp: str) -> Moment | None:
    number = _NUMBER.fullmatch(stamp)
    if number is not None:
        at_s = float(number[1])
        return Moment("unix" if at_s >= _UNIX_FROM_S else "uptime", at_s, 1e-6)
    try:
        return Moment("unix", datetime.fromisoformat(stamp).timestamp(), _resolution_s("." in stamp or "," in stamp))
    except (ValueError, OverflowError):
        return _read_wall(stamp)


def _read_wall(stamp: str) -> Moment | None:
    """Read times without a zone, or without a year; a minute or a second is as fine as most of them get."""
    match = _WALL.match(stamp)
    if match is None:
        return None
    second, fraction = match["second"], match["fraction"]
    try:
        if match["iso"]:
            day = datetime.fromisoformat(match["iso"])
        else:
            year = int(match["year"] or _ANY_LEAP_YEAR)
            day = datetime(year, _MONTHS.index(match["month"]) + 1, int(match["day"]))  # noqa: DTZ001
    except ValueError:
        return None
    of_day_s = int(match["hour"]) * 3600 + int(match["minute"]) * 60 + float(f"{second or 0}.{fraction or 0}")
    resolution_s = _resolution_s(bool(fraction)) if second else 60.0
    return Moment("wall", day.toordinal() * 86_400 + of_day_s, resolution_s)


def _resolution_s(fraction: bool) -> float:
    return 1e-3 if fraction else 1.0
