"""What an output of DCGM comes to: one verdict, one action, and why. Nothing passes on missing evidence."""

from collections.abc import Iterator
from typing import NamedTuple

from chaos_gpu.criteria.dcgm.report import RAN, Action, Reading, Report, Result, Says
from chaos_gpu.criteria.dcgm.returns import ISOLATE, SOME_ERROR, SUCCESS, meaning_of
from chaos_gpu.criteria.dcgm.weigh import action_of, says, worst

_NOT_TESTS = ("health", "metrics")
"""Outputs that tell of some GPUs more than of others, and rightly so."""


class _Point(NamedTuple):
    says: Says
    why: str


def judge_reading(reading: Reading, exit_status: int | None = None, noise: str = "") -> Report:
    """Judge an output.

    Args:
        reading: the output.
        exit_status: of the command, if it is known; 226 may mean a warning only, 0 of `health` means nothing.
        noise: what stood around it.
    """
    points = [*_of_results(reading.results), *_of_claim(reading), *_of_evidence(reading)]
    points += _of_exit_status(exit_status, worst([point.says for point in points]))
    verdict = worst([point.says for point in points])
    action = action_of(reading.results)
    if exit_status == ISOLATE:
        action = Action.ISOLATE
    elif verdict is Says.FAIL and action is Action.NONE:
        action = Action.TRIAGE
    points.sort(key=lambda point: list(Says).index(point.says))  # stable: results stay in their order
    reasons = tuple(dict.fromkeys(point.why for point in points if point.why))
    return Report(reading, verdict, action, reasons, noise)


def _of_results(results: tuple[Result, ...]) -> Iterator[_Point]:
    for result in results:
        said = says(result)
        what = f"{result.test} on {result.entity}" if result.entity else result.test
        yield _Point(said, "" if said is Says.PASS else f"{what}: {result.status}")


def _of_claim(reading: Reading) -> Iterator[_Point]:
    """Weigh an output's own summary: it tells a warning and a failure apart as little as a result's status does."""
    if reading.claim is Says.FAIL:
        troubled = any(says(result) in (Says.FAIL, Says.WARN) for result in reading.results)
        yield _Point(
            Says.WARN if troubled else Says.FAIL, "" if troubled else "its overall result is Fail, it says not why"
        )
    elif reading.claim is Says.INCONCLUSIVE:
        yield _Point(Says.INCONCLUSIVE, "its overall result is neither Pass nor Fail")


def _of_evidence(reading: Reading) -> Iterator[_Point]:
    """Say what is missing for a pass."""
    for gap in reading.gaps:
        yield _Point(Says.INCONCLUSIVE, gap)
    if reading.gpu_count == 0 and not reading.gaps:
        healthy = "; an engine that is paused, or has no GPUs, says Healthy too" if reading.schema == "health" else ""
        yield _Point(Says.INCONCLUSIVE, f"it names no GPU{healthy}")
    if reading.schema in _NOT_TESTS:
        return
    if not any(result.status in RAN for result in reading.results):
        yield _Point(Says.INCONCLUSIVE, "no test ran")
        return
    for level in reading.skipped_levels:
        yield _Point(Says.INCONCLUSIVE, f"every test of {level} was skipped")
    for why in _uncovered(reading):
        yield _Point(Says.INCONCLUSIVE, why)


def _uncovered(reading: Reading) -> Iterator[str]:
    """Say which test ran on some GPUs and not on others that the output knows."""
    ran: dict[str, set[str]] = {}
    for result in reading.results:
        if result.entity in reading.gpus and result.status in RAN:
            ran.setdefault(result.test, set()).add(result.entity)
    for test, gpus in ran.items():
        missing = sorted(reading.gpus - gpus)
        if missing:
            yield f"{test} ran on {_count(len(gpus))}, not on {', '.join(missing)}"
        elif len(gpus) < reading.gpu_count:
            yield f"{test} ran on {_count(len(gpus))} of {reading.gpu_count}"


def _of_exit_status(exit_status: int | None, so_far: Says) -> Iterator[_Point]:
    if exit_status is None or exit_status == SUCCESS:
        return
    why = f"exit status {exit_status}: {meaning_of(exit_status)}"
    if exit_status == ISOLATE:
        yield _Point(Says.FAIL, why)
    elif exit_status != SOME_ERROR:
        yield _Point(Says.INCONCLUSIVE, why)
    elif so_far is Says.PASS:
        yield _Point(Says.INCONCLUSIVE, f"{why}; here it does not")


def _count(number: int) -> str:
    return f"{number} GPU{'' if number == 1 else 's'}"
