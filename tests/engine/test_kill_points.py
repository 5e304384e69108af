"""After `kill -9` of the runner at any instant nothing that we changed stays, and the platform's reaction is settled.

`make sweep` tries every request of a run; here is a sample of them. KILL_POINTS_SEED repeats one.
"""

import os
import random
from pathlib import Path

import pytest

from tests.engine.kill_points import Point
from tests.engine.sweep import row, sweep

JOBS = 4


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("KILL_POINTS_SEED") or random.SystemRandom().randrange(10_000))
    print(f"KILL_POINTS_SEED={chosen}")
    return chosen


def one_review(point: Point) -> bool:
    """Of the many reviews of rights, all alike, only the first can be in the sample."""
    return "selfsubject" not in point.step.where or point.step.nth == 1


def injected(point: Point) -> bool:
    """Whether the fault has landed by then: the ledger has been written to twice."""
    step = point.step
    late = {("PATCH", "/api/v1/namespaces/chaos-gpu/configmaps/chaos-gpu-run-{run}"): 2}
    return step.nth > late.get((step.method, step.where), 99) or step.method == "DELETE" and "/pods/" in step.where


@pytest.mark.timeout(600)
def test_nothing_stays_wherever_the_runner_is_killed(seed: int, tmp_path: Path) -> None:
    outcomes = sweep(tmp_path, "fatal", "", JOBS, 20, seed, one_review)
    wrong = [row(outcome) for outcome in outcomes if outcome.violations]
    assert not wrong, f"KILL_POINTS_SEED={seed}\n" + "\n".join(wrong)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", ["detector-slow", "detector-cordons-wrong-node"])
def test_a_late_or_misplaced_reaction_is_settled_too(defect: str, seed: int, tmp_path: Path) -> None:
    outcomes = sweep(tmp_path, "fatal", defect, JOBS, 4, seed, injected)
    assert [row(outcome) for outcome in outcomes if outcome.verdict != "as before"] == []


@pytest.mark.timeout(600)
def test_what_nobody_may_undo_keeps_the_ledger_open_and_is_named(seed: int, tmp_path: Path) -> None:
    outcomes = sweep(tmp_path, "fatal", "detector-never-returns", JOBS, 4, seed, injected)
    assert [row(outcome) for outcome in outcomes if outcome.violations] == []
    stuck = [outcome for outcome in outcomes if outcome.verdict != "as before"]
    assert stuck
    assert all("GpuXidError" in item for outcome in stuck for item in outcome.remains)
