"""`chaos-gpu verdict`: what journals come to, offline."""

from pathlib import Path

import click

from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.report.fold import Result, ending_of, worst_exit_code
from chaos_gpu.report.journal import fold_file, journals_in
from chaos_gpu.report.text import one_line, reason_lines


@click.command()
@click.argument("journals", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def verdict(journals: tuple[Path, ...], as_json: bool) -> int:
    """Fold JOURNALS (files, or run directories) into outcomes; the exit code is that of the worst."""
    results = [(path, fold_file(path)) for given in journals for path in journals_in(given)]
    exit_code = worst_exit_code(result.exit_code for _, result in results)
    if as_json:
        runs = [{"journal": str(path), **result.as_json()} for path, result in results]
        print_json({"outcome": ending_of(exit_code).value, "exit_code": exit_code, "runs": runs})
        return exit_code
    for path, result in results:
        _say(path, result)
    return exit_code


def _say(path: Path, result: Result) -> None:
    click.echo(one_line(result, str(path)))
    for line in reason_lines(result):
        click.echo(line)
