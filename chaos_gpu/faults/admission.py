"""Fault: take from one node the r2 that let it in, as the platform keeps it on the node itself.

A platform that keeps no such mark on its nodes cannot be asked this way: then that is said, and nothing is changed.
"""

import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from chaos_gpu.criteria.health.admission import SITUATIONS, Standing
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.names import GPU_NODES, marker_of
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.plan import ApiChange, Consequence, Plan
from chaos_gpu.faults.planning import GpuFaultArguments, Planning
from chaos_gpu.faults.records import obstacle
from chaos_gpu.faults.settings import Settings, problems
from chaos_gpu.faults.xid import check_name

KIND = "admission"
CRITERION = "DEV-01"
GPU_LABEL = GPU_NODES.partition("=")[0]
REMEDY = "docs/records.md shows how a platform's mark on its nodes is declared (CHAOS_GPU_ADMISSION)"


class Mark(BaseModel):
    """How a platform says on a node what the node's r2 came to.

    Attributes:
        place: `annotations` or `labels`.
        key: of the result.
        none: value for a node without an r2.
        warn: value for one whose r2 warns.
        fail: value for one whose r2 failed.
        confirmed: key under which an operator lets a warning pass, "" for none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    key: str
    place: Literal["annotations", "labels"] = "annotations"
    none: str = "none"
    warn: str = "Warn"
    fail: str = "Fail"
    confirmed: str = ""

    @field_validator("key", "confirmed")
    @classmethod
    def _not_of_kubernetes(cls, value: str) -> str:
        domain = value.rpartition("/")[0]
        if value == GPU_LABEL or domain.endswith(("kubernetes.io", "k8s.io")) or domain == "chaos-gpu":
            raise ValueError(f"{value} is not a platform's own word on its node's r2")
        return value

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        if len({self.none, self.warn, self.fail}) < 3:
            raise ValueError("none, warn and fail must differ")
        return self

    @classmethod
    def read(cls, text: str) -> "Mark | None":
        """Read it from the configuration; None for nothing. Raises UsageError saying what is wrong."""
        if not text.strip():
            return None
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as failure:
            raise UsageError(f"the mark of admission: {problems(failure)}", remedy=REMEDY) from failure
        except (ValueError, RecursionError):
            raise UsageError("the mark of admission is no JSON", remedy=REMEDY) from None

    def pointer(self, key: str) -> str:
        """Return the JSON pointer of one of its keys."""
        return f"/metadata/{self.place}/{key.replace('~', '~0').replace('/', '~1')}"


class AdmissionArguments(GpuFaultArguments):
    """What the node shall lack: `none` (no r2 at all), `warn` (a warning, not confirmed), `fail`."""

    standing: Literal["none", "warn", "fail"]


def plan_admission(planning: Planning, wanted: AdmissionArguments) -> Plan:
    """Decide to take one node's r2 away.

    Raises: UsageError for bad input, TargetError without a target.
    """
    check_name(wanted.fault)
    target, settings = planning.aim(wanted).target, planning.settings
    mark = Mark.read(settings.admission)
    node = next(each for each in planning.fleet if each["metadata"]["uid"] == target.node_uid)
    lacking = _lacking(mark, node, wanted.standing)
    obstructed = Obstacle(lacking, REMEDY) if lacking else obstacle(planning.api, settings)
    changes = (_change(mark, node, wanted.standing),) if mark and not lacking else ()
    return Plan(
        fault=wanted.fault,
        kind=KIND,
        target=target,
        detectors=(),
        change=f"the node counts as one {SITUATIONS[Standing(wanted.standing)]}",
        undo="the value is written back, if it is still ours",
        consequence=_foreseen(planning, settings),
        deadline_s=settings.deadline_s,
        facts={"marker": marker_of(planning.run, wanted.fault), "standing": wanted.standing},
        changes=changes,
        obstacles={CRITERION: obstructed} if obstructed else {},
    )


def _lacking(mark: Mark | None, node: dict[str, Any], standing: str) -> str:
    """Say why the node's r2 cannot be taken away, "" where it can."""
    if mark is None:
        return "CHAOS_GPU_ADMISSION does not say where the platform keeps a node's r2"
    held = node["metadata"].get(mark.place, {})
    value = held.get(mark.key)
    if value is None:
        return f"the node has no {mark.key} among its {mark.place}"
    same = value == getattr(mark, standing) and mark.confirmed not in held
    return f"the node's {mark.key} is {value!r} already: nothing would change" if same else ""


def _change(mark: Mark, node: dict[str, Any], standing: str) -> ApiChange:
    """Make the change of the node and its inverse; a confirmation that is there goes, too."""
    held = node["metadata"][mark.place]
    old, new, path = held[mark.key], getattr(mark, standing), mark.pointer(mark.key)
    patch = [{"op": "test", "path": path, "value": old}, {"op": "replace", "path": path, "value": new}]
    undo = [{"op": "test", "path": path, "value": new}, {"op": "replace", "path": path, "value": old}]
    if mark.confirmed in held:
        where, who = mark.pointer(mark.confirmed), held[mark.confirmed]
        patch += [{"op": "test", "path": where, "value": who}, {"op": "remove", "path": where}]
        undo.append({"op": "add", "path": where, "value": who})
    meta = node["metadata"]
    what = f"{mark.key} of node {meta['name']} {old!r} → {new!r}"
    return ApiChange(
        what=what, path=f"/api/v1/nodes/{meta['name']}", uid=meta["uid"], patch=tuple(patch), undo=tuple(undo)
    )


def _foreseen(planning: Planning, settings: Settings) -> Consequence:
    attribution = planning.watchers.attribution()
    return Consequence(
        conditions=(), attribution=attribution, reaction_s=settings.reaction_s, uncordon_s=settings.uncordon_s
    )
