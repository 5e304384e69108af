"""What a judge says. Everything above the judges speaks in these words."""

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class Outcome(StrEnum):
    """In order of precedence: the worst of several outcomes stands for all."""

    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    PASS = "pass"  # noqa: S105 - an outcome, not a password


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of the outcomes; of none, inconclusive: nothing was shown."""
    order = list(Outcome)
    return min(outcomes, key=order.index, default=Outcome.INCONCLUSIVE)


class Judgement(NamedTuple):
    """What a pure judge returns; the probe adds which criterion and when."""

    outcome: Outcome
    reason: str
    evidence: dict[str, Any]
    remedy: str = ""


def passed(reason: str, evidence: dict[str, Any] | None = None) -> Judgement:
    """Judge pass."""
    return Judgement(Outcome.PASS, reason, evidence or {})


def failed(reason: str, evidence: dict[str, Any] | None = None, remedy: str = "") -> Judgement:
    """Judge fail."""
    return Judgement(Outcome.FAIL, reason, evidence or {}, remedy)


def inconclusive(reason: str, evidence: dict[str, Any] | None = None, remedy: str = "") -> Judgement:
    """Judge inconclusive: the evidence needed for a judgement is not there."""
    return Judgement(Outcome.INCONCLUSIVE, reason, evidence or {}, remedy)


class Verdict(BaseModel):
    """One criterion, judged once, with the evidence to judge it again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    criterion: str = Field(description='an id of the registry, "DEV-07"')
    outcome: Outcome
    reason: str = Field(description="one sentence, numbers with units")
    evidence: dict[str, Any] = Field(default_factory=dict, description="JSON only")
    remedy: str = Field(default="", description='what to do about it, or ""')
    at: AwareDatetime

    @classmethod
    def of(cls, criterion: str, judgement: Judgement) -> "Verdict":
        """Sign a judgement with its criterion and the time now (UTC)."""
        return cls(criterion=criterion, at=datetime.now(UTC), **judgement._asdict())

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON, as it goes into journal and report."""
        return self.model_dump(mode="json")
