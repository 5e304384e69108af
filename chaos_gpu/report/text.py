"""A run in words, for a terminal and for a log."""

from collections.abc import Iterator, Sequence

from chaos_gpu.report.fold import CriterionResult, Result

_INDENT = " " * 6


def one_line(result: Result, name: str, report: str = "") -> str:
    """Return the line that says how one experiment ended, and where its report lies."""
    where = f"  report: {report}" if report else ""
    return f"{result.outcome}  {name}  {result.seconds:.1f} s{where}"


def reason_lines(result: Result) -> list[str]:
    """Return what kept the run from passing, each with what to do about it on the next line."""
    lines = []
    for reason in result.reasons:
        lines.append(_INDENT + reason.reason)
        lines += [_INDENT + "  " + reason.remedy] if reason.remedy else []
    return lines


def coverage_lines(result: Result) -> list[str]:
    """Return the table of detection coverage, if there is one."""
    return [_INDENT + line for line in result.coverage.lines()]


def as_text(results: Sequence[tuple[str, Result]]) -> str:
    """Return the whole report of several runs."""
    return "\n".join(line for name, result in results for line in _run_lines(name, result)) + "\n"


def _run_lines(name: str, result: Result) -> Iterator[str]:
    yield one_line(result, name)
    if result.title:
        yield f"{_INDENT}{result.title}"
    if result.record is not None:
        yield f"{_INDENT}run {result.record.run or '(not armed)'}, started {result.started or 'at an unknown time'}"
    for criterion in result.criteria:
        yield from _criterion_lines(criterion)
    yield from coverage_lines(result)
    if result.reasons:
        yield f"{_INDENT}why {result.outcome}:"
        yield from (f"  {line}" for line in reason_lines(result))
    if result.record is not None:
        yield from (f"{_INDENT}restored: {what}" for what in result.record.recovery.restored)


def _criterion_lines(criterion: CriterionResult) -> Iterator[str]:
    yield f"{_INDENT}{criterion.id} {criterion.outcome}, {len(criterion.verdicts)} of {criterion.planned} verdicts"
    for same in criterion.said:
        often = f" ({len(same)} times)" if len(same) > 1 else ""
        yield f"{_INDENT}  {same[0].outcome}: {same[0].reason}{often}"
