"""`chaos-gpu status`, `abort`, `recover` and `ledger prune`: runs, from their ledgers."""

import click

from chaos_gpu.cli.options import context_option, json_option, print_json
from chaos_gpu.cluster.client import Api, connect
from chaos_gpu.errors import ApiError, ApiUnavailable, ChaosGpuError, NotRecovered, Refused, UsageError
from chaos_gpu.faults import aftermath
from chaos_gpu.faults.ledger import CLOSED, OPEN, STUCK, Entry, ledger_of, ledgers
from chaos_gpu.verdict import Outcome

NOT_RECOVERED, REFUSED = 3, 4
DAY_H = 24


@click.command()
@click.argument("run", default="")
@context_option
@json_option
@click.pass_context
def status(ctx: click.Context, run: str, context: str, as_json: bool) -> None:
    """List the runs that the cluster knows of, or show one.

    A run is active (it runs, or is being undone), aborting, closed (all is undone), or stuck (something remains: then
    this exits 3). Each is shown with how its verdicts count so far; its journal has the outcome (chaos-gpu verdict).
    A run that injects nothing, or that was refused, has no ledger in the cluster, so it is not listed.
    """
    api = connect(context)
    found = [entry for entry in ([ledger_of(api, run)] if run else ledgers(api)) if entry]
    if run and not found:
        raise UsageError(f"there is no run {run!r}", remedy="chaos-gpu status lists the runs")
    if as_json:
        print_json([_facts(entry) for entry in found])
    elif not found:
        click.echo("no runs")
    for entry in [] if as_json else found:
        click.echo(_line(entry))
        for item in entry.open_items:
            click.echo(f"    remains: {item}")
    if any(entry.state == STUCK for entry in found):
        ctx.exit(NOT_RECOVERED)


@click.command()
@click.argument("run", default="")
@click.option("--all", "everything", is_flag=True, help="Abort every active run.")
@context_option
def abort(run: str, everything: bool, context: str) -> None:
    """Stop an active run now: it reverts, settles and ends. Without RUN: the one that is active.

    Its own changes are taken back at once. It ends once the platform's reaction to its last fault has come and gone, or
    has had its time: the answer says for how long at the most.
    """
    api = connect(context)
    active = [entry.run for entry in ledgers(api, OPEN)]
    chosen = [run] if run else active
    if len(chosen) > 1 and not everything:
        raise UsageError(f"several runs are active: {', '.join(active)}", remedy="name one, or use --all")
    if not chosen:
        raise UsageError("no run is active", remedy="chaos-gpu status lists the runs")
    for each in chosen:
        longest_s = aftermath.abort(api, each)
        click.echo(f"aborting {each}; follow it with: chaos-gpu status {each}")
        if longest_s:
            click.echo(f"    it reverts now, and sees the platform's reaction through: for up to {longest_s:g} s")


@click.command()
@click.argument("run", default="")
@context_option
@json_option
@click.pass_context
def recover(ctx: click.Context, run: str, context: str, as_json: bool) -> None:
    """Replay a run's ledger: undo what is left, settle, close. Without RUN: every one that is active or stuck.

    A run whose runner is alive is refused: end it with `abort`.
    """
    api = connect(context)
    chosen = [run] if run else [entry.run for entry in ledgers(api) if entry.state != CLOSED]
    entries, failures = _recover_each(api, chosen)
    if as_json:
        print_json([_facts(entry) for entry in entries])
    for entry in [] if as_json else entries:
        for text in entry.records.get("recovery", {}).get("restored", []):
            click.echo(f"{entry.run}: {text}")
        for text in entry.open_items:
            click.echo(f"{entry.run}: REMAINS {text}")
        click.echo(_line(entry))
    if not chosen and not as_json:
        click.echo("nothing to recover")
    for failure in failures:
        click.echo(f"{failure}", err=True)
    if any(entry.state != CLOSED for entry in entries) or any(isinstance(each, NotRecovered) for each in failures):
        ctx.exit(NOT_RECOVERED)
    if failures:
        ctx.exit(REFUSED)


def _recover_each(api: Api, runs: list[str]) -> tuple[list[Entry], list[ChaosGpuError]]:
    """Recover one run after the other; one that is refused or fails keeps no other from it."""
    entries, failures = [], []
    for run in runs:
        try:
            entries.append(aftermath.recover(api, run))
        except (Refused, NotRecovered, ApiError, ApiUnavailable) as failure:
            failures.append(failure)
    return entries, failures


@click.group()
def ledger() -> None:
    """Keep house over the ledgers of past runs."""


@ledger.command()
@click.option("--older-than-h", type=click.FloatRange(min=DAY_H), default=DAY_H, show_default=True, help="Hours.")
@context_option
def prune(older_than_h: float, context: str) -> None:
    """Delete closed ledgers; those of the last 24 h stay, the repeat budget counts them."""
    gone = aftermath.prune(connect(context), older_than_h * 3600)
    click.echo(f"pruned {len(gone)} ledgers")


def _facts(entry: Entry) -> dict[str, object]:
    recovery = entry.records.get("recovery", {})
    return {
        "run": entry.run,
        "state": aftermath.state_of(entry),
        "opened_at": entry.created_at.isoformat(),
        "owner": entry.records.get("run", {}).get("owner", ""),
        "experiment": entry.records.get("run", {}).get("experiment", ""),
        "faults": [
            {key: fault.get(key) for key in ("fault", "state", "node", "gpu", "code")} for fault in entry.faults
        ],
        "verdicts": _verdicts(entry),
        "restored": recovery.get("restored", []),
        "open": recovery.get("open", []),
    }


def _line(entry: Entry) -> str:
    about = entry.records.get("run", {})
    when = entry.created_at.strftime("%Y-%m-%d %H:%M:%SZ")
    judged = ", ".join(f"{count} {outcome}" for outcome, count in _verdicts(entry).items()) or "no verdict"
    said = f"{about.get('owner', '')}  {about.get('experiment', '')}  ({judged})"
    return f"{aftermath.state_of(entry):8} {entry.run}  {when}  {said}"


def _verdicts(entry: Entry) -> dict[str, int]:
    """Count a run's verdicts by outcome, the worst first."""
    said = [str(record.get("outcome")) for key, record in entry.records.items() if key.startswith("verdict.")]
    return {outcome.value: said.count(outcome) for outcome in Outcome if outcome in said}
