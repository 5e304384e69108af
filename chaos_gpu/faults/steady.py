"""The steady state: what must hold before a fault and again after it."""

from collections.abc import Iterable
from typing import Any

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.errors import TargetError, UsageError
from chaos_gpu.faults.names import EXERCISE, GPU
from chaos_gpu.faults.observe import schedulable
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.targets import gpu_nodes, raised_conditions
from chaos_gpu.verdict import Judgement, Outcome, Verdict, failed, inconclusive, passed, worst

PLATFORM = "PLATFORM"


def platform_ready(run: Run) -> dict[str, Any]:
    """Judge the fleet's health; afterwards against the picture taken before."""
    try:
        nodes = gpu_nodes(run.api, run.settings.selector)
    except TargetError as failure:
        return _answer(run, [failure.reason], on_target=False, nodes=0)
    pictures = {node["metadata"]["uid"]: _picture(node, run) for node in nodes}
    targets = {plan.target.node_uid for plan in run.plans.values()}
    if run.phase == "before":
        run.fleet = pictures
        troubles = {uid: _unready(pictures.get(uid)) for uid in targets}
    else:
        troubles = {uid: _changed(before, pictures.get(uid)) for uid, before in run.fleet.items()}
    found = {uid: text for uid, text in troubles.items() if text}
    return _answer(run, list(found.values()), on_target=bool(targets & set(found)), nodes=len(nodes))


def criteria_hold(run: Run, criteria: Iterable[str]) -> dict[str, Any]:
    """Before: judge whether the criteria's preconditions are met. After: whether each has all its passing verdicts."""
    wanted = list(criteria)
    unowed = [criterion for criterion in wanted if criterion not in run.owed]
    if unowed:
        raise UsageError(
            f"no probe of this method judges {', '.join(unowed)}", remedy="chaos-gpu criteria lists probes"
        )
    if run.phase == "before":
        lacking = {each: found for each in wanted if (found := _lacking(run, each))}
        verdicts = [run.record(each, inconclusive(why, {}, remedy)) for each, (why, remedy) in lacking.items()]
        return {"status": 0 if lacking else 1, "verdicts": [verdict.as_json() for verdict in verdicts]}
    judged = [Verdict.of(criterion, _fold(run, criterion)) for criterion in wanted]
    holds = all(verdict.outcome is Outcome.PASS for verdict in judged)
    return {"status": 1 if holds else 0, "verdicts": [verdict.as_json() for verdict in judged]}


def _fold(run: Run, criterion: str) -> Judgement:
    verdicts = [verdict for verdict in run.verdicts if verdict.criterion == criterion]
    owed, outcome = run.owed[criterion], worst(verdict.outcome for verdict in verdicts)
    evidence = {"owed": owed, "given": len(verdicts)}
    if outcome is Outcome.FAIL:
        return failed(next(each.reason for each in verdicts if each.outcome is Outcome.FAIL), evidence)
    if outcome is Outcome.INCONCLUSIVE or len(verdicts) < owed:
        return inconclusive(f"{len(verdicts)} of {owed} verdicts were given, worst: {outcome}", evidence)
    return passed(f"{owed} of {owed} verdicts pass", evidence)


def _lacking(run: Run, criterion: str) -> Obstacle | None:
    """Say why a criterion could not be judged by the faults that are planned, None when it can."""
    for plan in run.plans.values():
        if found := plan.obstacles.get(criterion):
            return found._replace(why=f"{plan.target.node}: {found.why}")
    return None


def _picture(node: JsonObject, run: Run) -> dict[str, Any]:
    """Take down what must be the same afterwards."""
    meta, status = node["metadata"], node.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    note = str((meta.get("annotations") or {}).get(EXERCISE, ""))
    offers = {kind: (status.get(kind) or {}).get(GPU, "0") for kind in ("capacity", "allocatable")}
    return {
        "name": meta["name"],
        "ready": conditions.get("Ready") == "True",
        "schedulable": schedulable(node),
        "raised": raised_conditions(node, run.watchers.conditions()),
        "marked": run.id in note,
        **offers,
    }


def _unready(picture: dict[str, Any] | None) -> str:
    if picture is None:
        return "a target node is gone"
    name = picture["name"]
    if not picture["ready"]:
        return f"target {name} is not Ready"
    if not picture["schedulable"]:
        return f"target {name} is cordoned"
    if picture["raised"]:
        return f"target {name}: condition {picture['raised'][0]} is raised"
    if picture["allocatable"] != picture["capacity"] or picture["capacity"] == "0":
        return f"target {name} offers {picture['allocatable']} of {picture['capacity']} GPUs"
    return ""


def _changed(before: dict[str, Any], now: dict[str, Any] | None) -> str:
    if now is None:
        return f"node {before['name']} is gone"
    changes = [f"{key} was {before[key]}, is {now[key]}" for key in before if now[key] != before[key]]
    return f"node {before['name']}: {'; '.join(changes)}" if changes else ""


def _answer(run: Run, troubles: list[str], on_target: bool, nodes: int) -> dict[str, Any]:
    run.ready[run.phase] = not troubles
    if run.phase == "after":
        run.trouble_on_target = on_target
    evidence = {"gpu_nodes": nodes, "troubles": troubles}
    if troubles:
        judgement = failed("; ".join(troubles[:5]), evidence, "make the fleet healthy first; chaos-gpu doctor")
    else:
        judgement = passed(f"{nodes} GPU nodes, all as they must be", evidence)
    verdict = Verdict.of(PLATFORM, judgement)
    return {"status": 0 if troubles else 1, "verdicts": [verdict.as_json()], "troubles": troubles}
