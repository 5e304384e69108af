"""What criteria are judged by beside a fault, records, DCGM, a training: is it here, and what to do if it is not."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.criteria.health.source import read_source
from chaos_gpu.criteria.registry import criteria
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.admission import REMEDY as REMEDY_MARK
from chaos_gpu.faults.admission import Mark
from chaos_gpu.faults.dcgm import REMEDY_WATCHER
from chaos_gpu.faults.dcgm_pods import Engine
from chaos_gpu.faults.detectors import REMEDY_DETECTOR, Watchers
from chaos_gpu.faults.manifest import NEEDS_JOB, load
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.records import obstacle
from chaos_gpu.faults.settings import Settings

DETECTOR, RECORDS, MARK, ENGINE, WATCHER, TRAINING = "detector", "records", "r2 mark", "DCGM", "DCGM watch", "training"
_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DEV-01": (RECORDS, MARK),
        "DEV-02": (DETECTOR,),
        "DEV-03": (DETECTOR, RECORDS),
        "DEV-04": (RECORDS,),
        "DEV-05": (DETECTOR, RECORDS),
        "DEV-06": (DETECTOR,),
        "DEV-07": (DETECTOR,),
        "DEV-08": (ENGINE,),
        "DEV-09": (ENGINE, WATCHER),
    }
)
"""Criterion → all that it needs; what is not here is about trainings."""


class Prerequisite(NamedTuple):
    """One of them, as it was found.

    Attributes:
        name: one of the words above.
        found: what it is, "" where there is none.
        lacking: why nothing can be judged by it, "" where something can.
        remedy: for that.
    """

    name: str
    found: str
    lacking: str = ""
    remedy: str = ""

    @property
    def criteria(self) -> tuple[str, ...]:
        """The criteria that cannot be judged without it."""
        return tuple(each.id for each in criteria() if self.name in needs_of(each.id))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**self._asdict(), "criteria": list(self.criteria)}


def needs_of(criterion: str) -> tuple[str, ...]:
    """Return the names of all that a criterion is judged by."""
    return _BY.get(criterion, (TRAINING,))


def find_prerequisites(
    api: Api, settings: Settings, watchers: Watchers, nodes: Sequence[JsonObject], engines: Mapping[str, Engine]
) -> list[Prerequisite]:
    """Look for all but the detectors, which are each node's own. Changes nothing.

    Args:
        api: the connection.
        settings: where records, mark and training are said to be.
        watchers: what was found on the cluster.
        nodes: the GPU nodes.
        engines: of these nodes, by name.
    """
    watching = [each.name for each in watchers.detectors if each.profile.dcgm]
    lacking = "" if watching else "no detector is known to watch DCGM's health"
    return [
        records(api, settings),
        mark(settings, nodes),
        engine(engines),
        Prerequisite(WATCHER, ", ".join(watching), lacking, REMEDY_WATCHER if lacking else ""),
        training(settings),
    ]


def detector(names: Iterable[str]) -> Prerequisite:
    """Say what reads the kernel log of some GPU node."""
    found = ", ".join(sorted(names))
    if found:
        return Prerequisite(DETECTOR, found)
    return Prerequisite(DETECTOR, "", "no detector reads the kernel log of a GPU node", REMEDY_DETECTOR)


def records(api: Api, settings: Settings) -> Prerequisite:
    """Look whether the platform's records can be read where they are said to be."""
    try:
        source = read_source(settings.records)
        why = obstacle(api, settings)
    except UsageError as failure:
        return Prerequisite(RECORDS, "", failure.reason, failure.remedy)
    lacking = why or Obstacle("", "")
    if source is None:
        return Prerequisite(RECORDS, "", *lacking)
    kind = "objects of the cluster" if source.kubernetes else "HTTP"
    return Prerequisite(RECORDS, f"{kind}, {source.name}, JSONPath {source.items}", *lacking)


def mark(settings: Settings, nodes: Iterable[JsonObject]) -> Prerequisite:
    """Look whether nodes bear the platform's mark of their r2."""
    try:
        told = Mark.read(settings.admission)
    except UsageError as failure:
        return Prerequisite(MARK, "", failure.reason, failure.remedy)
    if told is None:
        why = "CHAOS_GPU_ADMISSION does not say where the platform keeps a node's r2"
        return Prerequisite(MARK, "", why, REMEDY_MARK)
    found = f"{told.key} among the nodes' {told.place}"
    marked = any(told.key in (node["metadata"].get(told.place) or {}) for node in nodes)
    return Prerequisite(MARK, found) if marked else Prerequisite(MARK, found, "no GPU node has it", REMEDY_MARK)


def engine(engines: Mapping[str, Engine]) -> Prerequisite:
    """Look whether a node has a DCGM engine that takes injections; one is enough."""
    open_on = [node for node, each in engines.items() if not each.closed]
    closed = next((each for each in engines.values() if each.closed), Engine(False, "there is no GPU node"))
    if open_on:
        return Prerequisite(ENGINE, f"takes injections on {len(open_on)} of {len(engines)} GPU nodes")
    return Prerequisite(ENGINE, "", closed.closed, closed.remedy)


def training(settings: Settings) -> Prerequisite:
    """Look whether there is the manifest of a training."""
    if not settings.job:
        return Prerequisite(TRAINING, "", "no training is given", NEEDS_JOB)
    try:
        load(settings.job)
    except UsageError as failure:
        return Prerequisite(TRAINING, settings.job, failure.reason, failure.remedy)
    return Prerequisite(TRAINING, settings.job)
