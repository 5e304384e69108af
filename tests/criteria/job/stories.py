"""A training of 12 steps that saves every 4, killed in the save of step 8, and its reference run."""

from dataclasses import replace
from typing import Any

from chaos_gpu.criteria.job.story import Attempt, Kill, Resumed, Saved, Step, Story

PARTS = ("model", "optimizer", "scheduler", "rng", "data", "scaler")


def steps(first: int, last: int, **changed: Any) -> tuple[Step, ...]:
    return tuple(Step(n, 1.0 / n, 0.1 * n)._replace(**changed) for n in range(first, last + 1))


def attempt(first: int, last: int, resumed: Resumed | None = None, code: int | None = 0) -> Attempt:
    return Attempt(steps(first, last), resumed, exit_code=code)


def saved(step: int, begun_s: float, **changed: Any) -> Saved:
    crcs = {f"{part}.x": hash((part, step)) & 0xFFFF for part in PARTS}
    found = Saved(step, "yes", PARTS, crcs, begun_s, begun_s + 1.0, 1000, kept=2, least=1)
    return replace(found, **changed)


KILL = Kill(True, "step-4.pt", 4, ("step-8.pt.tmp",), 100.0, "killed", grace_s=10.0, place={"fraction": 0.5})
RESUMED = Resumed("/ckpt/step-4.pt", 4)
GOOD = Story(
    kill=KILL,
    before=attempt(1, 8, code=137),
    after=(attempt(5, 12, RESUMED),),
    restarts=1,
    failed="",
    finished=True,
    references=(attempt(1, 12),),
    saves=(saved(4, 90.0, kept=1), saved(8, 110.0), saved(12, 120.0)),
    reference_saves=(saved(4, 90.0), saved(8, 100.0), saved(12, 110.0)),
)


def story(**changed: Any) -> Story:
    return replace(GOOD, **changed)
