"""`chaos-gpu report`: runs as text, JSON, JUnit XML or one HTML page."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import click

from chaos_gpu.errors import UsageError
from chaos_gpu.report.fold import Result
from chaos_gpu.report.html import as_html
from chaos_gpu.report.journal import JOURNAL, fold_file, journals_in
from chaos_gpu.report.junit import as_junit
from chaos_gpu.report.text import as_text

Named = Sequence[tuple[str, Result]]


def as_json(results: Named) -> str:
    """Return several runs as one JSON list."""
    runs = [{"name": name, **result.as_json()} for name, result in results]
    return json.dumps(runs, indent=2, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[Named], str]] = MappingProxyType(
    {"text": as_text, "json": as_json, "junit": as_junit, "html": as_html}
)


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option("--output", type=click.Path(path_type=Path), help="Write here instead of to the terminal.")
def report(runs: tuple[Path, ...], form: str, output: Path | None) -> None:
    """Report on RUNS (run directories, or journals). Exits 0 once written; `verdict` gives the outcome's code."""
    paths = [path for given in runs for path in journals_in(given)]
    text = FORMATS[form]([(_name(path), fold_file(path)) for path in paths])
    if output is None:
        click.echo(text, nl=False)
        return
    write(output, text)
    click.echo(output)


def write(path: Path, text: str) -> None:
    """Write a report. Raises UsageError where that cannot be done."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _name(path: Path) -> str:
    return path.parent.resolve().name if path.name == JOURNAL else str(path)
