"""`chaos-gpu doctor`: what can and cannot be judged on a cluster, and why."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from chaos_gpu.cli.options import context_option, json_option, print_json
from chaos_gpu.cluster.client import Api, JsonObject, connect
from chaos_gpu.criteria.registry import criteria
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.errors import NotFound, TargetError
from chaos_gpu.faults.dcgm_pods import engines_by_node
from chaos_gpu.faults.detectors import Detector, Watchers, cannot_judge, detectors_by_node, find_watchers
from chaos_gpu.faults.ledger import CLOSED, ledgers
from chaos_gpu.faults.names import ENABLED, ENVIRONMENT, NAMESPACE
from chaos_gpu.faults.prerequisites import DETECTOR, RECORDS, Prerequisite, detector, find_prerequisites, needs_of
from chaos_gpu.faults.rights import ENGINE, missing_rights
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.targets import gpu_count, gpu_nodes, unfit

REFUSED, INCONCLUSIVE = 4, 2


@dataclass
class Findings:
    """What was found, and what stands in the way."""

    context: str
    server: str
    version: str
    environment: str = ""
    missing_rights: list[str] = field(default_factory=list)
    gpu_nodes: list[dict[str, Any]] = field(default_factory=list)
    detectors: list[dict[str, Any]] = field(default_factory=list)
    remediators: list[dict[str, Any]] = field(default_factory=list)
    judged_by: list[dict[str, Any]] = field(default_factory=list)
    open_runs: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    criteria: dict[str, str] = field(default_factory=dict)


@click.command()
@context_option
@click.option("--selector", envvar="CHAOS_GPU_SELECTOR", default=Settings().selector, help="Of the GPU nodes.")
@click.option("--records", envvar="CHAOS_GPU_RECORDS", default="", show_envvar=True, help="Where the records are.")
@click.option(
    "--admission", envvar="CHAOS_GPU_ADMISSION", default="", show_envvar=True, help="The mark of a node's r2."
)
@click.option("--job", envvar="CHAOS_GPU_JOB", default="", show_envvar=True, help="Manifest of a training.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, context: str, as_json: bool, **told: str) -> None:
    """Examine a cluster: opt-in, rights, GPU nodes, detectors, remediators; what can be judged here, and why not.

    Also whether records of diagnostics, DCGM engines and a training are there, and what to do where they are not.

    Exits 0 when everything can, 2 when something cannot be judged, 4 when every run would be refused.
    """
    found = examine(connect(context), Settings.read(told))
    if as_json:
        print_json(asdict(found))
    else:
        _print(found)
    if found.obstacles:
        ctx.exit(REFUSED)
    if any(found.criteria.values()):
        ctx.exit(INCONCLUSIVE)


def examine(api: Api, settings: Settings) -> Findings:
    """Look at everything that a run would look at before it starts. Changes nothing."""
    version = str(api.get("/version").get("gitVersion", ""))
    found = Findings(api.context, api.host.split("://")[-1].split("/")[0], version)
    _opt_in(api, found)
    found.missing_rights = list(map(str, missing_rights(api, ENGINE)))
    found.obstacles += [f"missing right: {right}" for right in found.missing_rights]
    watchers = find_watchers(api)
    readers = detectors_by_node(api, watchers)
    nodes = _fleet(api, settings.selector, watchers, readers, found)
    found.detectors = [{"name": each.name, **each.profile.model_dump(mode="json")} for each in watchers.detectors]
    found.remediators = [each.model_dump(mode="json") for each in watchers.remediators]
    engines = engines_by_node(api, [node["name"] for node in found.gpu_nodes])
    for node in found.gpu_nodes:
        node["dcgm"] = engines[node["name"]].closed
    needed = find_prerequisites(api, settings, watchers, nodes, engines)
    needed.append(detector({name for node in found.gpu_nodes for name in node["detectors"]}))
    found.judged_by = [each.as_json() for each in needed]
    there = [readers.get(node["name"], []) for node in found.gpu_nodes] or [[]]
    found.criteria = {each.id: _why_not(each.id, there, needed) for each in criteria()}
    return found


def _why_not(criterion: str, readers: Sequence[Sequence[Detector]], needed: Sequence[Prerequisite]) -> str:
    """Say why a criterion cannot be judged here, "" where it can: one node on which it can be judged is enough."""
    names = needs_of(criterion)
    unseen = (
        min((cannot_judge(criterion, each, Action.CORDON) for each in readers), key=len) if DETECTOR in names else ""
    )
    return unseen or next((each.lacking for each in needed if each.name in names and each.lacking), "")


def _opt_in(api: Api, found: Findings) -> None:
    try:
        annotations = api.get(f"/api/v1/namespaces/{NAMESPACE}")["metadata"].get("annotations") or {}
    except NotFound:
        found.obstacles.append(f"the cluster is not opted in: chaos-gpu install --context {found.context}")
        return
    found.environment = str(annotations.get(ENVIRONMENT, ""))
    if annotations.get(ENABLED) != "true":
        found.obstacles.append(f"the cluster has opted out: {ENABLED} is not true")
    found.open_runs = [entry.run for entry in ledgers(api) if entry.state != CLOSED]
    found.obstacles += [f"run {run} is not closed: chaos-gpu status {run}" for run in found.open_runs]


def _fleet(
    api: Api, selector: str, watchers: Watchers, readers: dict[str, list[Detector]], found: Findings
) -> list[JsonObject]:
    try:
        nodes = gpu_nodes(api, selector)
    except TargetError as failure:
        found.obstacles.append(failure.reason)
        return []
    for node in nodes:
        name = node["metadata"]["name"]
        why_not = unfit(node, watchers.conditions(), watchers.attribution())
        reading = [each.name for each in readers.get(name, ())]
        found.gpu_nodes.append({"name": name, "gpus": gpu_count(node), "unfit": why_not, "detectors": reading})
    if all(node["unfit"] for node in found.gpu_nodes):
        found.obstacles.append("no GPU node is fit as a target")
    return nodes


def _print(found: Findings) -> None:
    click.echo(f"cluster      {found.context} ({found.server}, {found.version})")
    click.echo(f"environment  {found.environment or 'none: not opted in'}")
    click.echo(f"rights       {'complete' if not found.missing_rights else f'{len(found.missing_rights)} missing'}")
    for node in found.gpu_nodes:
        state = f"not fit: {node['unfit']}" if node["unfit"] else "fit"
        readers = ", ".join(node["detectors"]) or "no detector"
        dcgm = "no DCGM to inject into" if node["dcgm"] else "DCGM takes injections"
        click.echo(f"GPU node     {node['name']}: {node['gpus']} GPUs, {state}; {readers}; {dcgm}")
    for each in found.detectors:
        sees = f"reads the kernel log ({each['transport']})" if each["transport"] else "does not read the kernel log"
        click.echo(f"detector     {each['name']}: {sees}; conditions {', '.join(each['conditions']) or 'none'}")
    for each in found.remediators:
        click.echo(f"remediator   {each['name']}: may {', '.join(each['actions'])}")
    for each in found.judged_by:
        if each["lacking"] or each["name"] != DETECTOR:  # those that there are stand above
            _print_prerequisite(each)
    for criterion, why in found.criteria.items():
        click.echo(f"{criterion:12} {f'cannot be judged: {why}' if why else 'can be judged'}")
    for obstacle in found.obstacles:
        click.echo(f"REFUSED      {obstacle}")


def _print_prerequisite(found: dict[str, Any]) -> None:
    told = ": ".join(part for part in (found["found"] or "none", found["lacking"]) if part)
    click.echo(f"{found['name']:12} {told}")
    if found["lacking"]:
        click.echo(f"{'':12} without it not judged: {', '.join(found['criteria'])}{_also(found['name'])}")
        click.echo(f"{'':12} {found['remedy']}")


def _also(name: str) -> str:
    return "; nor what DEV-02 says of an Xid under a job" if name == RECORDS else ""
