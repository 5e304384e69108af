"""`chaos-gpu prove`: show on the lab that every experiment can fail, and for the right reason.

One fresh lab for each pair of experiment and planted defect, around the same `chaos-gpu run` that a user calls.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import click

from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.criteria.registry import REAL_GPUS, RECOVERY, Cell, components, matrix
from chaos_gpu.errors import UsageError
from chaos_gpu.report.fold import Ending

WITHOUT = "without:"
LIMIT_S = 600
HEALTHY = "healthy"
LAB = "lab"


class Proof(NamedTuple):
    """One cell of the matrix with what was found."""

    cell: Cell
    outcome: str
    reason: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it is as expected."""
        return self.outcome == self.cell.expected

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        found = {"outcome": self.outcome, "reason": self.reason, "seconds": round(self.seconds, 3), "where": LAB}
        return {**self.cell._asdict(), **found}


@click.command()
@click.argument("experiments", nargs=-1)
@json_option
@click.option("--defect", "defects", multiple=True, help="Only with this one planted, or `healthy`. Repeatable.")
@click.option("--jobs", type=click.IntRange(1, 64), default=1, show_default=True, help="So many labs at once.")
def prove(experiments: tuple[str, ...], as_json: bool, defects: tuple[str, ...], jobs: int) -> int:
    """Run EXPERIMENTS (by default all) healthy, with each planted defect, and without what they need.

    Each takes a fresh lab, some ten to sixty seconds; all take the better part of an hour on two cores.

    Exits 0 only if every criterion came out as the registry expects.
    """
    groups = _groups(experiments, defects)
    proofs: list[Proof] = []
    with tempfile.TemporaryDirectory(prefix="chaos-gpu-prove-") as scratch, ThreadPoolExecutor(jobs) as pool:
        tasks = [pool.submit(_prove, cells, Path(scratch) / str(number)) for number, cells in enumerate(groups)]
        for task in tasks:
            proofs += task.result()
            if not as_json:
                _tell(proofs[-1], len(proofs), sum(map(len, groups)))
    ok = all(proof.ok for proof in proofs)
    if as_json:
        print_json({"cells": [proof.as_json() for proof in proofs], "ok": ok})
    else:
        _show(proofs, ok=ok)
    return 0 if ok else 1


def _groups(experiments: Sequence[str], defects: Sequence[str]) -> list[list[Cell]]:
    """Sort the cells that are wanted by what one run on one lab can answer."""
    cells = matrix()
    known = sorted({cell.experiment for cell in cells})
    for unprovable in set(experiments) & set(REAL_GPUS):
        raise UsageError(
            f"{unprovable} is for real GPUs only: {REAL_GPUS[unprovable]}", f"run it: chaos-gpu run {unprovable}"
        )
    for unknown in set(experiments) - set(known):
        raise UsageError(f"no experiment {unknown!r} to prove", remedy=f"one of: {', '.join(known)}")
    wanted = [cell for cell in cells if not experiments or cell.experiment in experiments]
    planted = sorted({_planted(cell) for cell in wanted})
    for unknown in set(defects) - set(planted):
        raise UsageError(f"no defect {unknown!r} to plant there", remedy=f"one of: {', '.join(planted)}")
    groups: dict[tuple[str, str | None], list[Cell]] = {}
    for cell in wanted:
        if not defects or _planted(cell) in defects:
            groups.setdefault((cell.experiment, cell.defect), []).append(cell)
    return list(groups.values())


def _planted(cell: Cell) -> str:
    return cell.defect or HEALTHY


def _prove(cells: Sequence[Cell], run_dir: Path) -> list[Proof]:
    """Run one experiment on one lab and read every cell's outcome off it."""
    begun_s = time.monotonic()
    command = _command(cells[0], run_dir)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        run = json.loads(done.stdout)["runs"][0]
    except subprocess.TimeoutExpired:
        return list(_all(cells, f"not over after {LIMIT_S} s", time.monotonic() - begun_s))
    except (ValueError, LookupError, TypeError):
        said = " ".join(done.stderr.split())[-400:]
        return list(_all(cells, f"no result, exit code {done.returncode}: {said}", time.monotonic() - begun_s))
    return [_read(cell, run, time.monotonic() - begun_s) for cell in cells]


def _command(cell: Cell, run_dir: Path) -> list[str]:
    ours = [sys.executable, "-P", "-m", "chaos_gpu"]  # -P: the installed package, wherever we are called from
    defect = cell.defect or ""
    planted = ["--without", defect.removeprefix(WITHOUT)] if defect.startswith(WITHOUT) else ["--defect", defect]
    only = [part for component in components(cell.experiment) for part in ("--only", component)]
    lab = [*ours, LAB, "run", *([*only, *planted] if defect else []), "--"]  # the healthy platform is whole
    return [*lab, *ours, "run", cell.experiment, "--json", "--run-dir", str(run_dir)]


def _read(cell: Cell, run: dict[str, Any], seconds: float) -> Proof:
    """Find a cell's outcome: a criterion's own, or the run's where the criterion was never reached."""
    reasons = [reason["reason"] for reason in run["reasons"]]
    judged = next((each for each in run["criteria"] if each["id"] == cell.criterion), None)
    if judged is None or cell.criterion == RECOVERY or (cell.defect is None and run["outcome"] != Ending.PASS):
        return Proof(cell, run["outcome"], reasons[0] if reasons else "", seconds)
    own = [each["reason"] for each in judged["verdicts"] if each["outcome"] == judged["outcome"]]
    return Proof(cell, judged["outcome"], next(iter([*own, *reasons]), ""), seconds)


def _all(cells: Iterable[Cell], reason: str, seconds: float) -> Iterator[Proof]:
    return (Proof(cell, Ending.INTERNAL.value, reason, seconds) for cell in cells)


def _tell(proof: Proof, done: int, of: int) -> None:
    click.echo(f"{done}/{of} {proof.cell.experiment} {_planted(proof.cell)}: {proof.seconds:.1f} s", err=True)


def _show(proofs: Sequence[Proof], *, ok: bool) -> None:
    """Print a line for each cell, with the reason where it came out wrong."""
    wide = max(len(_planted(proof.cell)) for proof in proofs)
    for experiment, own in groupby(proofs, key=lambda proof: proof.cell.experiment):
        click.echo(experiment)
        for proof in own:
            click.echo(f"  {_mark(proof)}  {_planted(proof.cell):<{wide}}  {proof.cell.criterion:<9}  {_found(proof)}")
    wrong = sum(not proof.ok for proof in proofs)
    click.echo("every cell is as expected" if ok else f"{wrong} of {len(proofs)} cells are not as expected")


def _mark(proof: Proof) -> str:
    return click.style("ok   ", fg="green") if proof.ok else click.style("WRONG", fg="red", bold=True)


def _found(proof: Proof) -> str:
    if proof.ok:
        return proof.outcome
    return f"{proof.outcome}, expected {proof.cell.expected}: {proof.reason}"
