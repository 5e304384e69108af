"""`chaos-gpu criteria`: the promises that can be judged here, out of the registry."""

import click

from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.criteria import registry
from chaos_gpu.criteria.criterion import Criterion


@click.command()
@click.argument("ids", nargs=-1)
@json_option
@click.option("--markdown", is_flag=True, help="Print the table of the documentation.")
def criteria(ids: tuple[str, ...], as_json: bool, markdown: bool) -> None:
    """Show every criterion, or those with IDS: statement, thresholds, judges, experiments, planted defects."""
    wanted = [registry.criterion(each) for each in ids] or list(registry.criteria())
    if as_json:
        print_json([each.as_json() for each in wanted])
    elif markdown:
        click.echo(registry.markdown(wanted), nl=False)
    else:
        click.echo("\n\n".join(_text(each) for each in wanted))


def _text(criterion: Criterion) -> str:
    limits = (f"{each.name} {each.default:g} {each.unit} ({each.env})" for each in criterion.thresholds)
    lines = [
        f"{criterion.id}  {criterion.statement}",
        f"  layer        {criterion.layer}",
        f"  source       {criterion.source}",
        f"  thresholds   {', '.join(limits) or 'none'}",
        f"  judged by    {', '.join(criterion.probes)}",
        f"  experiments  {', '.join(criterion.experiments)}",
        f"  must catch   {', '.join(criterion.defects)}",
    ]
    return "\n".join(lines)
