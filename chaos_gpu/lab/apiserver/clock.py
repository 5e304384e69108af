"""Times as the API writes them."""

import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple


class Stamp(NamedTuple):
    """One moment on both clocks: UTC, and seconds of this machine's monotonic clock."""

    at: datetime
    monotonic: float


def stamp() -> Stamp:
    """Return this moment."""
    return Stamp(utc_now(), time.monotonic())


def utc_now() -> datetime:
    """Return the time now, in UTC."""
    return datetime.now(UTC)


def rfc3339(at: datetime | None = None, later_s: float = 0) -> str:
    """Return a time to the second: `2026-11-29T18:17:00Z`; of now, or of `later_s` seconds after `at`."""
    return ((at or utc_now()) + timedelta(seconds=later_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(at: datetime) -> str:
    """Return a time to the microsecond: `2026-11-29T18:17:00.123456Z`."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> datetime | None:
    """Read a time; None if it is not one."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
