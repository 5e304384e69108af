"""What an injection would do, before anything is done: the target, the change, its undo, what the platform may do."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.faults.detectors import Detector
from chaos_gpu.faults.targets import Target


class Consequence(BaseModel):
    """A reaction of the platform that the fault may bring about; ours to see through to recovery."""

    model_config = ConfigDict(frozen=True)

    conditions: tuple[str, ...]
    attribution: tuple[str, ...]
    reaction_s: float
    uncordon_s: float


class Plan(BaseModel):
    """One injection, fully decided.

    Attributes:
        detectors: those on the target that can see it; nobody else is judged by it.
        facts: what goes into the ledger.
        pod: the injector that carries it out.
        scan_pod: what looks afterwards whether other records came.
    """

    model_config = ConfigDict(frozen=True)

    fault: str
    kind: str
    target: Target
    detectors: tuple[Detector, ...]
    change: str
    undo: str
    consequence: Consequence
    deadline_s: float
    facts: dict[str, Any]
    pod: JsonObject
    scan_pod: JsonObject

    @property
    def conditions(self) -> tuple[str, ...]:
        """The node conditions that may be expected to name it."""
        return tuple(dict.fromkeys(name for each in self.detectors for name in each.profile.conditions))

    def as_text(self) -> str:
        """Say it for people: one line each."""
        reaction = ", ".join(self.consequence.conditions) or "no known condition"
        return "\n".join(
            [
                f"{self.fault}",
                f"  target       {self.target}",
                f"  change       {self.change}",
                f"  seen by      {', '.join(each.name for each in self.detectors) or 'no detector'}",
                f"  undo         {self.undo}",
                f"  consequence  the platform may cordon the node and set {reaction};"
                f" waited for {self.consequence.reaction_s:g} s, its return for {self.consequence.uncordon_s:g} s",
                f"  ends         by itself after {self.deadline_s:g} s",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, without the pods' payloads."""
        return self.model_dump(mode="json", exclude={"pod", "scan_pod"})
