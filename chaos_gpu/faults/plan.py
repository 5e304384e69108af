"""What an injection would do, before anything is done: the target, the change, its undo, what the platform may do."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_serializer

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.faults.detectors import Detector
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.rights import Right
from chaos_gpu.faults.targets import Target


class Consequence(BaseModel):
    """A reaction of the platform that the fault may bring about; ours to see through to recovery."""

    model_config = ConfigDict(frozen=True)

    conditions: tuple[str, ...]
    attribution: tuple[str, ...]
    reaction_s: float
    uncordon_s: float


class ApiChange(BaseModel):
    """One change of an object in the cluster, with the patch that takes it back; JSON patches, `test` included.

    Attributes:
        what: in one phrase, for people.
        path: of the object.
        uid: of the object, so that no namesake is changed.
        patch: the change.
        undo: its inverse, which first tests that the value is still ours.
    """

    model_config = ConfigDict(frozen=True)

    what: str
    path: str
    uid: str
    patch: tuple[dict[str, Any], ...]
    undo: tuple[dict[str, Any], ...]


class Plan(BaseModel):
    """One injection, fully decided.

    Attributes:
        detectors: those on the target that can see it; nobody else is judged by it.
        consequence: what the platform may do about it, None where nothing is foreseen.
        facts: what goes into the ledger; `marker` is the token by which its traces are known again.
        pod: the injector that carries it out, None where `changes` are all.
        changes: what is changed through the API, before the injector starts.
        objects: what is made in our namespace for this fault, before the injector starts: Jobs, deleted when it is
            reverted, and ConfigMaps that they read, which go at the end of the run.
        scan_pod: what looks afterwards whether other records came, for faults that leave one in the kernel log.
        rights: what its injector itself must be allowed, by its own ServiceAccount.
        obstacles: criterion → why it could not be judged by this fault, and what to do about it.
    """

    model_config = ConfigDict(frozen=True)

    fault: str
    kind: str
    target: Target
    detectors: tuple[Detector, ...]
    change: str
    undo: str
    consequence: Consequence | None = None
    deadline_s: float
    facts: dict[str, Any]
    pod: JsonObject | None = None
    changes: tuple[ApiChange, ...] = ()
    objects: tuple[JsonObject, ...] = ()
    scan_pod: JsonObject | None = None
    rights: tuple[Right, ...] = ()
    obstacles: dict[str, Obstacle] = Field(default_factory=dict)

    @field_serializer("obstacles")
    def _by_name(self, obstacles: dict[str, Obstacle]) -> dict[str, dict[str, str]]:
        return {criterion: found._asdict() for criterion, found in obstacles.items()}

    @property
    def conditions(self) -> tuple[str, ...]:
        """The node conditions that may be expected to name it."""
        return tuple(dict.fromkeys(name for each in self.detectors for name in each.profile.conditions))

    @property
    def longest_s(self) -> float:
        """How long it may take the platform to react and to return the node, seconds."""
        return self.consequence.reaction_s + self.consequence.uncordon_s if self.consequence else 0.0

    def as_text(self) -> str:
        """Say it for people: one line each."""
        lines = {
            "target": str(self.target),
            "change": self.change,
            "seen by": ", ".join(each.name for each in self.detectors) or "no detector",
            "undo": self.undo,
            "consequence": _foreseen(self.consequence),
            "ends": f"by itself after {self.deadline_s:g} s",
        }
        return "\n".join([self.fault, *(f"  {key:<11}  {text}" for key, text in lines.items())])

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON, without the pods' payloads."""
        told = self.model_dump(mode="json", exclude={"pod", "scan_pod", "objects", "rights"})
        return {**told, "rights": list(map(str, self.rights))}


def _foreseen(consequence: Consequence | None) -> str:
    if consequence is None:
        return "none: no reaction of the platform is foreseen"
    return (
        f"the platform may cordon the node and set {', '.join(consequence.conditions) or 'no known condition'};"
        f" waited for {consequence.reaction_s:g} s, its return for {consequence.uncordon_s:g} s"
    )
