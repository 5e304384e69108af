"""`chaos-gpu run`: the real `chaos run` for each experiment, with everything about it kept in one directory."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from chaos_gpu.cli.child import Relay, chaos_program, run_child
from chaos_gpu.cli.experiments import load_experiment, name_of, resolve
from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.cli.progress import progress
from chaos_gpu.cli.report import write
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.settings import new_run_id
from chaos_gpu.report.fold import Ending, Reason, Result, ending_of, worst_exit_code
from chaos_gpu.report.html import as_html
from chaos_gpu.report.journal import JOURNAL, fold_file
from chaos_gpu.report.junit import as_junit
from chaos_gpu.report.text import coverage_lines, one_line, reason_lines

RUNS = Path("chaos-gpu-runs")
CONSOLE, LOG, HTML, JUNIT = "console.log", "chaostoolkit.log", "report.html", "junit.xml"
RUN_ID = "CHAOS_GPU_RUN"


@dataclass(frozen=True)
class Job:
    """One experiment, found and valid, and where its run is kept."""

    name: str
    source: Path
    directory: Path
    run_id: str
    configuration: dict[str, Any]


@click.command()
@click.argument("experiments", nargs=-1, required=True)
@click.option("--run-dir", type=click.Path(path_type=Path), help=f"Default: ./{RUNS}/<utc>-<name>.")
@click.option("--var", "variables", multiple=True, help="key=value or key:type=value, over the configuration.")
@json_option
@click.option("--junit", type=click.Path(path_type=Path), help="Write all outcomes as JUnit XML here, too.")
def run(
    experiments: tuple[str, ...], run_dir: Path | None, variables: tuple[str, ...], as_json: bool, junit: Path | None
) -> int:
    """Run EXPERIMENTS (files, or names that `experiments list` shows), one after the other.

    All of them are checked before the first one starts. The exit code is that of the worst outcome.
    """
    jobs = _plan(experiments, run_dir, variables)
    results: list[tuple[Job, Result]] = []
    with Relay() as relay:
        for job in jobs:
            result = _stopped(relay) if relay.seen else _run(job, variables, relay, quiet=as_json)
            results.append((job, result))
            if not as_json:
                _say(job, result)
    if junit is not None:
        _keep(junit, as_junit([(job.name, result) for job, result in results]))
    exit_code = worst_exit_code(result.exit_code for _, result in results)
    if as_json:
        runs = [{"name": job.name, "run_dir": str(job.directory), **result.as_json()} for job, result in results]
        print_json({"outcome": ending_of(exit_code).value, "exit_code": exit_code, "runs": runs})
    return exit_code


def outcome_without_journal(run_id: str, configuration: dict[str, Any]) -> tuple[int, str]:
    """Ask the cluster how a run ended whose runner left no word: exit code (2, or 3 if something remains), and why."""
    from chaos_gpu.cli import aftermath

    return aftermath.outcome_without_journal(run_id, configuration)


def _plan(experiments: Sequence[str], run_dir: Path | None, variables: Sequence[str]) -> list[Job]:
    """Find and check every experiment, and choose its directory and run id; nothing is started or written yet."""
    from chaos_gpu.cli.validate import validate

    chaos_program()
    if os.environ.get(RUN_ID) and len(experiments) > 1:
        raise UsageError(f"{RUN_ID} names one run, not {len(experiments)}", remedy="unset it, or run one experiment")
    jobs: list[Job] = []
    for given in experiments:
        source = resolve(given)
        try:
            configuration = validate(load_experiment(given), variables)
        except UsageError as error:
            raise UsageError(f"{given}: {error.reason}", error.remedy) from error
        name = name_of(source)
        directory = _directory(name, run_dir, alone=len(experiments) == 1, taken={job.directory for job in jobs})
        jobs.append(Job(name, source.absolute(), directory, os.environ.get(RUN_ID) or new_run_id(), configuration))
    return jobs


def _directory(name: str, run_dir: Path | None, *, alone: bool, taken: set[Path]) -> Path:
    short = Path(name).with_suffix("").name if Path(name).suffix else name.replace("/", "-")
    if run_dir is not None:
        base = run_dir if alone else run_dir / short
    else:
        base = RUNS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{short}"
    candidates = [base, *(base.with_name(f"{base.name}-{number}") for number in range(2, 1000))]
    free = (path for path in candidates if path not in taken and not (path / JOURNAL).exists())
    chosen = next(free, base)
    if run_dir is not None and alone and chosen != base:
        raise UsageError(f"{base} holds a run already", remedy="give another --run-dir")
    return chosen


def _run(job: Job, variables: Sequence[str], relay: Relay, *, quiet: bool) -> Result:
    """Run one experiment and write its reports."""
    try:
        job.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {job.directory}: {error.strerror}") from error
    journal, console = job.directory / JOURNAL, job.directory / CONSOLE
    begun_s = time.monotonic()
    with progress(console, job.name, quiet=quiet) as shown:
        arguments = _command(job, journal, variables)
        exit_code = run_child(arguments, {**os.environ, RUN_ID: job.run_id}, console, relay, shown.look)
        shown.look()
    result = _outcome(job, journal, exit_code)
    result = result if result.seconds else replace(result, seconds=time.monotonic() - begun_s)
    _keep(job.directory / HTML, as_html([(job.name, result)]))
    _keep(job.directory / JUNIT, as_junit([(job.name, result)]))
    return result


def _keep(path: Path, text: str) -> None:
    """Write a report. One that cannot be written changes nothing of the outcome."""
    try:
        write(path, text)
    except UsageError as error:
        click.echo(f"warning: {error.reason}", err=True)


def _command(job: Job, journal: Path, variables: Sequence[str]) -> list[str]:
    return [
        str(chaos_program()),
        "--no-version-check",
        "--log-file",
        str(job.directory / LOG),
        "run",
        "--no-validation",  # done before the first run started
        "--journal-path",
        str(journal),
        *(part for variable in variables for part in ("--var", variable)),
        str(job.source),
    ]


def _outcome(job: Job, journal: Path, exit_code: int) -> Result:
    """Fold the journal; where it says nothing of the guard, ask the cluster what is left."""
    said = fold_file(journal) if journal.is_file() else None
    if said is not None and said.record is not None:
        return said
    code, why = outcome_without_journal(job.run_id, job.configuration)
    how = f"chaos ended with exit code {exit_code}" if exit_code >= 0 else f"chaos was killed by signal {-exit_code}"
    reasons = (Reason(reason=why, remedy=f"see {job.directory / CONSOLE}"), Reason(reason=how))
    if said is None:
        return Result(ending_of(code), reasons)
    worse = ending_of(worst_exit_code((code, said.exit_code)))
    return replace(said, ending=worse, reasons=(*reasons, *said.reasons))


def _stopped(relay: Relay) -> Result:
    return Result(Ending.INCONCLUSIVE, (Reason(reason=f"not started: {relay.seen[0].name} came before"),))


def _say(job: Job, result: Result) -> None:
    page = job.directory / HTML
    click.echo(one_line(result, job.name, str(page) if page.is_file() else ""))
    for line in (*coverage_lines(result), *reason_lines(result)):
        click.echo(line)
