"""How much a run may touch, and how often a GPU may be touched: never more than the experiment says openly."""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import floor
from typing import Any

from chaos_gpu.errors import Refused
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.settings import GuardArguments
from chaos_gpu.faults.targets import Target, Unfit

_LATER = "wait until they are a day old, or raise the guard's `repeats_per_day`"
_ANOTHER = f"name another GPU (CHAOS_GPU_GPU) or node (CHAOS_GPU_NODE), {_LATER}"
_FEWER = "let fewer faults of the experiment hit one GPU, or raise the guard's `repeats_per_day`"

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
    targets = [plan.target for plan in plans]
    nodes = {target.node_uid: target.node for target in targets}
    wanted = Counter(name for target in targets for name in _names(target))
    for name, count in wanted.items():
        if had[name] + count > guard.repeats_per_day:
            reason, remedy = over(dict([name[1:]]), had[name], count, guard.repeats_per_day)
            raise Refused(f"node {nodes[name[0]]}: {reason}", remedy)


def why_spent(
    node_uid: str, gpu: dict[str, str], gpus: int, had: Counter[GpuName], most: int, more: int
) -> Unfit | None:
    """Say why no GPU of a node that may be hit has `more` injections of its day's budget left, None where one has.

    Args:
        node_uid: the node.
        gpu: by index, PCI address or UUID; {} for any of the node's.
        gpus: how many the node has.
        had: what each GPU had in the last 24 h.
        most: the budget of a GPU and day.
        more: how many it shall have now; more than the budget are no node's fault, and refused by `check_repeats`.
    """
    choices = [gpu] if gpu else [{"index": str(index)} for index in range(gpus)]
    left = [had[node_uid, kind, name] + more <= most for choice in choices for kind, name in choice.items()]
    if more > most or any(left) or not choices:
        return None
    if not gpu:
        return Unfit(f"every GPU had injections in 24 h, {more} more would be over {most} for each", _LATER)
    (kind, name), *_ = gpu.items()
    return over(gpu, had[node_uid, kind, name], more, most)


def over(gpu: dict[str, str], had: int, more: int, most: int) -> Unfit:
    """Say that a GPU would have more injections in a day than it may, and what helps: another one, or fewer."""
    name = " ".join(f"{kind} {name}" for kind, name in gpu.items())
    reason = f"GPU {name} had {had} injections in 24 h, {more} more would be over {most}"
    return Unfit(reason, _FEWER if more > most else _ANOTHER)


def exhausted(node_uid: str, had: Counter[GpuName], guard: GuardArguments, more: int) -> list[dict[str, str]]:
    """List the GPUs of a node that cannot take `more` injections, each by one of its names."""
    return [
        {kind: name}
        for (uid, kind, name), count in had.items()
        if uid == node_uid and count + more > guard.repeats_per_day
    ]


def _names(target: Target) -> list[GpuName]:
    return [(target.node_uid, kind, name) for kind, name in target.gpu.items()]
