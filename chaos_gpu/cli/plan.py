"""`chaos-gpu plan`: what an experiment would do, without doing it."""

from typing import Any

import click
from chaoslib import convert_vars
from chaoslib.configuration import load_configuration
from chaoslib.exceptions import ChaosException
from chaoslib.secret import load_secrets

from chaos_gpu.cli.experiments import load_experiment
from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.activities import GUARD
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.preflight import arm
from chaos_gpu.faults.rights import ENGINE
from chaos_gpu.faults.run import Run


@click.command()
@click.argument("experiment")
@click.option("--var", "variables", multiple=True, help="Override a configuration value, as `chaos run --var` does.")
@json_option
def plan(experiment: str, variables: tuple[str, ...], as_json: bool) -> None:
    """Show targets, changes, undo, consequences, rights and duration of EXPERIMENT. Changes nothing.

    All that would refuse the run refuses the plan too, with the same reason (exit 4).
    """
    document = load_experiment(experiment)
    try:
        given = convert_vars(list(variables))
        configuration = load_configuration(document.get("configuration", {}), given)
        secrets = load_secrets(document.get("secrets", {}), configuration)
    except (ChaosException, ValueError) as error:
        raise UsageError(f"not a valid experiment: {error}", remedy="chaos validate says more") from error
    run = arm(document, configuration, secrets, guard_arguments(document))
    shortest_s, longest_s = duration_s(run)
    if as_json:
        plans = [each.as_json() for each in run.plans.values()]
        duration = {"from_s": shortest_s, "to_s": longest_s}
        print_json({"plans": plans, "rights": list(map(str, ENGINE)), "judges": run.owed, "duration": duration})
        return
    for each in run.plans.values():
        click.echo(each.as_text())
    judged = ", ".join(f"{criterion} × {count}" for criterion, count in run.owed.items()) or "nothing"
    click.echo(f"judges     {judged}")
    click.echo(f"detectors  {', '.join(each.name for each in run.detectors) or 'none: nothing could be judged'}")
    click.echo(f"duration   {shortest_s:g} s where the platform reacts at once, {longest_s:g} s at the most")
    click.echo("rights     " + "\n           ".join(map(str, ENGINE)))


def guard_arguments(document: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the experiment's guard. Raises UsageError when it has none at its top level."""
    for control in document.get("controls") or ():
        provider = control.get("provider") or {}
        if provider.get("module") == GUARD:
            return dict(provider.get("arguments") or {})
    raise UsageError("the experiment has no guard", remedy=f"declare {GUARD} under `controls` at its top")


def duration_s(run: Run) -> tuple[float, float]:
    """Say how long a run takes, seconds, at the least and at the most, pods starting at once."""
    settings, faults = run.settings, len(run.plans)
    return faults * settings.hold_s, faults * (longest_fault_s(next(iter(run.plans.values()))) if faults else 0.0)


def longest_fault_s(one: Plan) -> float:
    """Say how long one fault may take to be over, seconds."""
    return one.consequence.reaction_s + one.consequence.uncordon_s
