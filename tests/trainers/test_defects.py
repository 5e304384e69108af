"""Defects of real trainers that the judges and the reader must find; without these tests the others could not fail."""

from pathlib import Path

import pytest

from chaos_gpu.verdict import Outcome
from tests.trainers.conftest import FindReference, MakeChain
from tests.trainers.judging import ALL, interrupted, verdicts

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("part", ["optimizer", "scheduler"])
def test_a_part_that_is_not_restored(part: str, chain: MakeChain, reference: FindReference) -> None:
    """It is saved, so that the checkpoint is complete; that the training goes on differently shows in its state."""
    training = chain("torch_save", DEFECT=f"forgets-{part}")
    training.kill(fraction=0.5)
    assert training.finish().exit_code == 0
    (said,) = verdicts(training, reference("torch_save"), ALL)
    assert said["resume"].outcome is Outcome.PASS
    assert said["state"].outcome is Outcome.FAIL
    assert part in said["state"].reason.partition("values differ")[2]
    assert said["loss"].outcome is Outcome.FAIL


def test_a_torn_file_that_is_taken_for_a_checkpoint(chain: MakeChain, reference: FindReference) -> None:
    """Saved at the final name and chosen by number: it cannot be loaded, now or ever."""
    training = chain("torch_save", MODE="in-place", DEFECT="trusts-names")
    left = training.kill(fraction=0.5)
    assert left.store["latest"] == interrupted(left)
    assert training.finish().exit_code == 1
    assert "central directory" in training.trainer.complaint()
    (said,) = verdicts(training, reference("torch_save"), ALL)
    assert said["resume"].outcome is Outcome.FAIL
    assert said["steps"].outcome is Outcome.FAIL


def test_the_trainer_of_transformers_takes_a_torn_directory(chain: MakeChain, reference: FindReference) -> None:
    """`resume_from_checkpoint=True` is its own rule: the highest number, whole or not."""
    training = chain("hugging_face", "transformers", DEFECT="trusts-latest")
    left = training.kill(fraction=0.5)
    assert left.store["latest"] == interrupted(left) != left.store["newest_complete"]
    assert training.finish().exit_code == 1
    (said,) = verdicts(training, reference("hugging_face"), ALL)
    assert said["resume"].outcome is Outcome.FAIL
    assert "no new step" in said["resume"].reason


def test_a_lightning_that_takes_the_newest_name(
    chain: MakeChain, reference: FindReference, other_file_system: Path
) -> None:
    """Across file systems its save is not atomic; the highest number is the torn one."""
    training = chain("lightning_fit", "lightning", SCRATCH=str(other_file_system), DEFECT="trusts-names")
    left = training.kill(fraction=0.5)
    assert left.verdict(interrupted(left)) == "no"
    assert training.finish().exit_code == 1
    (said,) = verdicts(training, reference("lightning_fit"), ALL)
    assert said["resume"].outcome is Outcome.FAIL
