"""What an injection would do, before anything is done: the target, the change, its undo, what the platform may do."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.faults.targets import Target


class Consequence(BaseModel):
    """A reaction of the platform that the fault may bring about; ours to see through to recovery."""

    model_config = ConfigDict(frozen=True)

    conditions: tuple[str, ...]
    attribution: tuple[str, ...]
    reaction_s: float
    uncordon_s: float


class Plan(BaseModel):
    """One injection, fully decided. `facts` go into the ledger; `pod` is the injector that carries it out."""

    model_config = ConfigDict(frozen=True)

    fault: str
    kind: str
    target: Target
    change: str
    undo: str
    consequence: Consequence
    deadline_s: float
    facts: dict[str, Any]
    pod: JsonObject
    scan_pod: JsonObject

    def as_text(self) -> str:
        """Say it for people: one line each."""
        reaction = ", ".join(self.consequence.conditions) or "no known condition"
        return "\n".join(
            [
                f"{self.fault}",
                f"  target       {self.target}",
                f"  change       {self.change}",
                f"  undo         {self.undo}",
                f"  consequence  the platform may cordon the node and set {reaction};"
                f" waited for {self.consequence.reaction_s:g} s, its return for {self.consequence.uncordon_s:g} s",
                f"  ends         by itself after {self.deadline_s:g} s",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, without the pods' payloads."""
        return self.model_dump(mode="json", exclude={"pod", "scan_pod"})
