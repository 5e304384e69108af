"""Show what an output of DCGM says to a person: on a terminal in colour, elsewhere as plain text."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from chaos_gpu.cli.telling import counted, labelled, printable
from chaos_gpu.criteria.dcgm.guide import advice_for
from chaos_gpu.criteria.dcgm.report import DiagError, Report, Result, Says, Status
from chaos_gpu.criteria.dcgm.weigh import says

MAX_SHOWN = 50
MAX_REASONS = 10

_STYLES = {Says.FAIL: "bold red", Says.INCONCLUSIVE: "bold magenta", Says.WARN: "bold yellow", Says.PASS: "bold green"}
_KINDS = {"health": "health check", "metrics": "exported metrics"}


def show(report: Report) -> None:
    """Print verdict and action, then why, then each result that is not in order, the gravest first."""
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    advice = advice_for(report)
    console.print(Text(f"{report.verdict}: {_what(report)}", style=_STYLES[report.verdict]))
    console.print(labelled("action", f"{report.action}: {advice.meaning}"))
    console.print(labelled("first", advice.first))
    console.print(labelled("tests", _counts(report.reading.results)))
    for reason in report.reasons[:MAX_REASONS]:
        console.print(labelled("why", reason))
    for note in report.noise.splitlines()[:MAX_REASONS]:
        console.print(labelled("also", note))
    troubled = [result for result in report.reading.results if says(result) is not Says.PASS]
    for result in sorted(troubled, key=lambda each: list(Says).index(says(each)))[:MAX_SHOWN]:
        console.print()
        for line in _told(result, report.reading.schema):
            console.print(line)
    hidden = len(troubled) - MAX_SHOWN
    if hidden > 0:
        console.print(f"\n{counted(hidden, 'more result')} not shown; --json has every one")


def _what(report: Report) -> str:
    reading = report.reading
    kind = _KINDS.get(reading.schema, f"diagnostic {reading.level}" if reading.level else "diagnostic")
    version = f", DCGM {printable(reading.version)}" if reading.version else ""
    return f"{kind} of {counted(reading.gpu_count, 'GPU')}{version}"


def _counts(results: tuple[Result, ...]) -> str:
    counts = {status: sum(result.status is status for result in results) for status in Status}
    named = [f"{number:,} {status}" for status, number in counts.items() if number]
    tests = len({result.test for result in results})
    return f"{counted(len(results), 'result')} of {counted(tests, 'test')}" + (f": {', '.join(named)}" if named else "")


def _told(result: Result, schema: str) -> Iterator[Text]:
    entity = result.entity or _unnamed(schema)
    uuid = f" {result.uuid}" if result.uuid else ""
    yield Text(printable(f"{entity}{uuid}  {result.test}: {result.status}"), style=_STYLES[says(result)])
    for error in result.errors[:MAX_SHOWN]:
        yield labelled("error", _error(error))


def _unnamed(schema: str) -> str:
    if schema in ("3.1", "3.3"):
        return "node, or a GPU that this version does not name"
    return "node"


def _error(error: DiagError) -> str:
    known = [f"{each}" for each in (error.id, error.category, error.severity) if each is not None]
    text = error.text or "(no text)"
    return f"{', '.join(known)}: {text}" if known else text
