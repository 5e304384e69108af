"""Each judgement leaves a record: node, GPU UUID, level, result, action (DEV-05).

Source: GPU platform verification, layer 2, "node health policy": records of judgements.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from chaos_gpu.criteria.health.record import Action, Record, Result, worst_result
from chaos_gpu.verdict import Judgement, failed, inconclusive, passed

TOLD = 5
"""So many faults are named in a reason."""
REMEDY_RECORDS = "let the platform write one whole record for each GPU that it judged (docs/records.md)"
REMEDY_GPUS = "see whether the driver lists the node's GPUs under /proc/driver/nvidia/gpus"

ACTIONS_OF: dict[Result, tuple[Action, ...]] = {
    Result.PASS: (Action.ADMIT,),
    Result.WARN: (Action.HOLD, Action.ISOLATE),
    Result.FAIL: (Action.ISOLATE,),
}
"""What may follow from a result; a warning that an operator confirmed also admits."""


@dataclass(frozen=True)
class Judged:
    """What was seen to happen, to hold the records against."""

    node: str
    gpus: frozenset[str]
    """UUIDs of the node's GPUs, as its driver lists them."""
    level: int
    since: datetime
    """The judgement ended after this."""
    in_service: bool | None
    """Whether the node was in service after the decision; None where none was seen."""


def judge_records(records: Iterable[Record], judged: Judged, skew_s: float) -> Judgement:
    """DEV-05: of one judgement on a node there is one whole and true record for each of its GPUs.

    Args:
        records: all that there are.
        judged: the judgement.
        skew_s: how far the clocks of records and runner may be apart.
    """
    about = [record for record in records if _is_about(record, judged, skew_s)]
    evidence: dict[str, Any] = {
        "node": judged.node,
        "gpus": sorted(judged.gpus),
        "level": f"r{judged.level}",
        "in_service": judged.in_service,
        "records": [record.as_json() for record in about],
    }
    if not judged.gpus:
        return inconclusive(f"{judged.node}: its GPUs are not known", evidence, REMEDY_GPUS)
    if not about:
        return _none(judged, evidence)
    faults = list(dict.fromkeys([*_unwhole(about), *_miscounted(about, judged), *_untrue(about, judged)]))
    if faults:
        more = f" and {len(faults) - TOLD} more" if len(faults) > TOLD else ""
        return failed(f"{judged.node}: {'; '.join(faults[:TOLD])}{more}", evidence, REMEDY_RECORDS)
    if judged.in_service is None:
        return inconclusive(f"{judged.node}: no decision was seen to hold its records against", evidence)
    return passed(f"{judged.node}: {len(about)} whole records of r{judged.level}, true to what happened", evidence)


def _is_about(record: Record, judged: Judged, skew_s: float) -> bool:
    """Say whether a record may be of this judgement; where a field cannot be read, the others decide."""
    if record.node not in (judged.node, "") or record.level not in (judged.level, 0):
        return False
    if record.ended_at is None:
        return record.node == judged.node or record.gpu_uuid in judged.gpus
    at_home = record.node == judged.node or record.gpu_uuid in judged.gpus
    return at_home and record.ended_at >= judged.since - timedelta(seconds=skew_s)


def _none(judged: Judged, evidence: dict[str, Any]) -> Judgement:
    if judged.in_service is None:
        return inconclusive(f"{judged.node}: no judgement was seen, and no record of one", evidence)
    what = "returned" if judged.in_service else "kept out of service"
    return failed(f"{judged.node} was {what}, but no record of r{judged.level} says why", evidence, REMEDY_RECORDS)


def _unwhole(about: Sequence[Record]) -> list[str]:
    return [f"{record.gpu_uuid or 'a record'}: {problem}" for record in about for problem in record.problems]


def _miscounted(about: Sequence[Record], judged: Judged) -> list[str]:
    """Say which GPUs have no record, more than one of the same judgement, or are not the node's."""
    named = Counter((record.gpu_uuid.lower(), record.started_at or record.ended_at) for record in about)
    having = {uuid for uuid, _ in named if uuid}
    gpus = {uuid.lower() for uuid in judged.gpus}
    faults = [f"{uuid} has no record" for uuid in sorted(gpus - having)]
    faults += [f"{uuid} is no GPU of this node" for uuid in sorted(having - gpus)]
    return faults + [
        f"{uuid} has {count} records of one judgement" for (uuid, _), count in named.items() if count > 1 and uuid
    ]


def _untrue(about: Sequence[Record], judged: Judged) -> list[str]:
    """Say where an action does not follow from the results, or is not what happened to the node."""
    worst = worst_result([record.result for record in about])
    confirmed = any(record.confirmed_by for record in about)
    may = ACTIONS_OF.get(worst, ()) if worst else ()
    if worst is Result.WARN and confirmed:
        may = (*may, Action.ADMIT)
    faults = []
    for record in about:
        if record.action is None or record.result is None:
            continue
        if may and record.action not in may:
            faults.append(f"action {record.action}, though the node's worst result is {worst}")
        elif judged.in_service is not None and (record.action is Action.ADMIT) != judged.in_service:
            happened = "in service" if judged.in_service else "out of service"
            faults.append(f"action {record.action}, but the node is {happened}")
    return faults
