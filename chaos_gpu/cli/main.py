"""`chaos-gpu`: finds the command by name, and turns what goes wrong into an exit code.

Commands load only when called: the Kubernetes client alone takes longer to import than `--help` may take.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from chaos_gpu import __version__
from chaos_gpu.cli.streams import not_written, outlive_readers

if TYPE_CHECKING:
    from chaos_gpu.errors import ChaosGpuError

PASS, FAIL, INCONCLUSIVE, NOT_RECOVERED, REFUSED, INTERNAL = range(6)


class Row(NamedTuple):
    """Where a command lives, and the one line that `chaos-gpu --help` says about it."""

    target: str
    summary: str


COMMANDS = {
    "lab": Row("chaos_gpu.cli.lab:lab", "A GPU platform on this machine, to try and to test everything on."),
    "experiments": Row(
        "chaos_gpu.cli.experiments:experiments", "List the experiments, show one, copy one to change it."
    ),
    "criteria": Row("chaos_gpu.cli.criteria:criteria", "What is judged, by which rule, and from which source."),
    "install": Row("chaos_gpu.cli.install:install", "Make namespace and rights, and open a cluster to experiments."),
    "doctor": Row("chaos_gpu.cli.doctor:doctor", "What can be judged on a cluster, and why not the rest."),
    "plan": Row("chaos_gpu.cli.plan:plan", "What an experiment would do; changes nothing."),
    "run": Row("chaos_gpu.cli.run:run", "Run experiments, judge them, keep journal and report of each."),
    "status": Row("chaos_gpu.cli.runs:status", "The runs that a cluster knows of: active, aborting, closed, stuck."),
    "abort": Row("chaos_gpu.cli.runs:abort", "Stop an active run now: it reverts and ends."),
    "recover": Row("chaos_gpu.cli.runs:recover", "Undo what a dead runner left, from its ledger."),
    "verdict": Row("chaos_gpu.cli.verdict:verdict", "The outcome of a journal; needs no cluster."),
    "report": Row("chaos_gpu.cli.report:report", "Runs as text, JSON, JUnit or a page; needs no cluster."),
    "explain": Row("chaos_gpu.cli.explain:explain", "What a kernel log, DCGM or a checkpoint says; needs no cluster."),
    "prove": Row("chaos_gpu.cli.prove:prove", "Show on the lab that each experiment catches its defects."),
    "ledger": Row("chaos_gpu.cli.runs:ledger", "Keep house over the ledgers of past runs."),
    "uninstall": Row("chaos_gpu.cli.install:uninstall", "Remove all that install made."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and summaries, and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table: the way through a game day."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None if there is no such name."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module, _, attribute = row.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, so that help imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    name="chaos-gpu",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 pass, 1 fail, 2 inconclusive, 3 not recovered, 4 refused or usage, 5 internal error.",
)
@click.version_option(__version__, prog_name="chaos-gpu")
def cli() -> None:
    """Break a GPU platform on purpose, see what it does about it, and leave it as it was."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the table in `--help`.

    Args:
        args: the command line without the program's name; by default the process's own.

    Ctrl-C counts as a signal does in a run: nothing may be concluded (2). Whatever is not foreseen here is a bug;
    it stays uncaught, and the interpreter's last hook writes it down and exits 5.
    """
    sys.excepthook = _internal_error
    if args is None:
        outlive_readers()
    code = _run(list(sys.argv[1:] if args is None else args))
    sys.stdout.flush()
    if failure := not_written():
        click.echo(f"error: standard output was not written whole: {failure}", err=True)
        return code or INCONCLUSIVE
    return code


def _run(args: list[str]) -> int:
    try:
        with cli.make_context("chaos-gpu", args) as context:
            code = cli.invoke(context)
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (click.Abort, KeyboardInterrupt, EOFError):
        click.echo("interrupted", err=True)
        return INCONCLUSIVE
    except click.ClickException as error:
        error.show()
        return REFUSED
    except _chaos_gpu_error() as error:
        return _explain(error)
    return code if isinstance(code, int) else PASS


def _chaos_gpu_error() -> "type[ChaosGpuError]":
    # Evaluated only once an error is on its way: the tree stands on chaoslib, which takes 0.2 s to import.
    from chaos_gpu.errors import ChaosGpuError

    return ChaosGpuError


def _explain(error: "ChaosGpuError") -> int:
    """Say what, why and what next on stderr; return the error's exit code."""
    from chaos_gpu.errors import NotLanded, NotRecovered, Refused

    prefix = "refused: " if isinstance(error, Refused) else "error: "
    click.echo(prefix + error.reason, err=True)
    if error.remedy:
        click.echo(" " * len(prefix) + error.remedy, err=True)
    if isinstance(error, NotRecovered):
        return NOT_RECOVERED
    return INCONCLUSIVE if isinstance(error, NotLanded) else REFUSED


def _internal_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
    """Write the traceback where it can be sent from, say so in one line, exit 5."""
    text = "".join(traceback.format_exception(kind, error, trace))
    click.echo(f"internal error: {kind.__name__}: {error}", err=True)
    try:
        click.echo(f"                the traceback is in {_keep(text)}; please report it", err=True)
    except OSError:
        click.echo(text, err=True)
    raise SystemExit(INTERNAL)


def _keep(text: str) -> Path:
    """Write into a file that only its owner can read."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    handle, name = tempfile.mkstemp(prefix=f"chaos-gpu-{stamp}-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    return Path(name)
