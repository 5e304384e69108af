"""The criteria as code: what each says, its thresholds, who judges it, and which planted defects it must catch.

Documentation and matrix are computed from here; nothing about a criterion is typed twice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from chaos_gpu.criteria.criterion import Criterion
from chaos_gpu.criteria.rows.device import DEVICE
from chaos_gpu.criteria.rows.job import JOB
from chaos_gpu.errors import UsageError

RECOVERY = "recovery"
"""Stands in the matrix where a defect must show as "not recovered" rather than as a failed criterion."""

NOT_RECOVERED = "not recovered"


class Cell(NamedTuple):
    """One cell of the proof: with this defect, this experiment must give this criterion that outcome."""

    criterion: str
    experiment: str
    defect: str | None
    expected: str


LAYERS = (DEVICE, JOB)
_ALL = tuple(criterion for layer in LAYERS for criterion in layer.criteria)
_BLOCKS_RECOVERY = {experiment: defects for layer in LAYERS for experiment, defects in layer.blocks_recovery.items()}
_USES = {experiment: components for layer in LAYERS for experiment, components in layer.uses.items()}
_NEEDS = {experiment: components for layer in LAYERS for experiment, components in layer.needs.items()}

REAL_GPUS: Mapping[str, str] = MappingProxyType(
    {experiment: why for layer in LAYERS for experiment, why in layer.real_gpus.items()}
)
"""Experiments that no lab can prove → why; every other one that ships has its cells in the matrix."""

JUDGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        probe: tuple(criterion.id for criterion in _ALL if probe in criterion.probes)
        for probe in sorted({probe for criterion in _ALL for probe in criterion.probes})
    }
)
"""Probe function → the criteria on which each of its calls gives one verdict."""


def criteria() -> tuple[Criterion, ...]:
    """Return every criterion there is code for."""
    return _ALL


def criterion(wanted: str) -> Criterion:
    """Return one criterion by its id.

    Raises:
        UsageError: there is no such criterion.
    """
    for known in _ALL:
        if known.id.casefold() == wanted.casefold():
            return known
    raise UsageError(f"no criterion {wanted!r}", remedy=f"one of: {', '.join(known.id for known in _ALL)}")


def owed(experiment: Mapping[str, Any]) -> dict[str, int]:
    """Count the verdicts that an experiment owes each criterion: one for each call of a probe that judges it.

    Args:
        experiment: as loaded from its file; whatever is not a probe of ours owes nothing.
    """
    called = (JUDGES.get(_function(activity), ()) for activity in _method(experiment))
    return dict(sorted(Counter(judged for ids in called for judged in ids).items()))


def matrix() -> tuple[Cell, ...]:
    """Return every cell that `chaos-gpu prove` must find as expected."""
    return tuple(_cells())


def components(experiment: str) -> tuple[str, ...]:
    """Return the components of the platform that an experiment needs to say anything."""
    return (*_NEEDS.get(experiment, ()), *_USES.get(experiment, ()))


def markdown(wanted: Iterable[Criterion] = _ALL) -> str:
    """Return criteria as the table that stands in the documentation."""
    rows = ["| id | statement | thresholds | judged by | experiments | planted defects |", "|---|---|---|---|---|---|"]
    for known in wanted:
        limits = "; ".join(f"{t.name} {t.default:g} {t.unit} (`{t.env}`)" for t in known.thresholds)
        probes = ", ".join(f"`{probe.rpartition('.')[2]}`" for probe in known.probes)
        experiments = ", ".join(f"`{experiment}`" for experiment in known.experiments)
        defects = ", ".join(f"`{defect}`" for defect in known.defects)
        cells = (known.id, known.statement, limits, probes, experiments, defects)
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _cells() -> Iterator[Cell]:
    experiments = sorted({experiment for known in _ALL for experiment in known.catches})
    for experiment in experiments:
        judged = [known for known in _ALL if experiment in known.catches]
        yield from (Cell(known.id, experiment, None, "pass") for known in judged)
        for known in judged:
            yield from (Cell(known.id, experiment, defect, "fail") for defect in known.catches[experiment])
        for defect in _BLOCKS_RECOVERY.get(experiment, ()):
            yield Cell(RECOVERY, experiment, defect, NOT_RECOVERED)
        for component in _NEEDS.get(experiment, ()):
            yield from (Cell(known.id, experiment, f"without:{component}", "inconclusive") for known in judged)


def _method(experiment: Mapping[str, Any]) -> list[Any]:
    """Return the activities of the method, with references to earlier ones resolved."""
    method = experiment.get("method")
    activities = method if isinstance(method, list) else []
    named = {a["name"]: a for a in activities if isinstance(a, dict) and isinstance(a.get("name"), str)}
    return [named.get(a["ref"], a) if isinstance(a, dict) and isinstance(a.get("ref"), str) else a for a in activities]


def _function(activity: Any) -> str:
    provider = activity.get("provider") if isinstance(activity, dict) else None
    return f"{provider.get('module')}.{provider.get('func')}" if isinstance(provider, dict) else ""
