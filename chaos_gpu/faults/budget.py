"""How much a run may touch, and how often a GPU may be touched: never more than the experiment says openly."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import floor
from typing import Any

from chaos_gpu.errors import Refused
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.settings import GuardArguments
from chaos_gpu.faults.targets import Target

GpuName = tuple[str, str, str]
"""(node UID, kind of name, name): a GPU goes by its index, its PCI address and its UUID."""


def check_blast_radius(plans: Iterable[Plan], guard: GuardArguments, fleet: int) -> None:
    """Refuse a run that touches more nodes or GPUs than allowed.

    Args:
        plans: everything that the run will inject.
        guard: the experiment's budgets.
        fleet: number of GPU nodes of the cluster.
    """
    targets = [plan.target for plan in plans]
    nodes = {target.node_uid for target in targets}
    gpus = {(target.node_uid, *sorted(target.gpu.items())) for target in targets}
    ceiling = max(1, floor(fleet * guard.share_of_nodes + 1e-9))  # 0.29 * 100 is 28.999…
    if len(nodes) > guard.nodes:
        raise Refused(f"{len(nodes)} nodes would be touched, {guard.nodes} may", remedy="raise the guard's `nodes`")
    if len(nodes) > ceiling:
        raise Refused(
            f"{len(nodes)} of {fleet} GPU nodes would be touched, {guard.share_of_nodes:.0%} may",
            remedy="raise the guard's `share_of_nodes`",
        )
    if len(gpus) > guard.gpus:
        raise Refused(f"{len(gpus)} GPUs would be touched, {guard.gpus} may", remedy="raise the guard's `gpus`")


def injections_per_gpu(faults: Iterable[Mapping[str, Any]]) -> Counter[GpuName]:
    """Count what each GPU had, under each of its names, in the ledgers' records of injected faults."""
    counts: Counter[GpuName] = Counter()
    for fault in faults:
        gpu = fault.get("gpu")
        if fault.get("state") in ("landed", "planned") and isinstance(gpu, dict):
            counts.update((str(fault.get("node_uid")), key, str(name)) for key, name in gpu.items())
    return counts


def check_repeats(plans: Iterable[Plan], had: Counter[GpuName], guard: GuardArguments) -> None:
    """Refuse a run that would repeat injections on a GPU beyond its day's budget: detectors count, and escalate."""
    wanted: Counter[GpuName] = Counter()
    for plan in plans:
        wanted.update(_names(plan.target))
    for name, count in wanted.items():
        if had[name] + count > guard.repeats_per_day:
            raise Refused(
                f"GPU {name[1]} {name[2]} had {had[name]} injections in 24 h, {count} more would be over"
                f" {guard.repeats_per_day}",
                remedy="choose another GPU, wait, or raise the guard's `repeats_per_day`",
            )


def exhausted(node_uid: str, had: Counter[GpuName], guard: GuardArguments, more: int) -> list[dict[str, str]]:
    """List the GPUs of a node that cannot take `more` injections, each by one of its names."""
    return [
        {kind: name}
        for (uid, kind, name), count in had.items()
        if uid == node_uid and count + more > guard.repeats_per_day
    ]


def _names(target: Target) -> list[GpuName]:
    return [(target.node_uid, kind, name) for kind, name in target.gpu.items()]
