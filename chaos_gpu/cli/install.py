"""`chaos-gpu install` and `uninstall`: open a cluster to experiments, and close it again."""

import click
import yaml

from chaos_gpu.cli.options import context_option
from chaos_gpu.cluster.client import connect
from chaos_gpu.errors import UsageError
from chaos_gpu.faults import install as setup


@click.command()
@context_option
@click.option("--environment", envvar="CHAOS_GPU_ENVIRONMENT", default="", help="What experiments must call it.")
@click.option("--dry-run", is_flag=True, help="Print the manifests; change nothing.")
def install(context: str, environment: str, dry_run: bool) -> None:
    """Create the namespace, the opt-in and the least-rights accounts that experiments need."""
    if not environment:
        raise UsageError("the cluster's environment has no name", remedy="--environment staging")
    if dry_run:
        click.echo(yaml.safe_dump_all(setup.manifests(environment), sort_keys=False), nl=False)
        return
    for name in setup.install(connect(context), environment):
        click.echo(f"installed {name}")


@click.command()
@context_option
@click.option("--dry-run", is_flag=True, help="Print what would be removed, or why nothing would; change nothing.")
def uninstall(context: str, dry_run: bool) -> None:
    """Remove all that install made, the ledgers of past runs included. Refused while a run is active or stuck."""
    api = connect(context)
    if dry_run:
        for name in setup.removable(api):
            click.echo(f"would remove {name}")
        return
    for name in setup.uninstall(api):
        click.echo(f"removed {name}")
