"""Idle nodes get r2 weekly (DEV-04).

Records bear the platform's time, their age is read off the runner's clock: how far the two may be apart is stated, and
what lies within that of the limit is inconclusive. A record from the future says that the clocks are further apart.
A diagnosis that was skipped is none; one whose record cannot be read, or that names few of the GPUs, proves nothing.

Source: GPU platform verification, layer 2, "node health policy": idle nodes, r2 once a week.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from chaos_gpu.criteria.health.record import Record, Result
from chaos_gpu.verdict import Judgement, Outcome, failed, inconclusive, passed

R2 = 2
TOLD = 5
"""So many nodes are named in a reason."""
REMEDY_WEEKLY = "let the platform run r2 on idle nodes before a week is over, and keep its record"
REMEDY_CLOCKS = "set the clocks by NTP; CHAOS_GPU_SKEW_S says how far they may be apart"
REMEDY_SOURCE = "see whether CHAOS_GPU_RECORDS leads to the platform's records (docs/records.md)"
REMEDY_RECORDS = (
    "see whether CHAOS_GPU_RECORDS names the fields and words as the platform writes them (docs/records.md)"
)
REMEDY_GPUS = "let the platform diagnose every GPU of a node, and keep a record of each"
REMEDY_NODES = "see whether CHAOS_GPU_SELECTOR matches the GPU nodes, and repeat it when some are idle"


class Node(NamedTuple):
    """One GPU node, and what keeps it busy."""

    name: str
    work: tuple[str, ...]
    """Pods that have GPUs; none on an idle node."""
    gpus: int = 0
    """How many it has; 0 where the node does not say so surely."""


def judge_weekly(
    nodes: Sequence[Node], records: Iterable[Record], now: datetime, skew_s: float, limit_days: float = 7
) -> Judgement:
    """DEV-04: the newest record of r2, or of a level that contains it, is at most a week old on each idle node.

    Args:
        nodes: the GPU nodes.
        records: all that there are.
        now: by the runner's clock.
        skew_s: how far the clocks of records and runner may be apart.
        limit_days: oldest age that passes.
    """
    everything = [record for record in records if record.node and record.level not in range(1, R2)]
    newest = _newest(everything)
    idle = [node.name for node in nodes if not node.work]
    ages_s = {name: (now - newest[name]).total_seconds() for name in idle if name in newest}
    evidence = {
        "now": now.isoformat(),
        "skew_s": skew_s,
        "limit_days": limit_days,
        "idle": {name: _days(ages_s.get(name)) for name in idle},
        "busy": {node.name: list(node.work[:TOLD]) for node in nodes if node.work},
        "records": len(everything),
    }
    if not nodes or not idle:
        what = "every GPU node is busy" if nodes else "there is no GPU node"
        return inconclusive(f"{what}: there is no idle node to judge", evidence, REMEDY_NODES)
    if told := _unreadable(idle, everything, newest):
        return inconclusive(told, evidence, REMEDY_RECORDS)
    if not newest:
        return inconclusive("no record of r2 of any node was found", evidence, REMEDY_SOURCE)
    oldest_s = timedelta(days=limit_days).total_seconds()
    judged = _by_age(idle, ages_s, oldest_s, skew_s, evidence)
    told = _too_few(nodes, everything, now - timedelta(seconds=oldest_s + skew_s))
    return inconclusive(told, evidence, REMEDY_GPUS) if told and judged.outcome is Outcome.PASS else judged


def _was_run(record: Record) -> bool:
    """Whether it proves that its GPU was diagnosed with r2, then; whatever came of it."""
    return not record.problems and record.level >= R2 and record.result is not None and record.result is not Result.SKIP


def _newest(records: Iterable[Record]) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for record in records:
        if _was_run(record) and record.ended_at:
            found[record.node] = max(record.ended_at, found.get(record.node, record.ended_at))
    return found


def _unreadable(idle: Sequence[str], records: Iterable[Record], newest: dict[str, datetime]) -> str:
    """Name an idle node of which there are records, but none that can be read; "" for none."""
    for record in records:
        if record.problems and record.node in idle and record.node not in newest:
            return f"{record.node}'s records of r2 cannot be read: {record.problems[0]}"
    return ""


def _too_few(nodes: Iterable[Node], records: Sequence[Record], since: datetime) -> str:
    """Name an idle node some of whose GPUs have no record since then; "" for none."""
    for node in nodes:
        recent = (each for each in records if each.node == node.name and each.ended_at and each.ended_at >= since)
        uuids = {each.gpu_uuid.lower() for each in recent if _was_run(each)}
        if not node.work and len(uuids) < node.gpus:
            return f"{node.name} has {node.gpus} GPUs, records of r2 name {len(uuids)}"
    return ""


def _by_age(
    idle: Sequence[str], ages_s: dict[str, float], limit_s: float, skew_s: float, evidence: dict[str, Any]
) -> Judgement:
    missing = [name for name in idle if name not in ages_s]
    old = [name for name, age_s in ages_s.items() if age_s - skew_s > limit_s]
    if missing or old:
        ages = [f"{name} has no record of r2" for name in missing]
        ages += [f"{name}'s is {_days(ages_s[name])} days old" for name in old]
        more = f" and {len(ages) - TOLD} more" if len(ages) > TOLD else ""
        return failed(f"{'; '.join(ages[:TOLD])}{more}", evidence, REMEDY_WEEKLY)
    ahead = [name for name, age_s in ages_s.items() if age_s < -skew_s]
    if ahead:
        told = f"{ahead[0]}'s record is {-ages_s[ahead[0]]:.0f} s ahead of our clock, {skew_s:g} s may be"
        return inconclusive(told, evidence, REMEDY_CLOCKS)
    near = [name for name, age_s in ages_s.items() if age_s + skew_s > limit_s]
    if near:
        told = f"{near[0]}'s record is within {skew_s:g} s, the error of its clock, of the limit"
        return inconclusive(told, evidence, REMEDY_CLOCKS)
    oldest = max(ages_s.values())
    return passed(f"{len(idle)} idle nodes, the oldest r2 is {_days(oldest)} days old", evidence)


def _days(age_s: float | None) -> float | None:
    return None if age_s is None else round(age_s / timedelta(days=1).total_seconds(), 3)
