"""What an output of DCGM says: its results, and what follows from them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

SEVERITIES = ("none", "monitor", "isolate", "unknown", "triage", "config", "reset")
"""By the number that DCGM 3.3 and later print; earlier ones print none."""

CATEGORIES = (
    *("none", "performance", "performance", "configuration", "driver", "driver", "cuda", "eud", "software"),
    *("thermal", "memory", "nvlink", "nvswitch", "pcie", "power", "hardware", "internal"),
)
"""By number, in the document's words; libraries and Xids count as the driver's."""


class Status(StrEnum):
    """A result in DCGM's own words, as its table would print it."""

    PASS = "Pass"  # noqa: S105 - an outcome, not a password
    WARN = "Warn"
    FAIL = "Fail"
    SKIP = "Skip"
    NOT_RUN = "Not Run"
    UNKNOWN = "Unknown"


RAN = (Status.PASS, Status.WARN, Status.FAIL)


class Says(StrEnum):
    """The verdict on an output, the worst first."""

    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    WARN = "warn"
    PASS = "pass"  # noqa: S105 - an outcome, not a password


class Action(StrEnum):
    """What DCGM's severities ask for, the gravest first."""

    ISOLATE = "isolate"
    RESET = "reset"
    TRIAGE = "triage"
    CONFIG = "config"
    MONITOR = "monitor"
    NONE = "none"


class DiagError(NamedTuple):
    """One error, as an engine reports it. None is what it does not say."""

    id: int | None
    category: str | None
    severity: str | None
    text: str


class Result(NamedTuple):
    """One test on one entity; without an entity, on the node, or on a GPU that the engine does not name."""

    test: str
    entity: str | None
    """Such as `GPU 0`: the engine's number, not a UUID and not the driver's index."""
    status: Status
    errors: tuple[DiagError, ...] = ()
    uuid: str | None = None
    """Of those outputs that name it."""

    def as_json(self) -> dict[str, Any]:
        """Return one item of `results`."""
        return {
            "test": self.test,
            "entity": self.entity,
            "uuid": self.uuid,
            "status": str(self.status),
            "errors": [error._asdict() for error in self.errors],
        }


class Reading(NamedTuple):
    """An output in one form, whatever DCGM wrote it; not judged yet."""

    schema: str
    """`3.1`, `3.3`, `4.x` for diagnostics, `health`, `metrics`."""
    version: str | None
    level: str | None
    results: tuple[Result, ...]
    gpus: frozenset[str] = frozenset()
    """Entities of the GPUs that the output names."""
    gpu_count: int = 0
    """How many GPUs it names, those included that it only counts."""
    skipped_levels: tuple[str, ...] = ()
    """Levels of which tests are named, but none ran."""
    gaps: tuple[str, ...] = ()
    """Why it shows less than it seems to."""
    claim: Says | None = None
    """Its own summary of everything, if it has one."""


class Report(NamedTuple):
    """A reading, judged."""

    reading: Reading
    verdict: Says
    action: Action
    reasons: tuple[str, ...]
    """What the verdict rests on, in words."""
    noise: str = ""
    """What the tool printed around its JSON."""

    def as_json(self) -> dict[str, Any]:
        """Return the document of `chaos-gpu explain dcgm --json`."""
        return {
            "schema": self.reading.schema,
            "version": self.reading.version,
            "level": self.reading.level,
            "results": [result.as_json() for result in self.reading.results],
            "verdict": str(self.verdict),
            "action": str(self.action),
        }


NOTHING_READ: Mapping[str, Any] = MappingProxyType(
    {
        "schema": None,
        "version": None,
        "level": None,
        "results": [],
        "verdict": str(Says.INCONCLUSIVE),
        "action": str(Action.NONE),
    }
)
"""The document where an output could not be read."""
