"""`chaos-gpu plan`: what an experiment would do, without doing it."""

import click
from chaoslib.secret import load_secrets

from chaos_gpu.cli.experiments import load_experiment
from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.cli.validate import guard_arguments, validate
from chaos_gpu.faults.activities import resolved
from chaos_gpu.faults.duration import duration_of
from chaos_gpu.faults.names import INJECTOR
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.preflight import arm
from chaos_gpu.faults.rights import ENGINE
from chaos_gpu.faults.run import Run


@click.command()
@click.argument("experiment")
@click.option("--var", "variables", multiple=True, help="Override a configuration value, as `chaos run --var` does.")
@json_option
def plan(experiment: str, variables: tuple[str, ...], as_json: bool) -> None:
    """Show targets, changes, undo, consequences, rights and duration of EXPERIMENT. Changes nothing.

    All that would refuse the run refuses the plan too, with the same reason (exit 4). The cluster is named by
    CHAOS_GPU_CONTEXT and CHAOS_GPU_ENVIRONMENT, or by --var context=… --var environment=….
    """
    document = load_experiment(experiment)
    configuration = validate(document, variables)
    secrets = load_secrets(document.get("secrets", {}), configuration)
    run = arm(document, configuration, secrets, guard_arguments(document))
    takes = duration_of(resolved(document, configuration, secrets), run.plans, run.settings)
    if as_json:
        plans = [each.as_json() for each in run.plans.values()]
        duration = {"from_s": takes.least_s, "to_s": takes.most_s, "pods": takes.pods}
        print_json({"plans": plans, "rights": rights_of(run), "judges": run.owed, "duration": duration})
        return
    for each in run.plans.values():
        click.echo(each.as_text())
    if not run.settings.node and run.plans:
        seed = run.settings.seed or run.id
        click.echo(f"chosen     at random under seed {seed}; to hit the same one: CHAOS_GPU_SEED={seed}")
    judged = ", ".join(f"{criterion} × {count}" for criterion, count in run.owed.items()) or "nothing"
    click.echo(f"judges     {judged}")
    click.echo(f"detectors  {', '.join(each.name for each in run.detectors) or 'none'}")
    for (why, remedy), names in unjudged(run).items():
        click.echo(f"unjudged   {', '.join(names)}: {why}\n           {remedy}")
    pods = f" and the starts of {takes.pods} pods" if takes.pods else ""
    click.echo(f"duration   at least {takes.least_s:g} s{pods}; if all takes as long as it may, {takes.most_s:g} s")
    click.echo("rights     " + "\n           ".join(rights_of(run)))


def unjudged(run: Run) -> dict[Obstacle, list[str]]:
    """Say what is in the way, and which of the experiment's criteria cannot be judged for it."""
    found: dict[Obstacle, list[str]] = {}
    for name in run.owed:
        for obstacle in dict.fromkeys(each.obstacles[name] for each in run.plans.values() if name in each.obstacles):
            found.setdefault(obstacle, []).append(name)
    return found


def rights_of(run: Run) -> list[str]:
    """Say what a run needs to be allowed: itself, and its injectors by their own ServiceAccount."""
    injectors = dict.fromkeys(right for each in run.plans.values() for right in each.rights)
    return [*map(str, ENGINE), *(f"{right}, by ServiceAccount {INJECTOR}" for right in injectors)]
