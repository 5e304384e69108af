"""Fold what a run left in its journal into one outcome and one exit code.

The journal may come from anywhere and be cut off anywhere: nothing in it can raise, and nothing that is missing passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from chaos_gpu.report.coverage import Table, coverage_in
from chaos_gpu.report.toolkit import Findings, failures, findings
from chaos_gpu.verdict import Outcome, Verdict, worst

RECOVER = "chaos-gpu recover"
FOREVER_S = 1e9
MOST_LOST = 3
"""So many failed activities are told of a criterion; the log has them all."""


class Ending(StrEnum):
    """How a run ended."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    NOT_RECOVERED = "not recovered"
    REFUSED = "refused"
    INTERNAL = "internal error"


EXIT_CODES: Mapping[Ending, int] = MappingProxyType(
    {
        Ending.PASS: 0,
        Ending.FAIL: 1,
        Ending.INCONCLUSIVE: 2,
        Ending.NOT_RECOVERED: 3,
        Ending.REFUSED: 4,
        Ending.INTERNAL: 5,
    }
)
_WORST_FIRST = (3, 5, 1, 2, 4, 0)
_OF_OUTCOME = {Outcome.FAIL: Ending.FAIL, Outcome.INCONCLUSIVE: Ending.INCONCLUSIVE, Outcome.PASS: Ending.PASS}


class Refusal(BaseModel):
    """Why the guard did not let the run go on."""

    model_config = ConfigDict(frozen=True)

    reason: str
    remedy: str = ""


class Readiness(BaseModel):
    """Whether the platform was healthy; None where nobody looked."""

    model_config = ConfigDict(frozen=True)

    before: bool | None = None
    after: bool | None = None
    after_on_target: bool = False


class Recovery(BaseModel):
    """What was put back, and what was not."""

    model_config = ConfigDict(frozen=True)

    restored: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


class GuardRecord(BaseModel):
    """`journal["chaos_gpu"]`, as the guard writes it."""

    model_config = ConfigDict(frozen=True)

    run: str
    phase: Literal["before", "after"]
    refused: Refusal | None
    signal: str | None
    planned: dict[str, NonNegativeInt]
    verdicts: tuple[Verdict, ...]
    platform_ready: Readiness
    recovery: Recovery


class Reason(BaseModel):
    """One thing that kept a run from passing, and what to do about it."""

    model_config = ConfigDict(frozen=True)

    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class CriterionResult:
    """All verdicts on one criterion, and what they come to."""

    id: str
    planned: int
    verdicts: tuple[Verdict, ...]
    lost: tuple[str, ...] = ()
    """Why verdicts may be missing: the words of what failed."""

    @property
    def said(self) -> list[tuple[Verdict, ...]]:
        """The verdicts, those that say the same together: two probes may judge one thing at different times."""
        found: dict[tuple[Outcome, str], list[Verdict]] = {}
        for verdict in self.verdicts:
            found.setdefault((verdict.outcome, verdict.reason), []).append(verdict)
        return [tuple(same) for same in found.values()]

    @property
    def outcome(self) -> Outcome:
        """The worst verdict; fewer than planned prove nothing, but a failure stays a failure."""
        missing = [Outcome.INCONCLUSIVE] if len(self.verdicts) < self.planned else []
        return worst([*(verdict.outcome for verdict in self.verdicts), *missing])

    @property
    def told(self) -> list[Reason]:
        """Why it did not pass, as its verdicts say."""
        return [
            Reason(reason=f"{self.id} {verdict.outcome}: {verdict.reason}", remedy=verdict.remedy)
            for verdict in self.verdicts
            if verdict.outcome is not Outcome.PASS
        ]

    @property
    def reasons(self) -> list[Reason]:
        """Why it did not pass, verdicts that are missing included."""
        told = self.told
        if len(self.verdicts) < max(self.planned, 1):
            more = len(self.lost) - MOST_LOST
            reason = f"{self.id} inconclusive: {len(self.verdicts)} of {self.planned} verdicts were given"
            why = "; ".join((*self.lost[:MOST_LOST], *([f"and {more} more"] if more > 0 else [])))
            reason += f": {why}" if why else ""
            told.append(Reason(reason=reason, remedy="see the run's log for the activity that failed"))
        return told


@dataclass(frozen=True)
class Result:
    """One run, folded."""

    ending: Ending
    reasons: tuple[Reason, ...] = ()
    title: str = ""
    started: str = ""
    seconds: float = 0.0
    criteria: tuple[CriterionResult, ...] = ()
    record: GuardRecord | None = None
    coverage: Table = Table()

    @property
    def exit_code(self) -> int:
        """The exit code of `chaos-gpu run` and `chaos-gpu verdict` for it."""
        return EXIT_CODES[self.ending]

    @property
    def outcome(self) -> str:
        """The ending in words."""
        return self.ending.value

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "title": self.title,
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "reasons": [reason.model_dump() for reason in self.reasons],
            "run": self.record.run if self.record else "",
            "started": self.started,
            "seconds": self.seconds,
            "criteria": [
                {
                    "id": criterion.id,
                    "outcome": criterion.outcome.value,
                    "planned": criterion.planned,
                    "verdicts": [verdict.as_json() for verdict in criterion.verdicts],
                }
                for criterion in self.criteria
            ],
            "coverage": self.coverage.as_json(),
            "recovery": self.record.recovery.model_dump(mode="json") if self.record else None,
        }


def worst_exit_code(codes: Iterable[int]) -> int:
    """Return the worst of several exit codes (3, 5, 1, 2, 4, 0); of none, 2: nothing was shown."""
    found = set(codes)
    unknown = found - set(_WORST_FIRST)
    known = next((code for code in _WORST_FIRST if code in found), EXIT_CODES[Ending.INCONCLUSIVE])
    return known if known == EXIT_CODES[Ending.NOT_RECOVERED] or not unknown else EXIT_CODES[Ending.INTERNAL]


def ending_of(exit_code: int) -> Ending:
    """Return the ending for an exit code; for any other number, an internal error."""
    return next((ending for ending, code in EXIT_CODES.items() if code == exit_code), Ending.INTERNAL)


def fold(journal: object) -> Result:
    """Fold one journal.

    Order: something not recovered; refused, or no sign of the guard; a signal, or a platform that was not healthy
    before; one that is not healthy after; then the verdicts of each criterion against what was planned; and what
    Chaos Toolkit itself saw fail keeps anything from passing.

    Args:
        journal: what `json.load` made of a journal file, whatever that is.
    """
    if not isinstance(journal, dict) or not isinstance(journal.get("experiment"), dict):
        return Result(Ending.REFUSED, (Reason(reason="this is not a journal of Chaos Toolkit"),))
    base = _base(journal)
    raw = journal.get("chaos_gpu")
    if raw is None:
        remedy = "declare chaos_gpu.controls.guard at experiment level; without it nothing was armed and nothing judged"
        return _result(base, Ending.REFUSED, [Reason(reason="the journal has no word of the guard", remedy=remedy)])
    try:
        record = GuardRecord.model_validate(raw)
    except ValidationError as error:
        return _malformed(base, raw, error)
    criteria = _criteria(record, failures(journal))
    ending, reasons = _with_toolkit(*_ending(record, criteria), findings(journal))
    return _result(base, ending, reasons, criteria=criteria, record=record)


def _ending(record: GuardRecord, criteria: Sequence[CriterionResult]) -> tuple[Ending, list[Reason]]:
    ready = record.platform_ready
    if record.recovery.open:
        return Ending.NOT_RECOVERED, [*map(_left, record.recovery.open), *_reasons(criteria)]
    if record.refused:
        return Ending.REFUSED, [Reason(reason=record.refused.reason, remedy=record.refused.remedy)]
    if record.signal:
        return Ending.INCONCLUSIVE, [Reason(reason=f"the run was ended by {record.signal}", remedy="run it again")]
    if ready.before is not True:
        said = (
            "the platform was not healthy before" if ready.before is False else "nobody saw the platform healthy before"
        )
        return Ending.INCONCLUSIVE, [
            Reason(reason=said, remedy="chaos-gpu doctor says what is missing"),
            *_reasons(criteria),
        ]
    if ready.after is False:
        return _unhealthy_after(ready, criteria)
    return _judged(record, criteria)


def _with_toolkit(ending: Ending, reasons: list[Reason], found: Findings) -> tuple[Ending, list[Reason]]:
    """Let what Chaos Toolkit saw make a pass or an open question worse, never better."""
    if ending not in (Ending.PASS, Ending.INCONCLUSIVE):
        return ending, reasons
    told = [Reason(reason=text, remedy="see the run's log") for text in (*found.broken, *found.doubtful)]
    if found.broken:
        return Ending.FAIL, [*told, *reasons]
    if found.doubtful and ending is Ending.PASS:
        return Ending.INCONCLUSIVE, [*told, *reasons]
    return ending, reasons


def _unhealthy_after(ready: Readiness, criteria: Sequence[CriterionResult]) -> tuple[Ending, list[Reason]]:
    if ready.after_on_target:
        reason = Reason(
            reason="a node of the run is not healthy afterwards", remedy=f"{RECOVER}, then look at the node"
        )
        return Ending.NOT_RECOVERED, [reason, *_reasons(criteria)]
    reason = Reason(reason="the platform is not healthy afterwards", remedy="chaos-gpu doctor says what is wrong")
    return Ending.FAIL, [reason, *_reasons(criteria)]


def _judged(record: GuardRecord, criteria: Sequence[CriterionResult]) -> tuple[Ending, list[Reason]]:
    ready, reasons = record.platform_ready, _reasons(criteria)
    told = [reason for criterion in criteria for reason in criterion.told]
    outcomes = [criterion.outcome for criterion in criteria]
    if not any(criterion.planned for criterion in criteria):
        reasons.append(
            Reason(reason="the experiment judges no criterion", remedy="let its method call a judging probe")
        )
        outcomes.append(Outcome.INCONCLUSIVE)
    if ready.after is None and record.phase == "before" and Outcome.FAIL not in outcomes and told:
        reasons = told  # it stopped at the hypothesis, which says why; that nothing came after needs no remedy
        outcomes.append(Outcome.INCONCLUSIVE)
    elif ready.after is None:
        reasons.append(Reason(reason="nobody looked at the platform afterwards", remedy="run it again, to its end"))
        outcomes.append(Outcome.INCONCLUSIVE)
    return _OF_OUTCOME[worst(outcomes)], reasons


def _criteria(record: GuardRecord, lost: tuple[str, ...]) -> tuple[CriterionResult, ...]:
    ids = sorted({*record.planned, *(verdict.criterion for verdict in record.verdicts)})
    return tuple(
        CriterionResult(
            id=known,
            planned=record.planned.get(known, 0),
            verdicts=tuple(verdict for verdict in record.verdicts if verdict.criterion == known),
            lost=lost,
        )
        for known in ids
    )


def _reasons(criteria: Sequence[CriterionResult]) -> list[Reason]:
    return [reason for criterion in criteria for reason in criterion.reasons]


def _left(what: str) -> Reason:
    return Reason(reason=f"not recovered: {what}", remedy=RECOVER)


def _malformed(base: Mapping[str, Any], raw: object, error: ValidationError) -> Result:
    """Fold a guard's word that we cannot read: what it says is left open still counts."""
    recovery = raw.get("recovery") if isinstance(raw, dict) else None
    left = recovery.get("open") if isinstance(recovery, dict) else None
    if left:
        named = left if isinstance(left, list) else [left]
        return _result(base, Ending.NOT_RECOVERED, [_left(str(item)) for item in named])
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    reason = f"the guard's word in the journal cannot be read: {where}: {first['msg']}"
    return _result(base, Ending.REFUSED, [Reason(reason=reason, remedy="fold it with the version that wrote it")])


def _base(journal: Mapping[str, Any]) -> dict[str, Any]:
    title = journal["experiment"].get("title")
    started, seconds = journal.get("start"), journal.get("duration")
    return {
        "title": title if isinstance(title, str) else "",
        "started": started if isinstance(started, str) else "",
        "seconds": float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < FOREVER_S else 0.0,
        "coverage": coverage_in(journal),
    }


def _result(base: Mapping[str, Any], ending: Ending, reasons: Sequence[Reason], **more: Any) -> Result:
    return Result(ending=ending, reasons=tuple(reasons), **base, **more)
