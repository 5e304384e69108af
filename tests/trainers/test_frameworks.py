"""What transformers, Accelerate and Lightning save, killed for real."""

from pathlib import Path

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect
from tests.trainers.conftest import FindReference, MakeChain
from tests.trainers.judging import ALL, FRACTIONS, check, interrupted, landed_in_data

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]
ACCELERATE = ("model", "optimizer", "scheduler", "rng")
LIGHTNING = ("model", "optimizer", "scheduler", "data")


def test_the_trainer_of_transformers(chain: MakeChain, reference: FindReference) -> None:
    """No marker: files appear one by one at their final names, `trainer_state.json` last."""
    training = chain("hugging_face", "transformers")
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        assert left.verdict(interrupted(left)) == "no"
    left = training.kill(phase="sync")
    assert not any(name.endswith("trainer_state.json") for name in left.evidence["files"])
    assert left.verdict(interrupted(left)) == "no"
    training.finish()
    check(training, reference("hugging_face"), ALL)


def test_save_state_of_accelerate(chain: MakeChain, reference: FindReference) -> None:
    training = chain("accelerated", "accelerate")
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        assert left.verdict(interrupted(left)) == "no"
    left = training.kill(phase="sync")
    assert left.verdict(interrupted(left)) == "suspect", "all that Accelerate knows is there; the one before had more"
    training.finish()
    check(training, reference("accelerated"), ACCELERATE)
    # What is registered with it is the last that it writes: without it, or with a part of it, nothing is whole.
    newest = training.trainer.store / inspect(str(training.trainer.store))["newest_complete"]
    registered = newest / "custom_checkpoint_0.pkl"
    registered.write_bytes(registered.read_bytes()[:-100])
    assert inspect(str(newest))["complete"] == "no"
    registered.unlink()
    assert inspect(str(newest))["complete"] == "suspect"


def test_lightning_on_one_file_system(chain: MakeChain, reference: FindReference, tmp_path: Path) -> None:
    """Its temporary file lies in the store, so that the killer sees it; the move is a rename."""
    training = chain("lightning_fit", "lightning", SCRATCH="checkpoints/tmp", THINK_S="0.6")
    (training.trainer.store / "tmp").mkdir()
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        assert all(name.startswith("tmp/") for name in left.evidence["files"])
        assert {each["complete"] for each in left.store["members"]} == {"yes"}, "a reader sees whole ones only"
    training.finish()
    check(training, reference("lightning_fit"), LIGHTNING)


def test_lightning_across_file_systems(chain: MakeChain, reference: FindReference, other_file_system: Path) -> None:
    """The move is a copy into the final name: what a kill leaves there looks like the newest checkpoint."""
    training = chain("lightning_fit", "lightning", SCRATCH=str(other_file_system))
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        assert left.verdict(interrupted(left)) == "no"
        assert left.store["latest"] == interrupted(left) != left.store["newest_complete"]
    training.finish()
    check(training, reference("lightning_fit"), LIGHTNING)
