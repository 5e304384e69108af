"""What a fault is planned with: the cluster, what the experiment allows, and the one target that it all goes to."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.faults.budget import GpuName, exhausted, why_spent
from chaos_gpu.faults.detectors import Detector, Watchers, detectors_by_node
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.faults.targets import (
    Target,
    Unfit,
    choose_gpu,
    choose_node,
    foreign_work,
    gpu_count,
    gpu_selector,
    unfit,
)


class FaultArguments(BaseModel):
    """What an experiment says of one fault; each kind adds its own. Types are as the action's signature has them."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    fault: str
    """Its name, unique in the experiment."""


class GpuFaultArguments(FaultArguments):
    """A fault of one GPU: which one, "" for the one that the guard chooses under the run's seed."""

    node: str = ""
    gpu: str = ""


class Aim(NamedTuple):
    """Where an injection goes, and what is there.

    Attributes:
        target: the GPU whose address the record bears.
        detectors: those that read the target node's kernel log.
        exhausted: GPU UUIDs that had their injections of the last 24 h, with the reason.
    """

    target: Target
    detectors: list[Detector]
    exhausted: dict[str, str]


@dataclass
class Planning:
    """All that a kind of fault may need to decide a plan. Changes nothing.

    Attributes:
        fleet: the GPU nodes.
        had: what each GPU had in the last 24 h.
        times: how often each (node, GPU) as named in the experiment will be hit.
    """

    api: Api
    settings: Settings
    guard: GuardArguments
    run: str
    watchers: Watchers
    fleet: list[JsonObject]
    had: Counter[GpuName]
    times: Counter[tuple[str, str]]
    _chosen: dict[tuple[str, str], Aim] = field(default_factory=dict)

    @property
    def seed(self) -> str:
        """Makes every choice of the run repeatable."""
        return self.settings.seed or self.run

    def aim(self, arguments: GpuFaultArguments) -> Aim:
        """Choose the target, once, so that the faults of one experiment hit the same GPU unless told otherwise.

        Raises: TargetError when none is fit, UsageError for a name that is none.
        """
        wanted = self.wanted(arguments)
        if wanted not in self._chosen:
            self._chosen[wanted] = self._choose(*wanted)
        return self._chosen[wanted]

    def wanted(self, arguments: GpuFaultArguments) -> tuple[str, str]:
        """Say which (node, GPU) is asked for: by the fault, or by the experiment's configuration."""
        return arguments.node or self.settings.node, arguments.gpu or self.settings.gpu

    def _choose(self, wanted_node: str, wanted_gpu: str) -> Aim:
        named, more = gpu_selector(wanted_gpu), self.times[wanted_node, wanted_gpu]

        def why_not(node: JsonObject) -> Unfit | None:
            return self._why_not(node) or self._why_spent(node, named, more)

        node = choose_node(self.api, self.fleet, wanted_node, self.seed, why_not)
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        spent = exhausted(uid, self.had, self.guard, more)
        gpu = choose_gpu(node, wanted_gpu, spent, self.seed)
        refuse = {each["uuid"]: "it had its injections of the last 24 h" for each in spent if "uuid" in each}
        readers = detectors_by_node(self.api, self.watchers, name).get(name, [])
        return Aim(Target(node=name, node_uid=uid, gpu=gpu), readers, refuse)

    def _why_spent(self, node: JsonObject, gpu: dict[str, str], more: int) -> Unfit | None:
        most = self.guard.repeats_per_day
        return why_spent(node["metadata"]["uid"], gpu, gpu_count(node), self.had, most, more)

    def _why_not(self, node: JsonObject) -> Unfit | None:
        reason = unfit(node, self.watchers.conditions(), self.watchers.attribution())
        if reason or self.guard.allow_foreign_work:
            return Unfit(reason) if reason else None
        work = ", ".join(foreign_work(self.api, node["metadata"]["name"])[:3])
        return Unfit(f"it runs {work}, which is not part of this run") if work else None
