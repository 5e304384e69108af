"""One judgement of the platform on one GPU, as its record says it; a record that says less says so.

Platforms word the same things differently: the tables here hold the usual words, a site adds its own with its source.

Source: GPU platform verification, layer 2, "node health policy": node, GPU UUID, level, result, action.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

QUOTED_CHARS = 80
"""So much of a value that cannot be read is repeated in a reason."""

UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_LEVEL = re.compile(r"(?:r|level[ _-]?)?([1-4])", re.ASCII | re.IGNORECASE)
_LEVEL_NAMES = {"quick": 1, "short": 1, "med": 2, "medium": 2, "long": 3, "xlong": 4, "extended": 4}
_MILLISECONDS_FROM = 1e11
"""Larger numbers are milliseconds since the epoch: as seconds they would lie beyond the year 5000."""


class Result(StrEnum):
    """What a diagnostic came to, the worst first."""

    FAIL = "fail"
    WARN = "warn"
    SKIP = "skip"
    PASS = "pass"  # noqa: S105 - an outcome, not a password


class Action(StrEnum):
    """What the platform did with the node."""

    ADMIT = "admit"
    """In service afterwards: admitted, returned, or left there."""
    HOLD = "hold"
    """Out of service until an operator has confirmed."""
    ISOLATE = "isolate"
    """Out of service until it is repaired."""


_RESULTS = {
    Result.PASS: "pass passed ok success healthy",
    Result.WARN: "warn warning warned",
    Result.FAIL: "fail failed failure error unhealthy",
    Result.SKIP: "skip skipped not_run",
}
_ACTIONS = {
    Action.ADMIT: "admit admitted return returned uncordon uncordoned release released keep kept none",
    Action.HOLD: "hold held wait waiting confirm operator",
    Action.ISOLATE: "isolate isolated quarantine quarantined cordon cordoned",
}
RESULT_WORDS: Mapping[str, Result] = MappingProxyType({w: r for r, words in _RESULTS.items() for w in words.split()})
ACTION_WORDS: Mapping[str, Action] = MappingProxyType({w: a for a, words in _ACTIONS.items() for w in words.split()})


@dataclass(frozen=True)
class Record:
    """One judgement on one GPU. What could not be read is empty, and stands in `problems`."""

    node: str = ""
    gpu_uuid: str = ""
    level: int = 0
    result: Result | None = None
    action: Action | None = None
    ended_at: datetime | None = None
    started_at: datetime | None = None
    """None where the platform does not record it."""
    confirmed_by: str = ""
    """The operator who let a node with a warning in, "" for none."""
    problems: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "node": self.node,
            "gpu_uuid": self.gpu_uuid,
            "level": f"r{self.level}" if self.level else "",
            "result": self.result and self.result.value,
            "action": self.action and self.action.value,
            "started_at": self.started_at and self.started_at.isoformat(),
            "ended_at": self.ended_at and self.ended_at.isoformat(),
            "confirmed_by": self.confirmed_by,
            "problems": list(self.problems),
        }


def read_record(fields: Mapping[str, Any], words: Mapping[str, str] | None = None) -> Record:
    """Read one record from its fields. Never raises: what cannot be read is a problem of the record.

    Args:
        fields: by the names of `Record`'s attributes; one that is not there is None or absent.
        words: a site's own words for results and actions → ours.
    """
    own = {ours.casefold(): word.casefold() for ours, word in (words or {}).items()}
    said = {name: _said(fields.get(name), own) for name in ("result", "action")}
    problems = [problem for problem in map(_problem, fields.items()) if problem]
    level = _level(fields.get("level"))
    result, action = RESULT_WORDS.get(said["result"]), ACTION_WORDS.get(said["action"])
    node, uuid = _text(fields.get("node")), _text(fields.get("gpu_uuid"))
    ended_at, started_at = _moment(fields.get("ended_at")), _moment(fields.get("started_at"))
    lacking = {
        "node": not node,
        "gpu_uuid": UUID.fullmatch(uuid) is None,
        "level": level == 0,
        "result": result is None,
        "action": action is None,
        "ended_at": ended_at is None,
    }
    problems += [_wrong(name, fields.get(name)) for name, bad in lacking.items() if bad]
    if started_at and ended_at and started_at > ended_at:
        problems.append("it ended before it started")
    return Record(
        node=node,
        gpu_uuid=uuid if not lacking["gpu_uuid"] else "",
        level=level,
        result=result,
        action=action,
        ended_at=ended_at,
        started_at=started_at,
        confirmed_by=_text(fields.get("confirmed_by")),
        problems=tuple(problems),
    )


def worst_result(results: list[Result | None]) -> Result | None:
    """Return the worst of several results; None where one is unknown and none failed, or of none."""
    known = [result for result in results if result is not None]
    worst = min(known, key=list(Result).index, default=None)
    return worst if worst is Result.FAIL or len(known) == len(results) else None


def _problem(field: tuple[str, Any]) -> str:
    name, value = field
    unreadable = name == "started_at" and value not in (None, "") and _moment(value) is None
    return _wrong(name, value) if unreadable else ""


def _wrong(name: str, value: Any) -> str:
    return f"{name} is missing" if value in (None, "") else f"{name} is {str(value)[:QUOTED_CHARS]!r}"


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _said(value: Any, own: Mapping[str, str]) -> str:
    word = _text(value).casefold().replace(" ", "_")
    return own.get(word, word)


def _level(value: Any) -> int:
    if type(value) is int:
        return value if 1 <= value <= 4 else 0
    text = _text(value)
    match = _LEVEL.fullmatch(text)
    return int(match[1]) if match else _LEVEL_NAMES.get(text.casefold(), 0)


def _moment(value: Any) -> datetime | None:
    """Read a time: RFC 3339 with its zone, or seconds or milliseconds since the epoch."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value.strip())
            return found.astimezone(UTC) if found.tzinfo else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if abs(value) >= _MILLISECONDS_FROM else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None
