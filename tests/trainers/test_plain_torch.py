"""`torch.save` beside and renamed, at its final name, and `torch.distributed.checkpoint`, killed for real."""

import pytest

from tests.trainers.conftest import FindReference, MakeChain
from tests.trainers.judging import ALL, FRACTIONS, check, interrupted, landed_in_data

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]


def test_saved_beside_and_renamed(chain: MakeChain, reference: FindReference) -> None:
    training = chain("torch_save")
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        (beside,) = left.evidence["files"]
        assert beside.endswith(".tmp")
        assert {each["complete"] for each in left.store["members"]} == {"yes"}, "a reader sees whole ones only"
        assert left.store["latest"] == left.store["newest_complete"]
    for phase in ("sync", "pointer", "retention"):
        training.kill(phase=phase)
    training.finish()
    check(training, reference("torch_save"), ALL)


def test_saved_at_the_final_name(chain: MakeChain, reference: FindReference) -> None:
    """Only the missing end of the file says that it is torn; a trainer that looks goes on from the one before."""
    training = chain("torch_save", MODE="in-place")
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        assert left.verdict(interrupted(left)) == "no"
        assert left.store["latest"] == interrupted(left) != left.store["newest_complete"]
    training.finish()
    check(training, reference("torch_save"), ALL)


def test_distributed_checkpoint(chain: MakeChain, reference: FindReference) -> None:
    """Its marker `.metadata` is renamed into place last."""
    training = chain("distributed_checkpoint")
    for spec in (*({"fraction": each} for each in FRACTIONS), {"phase": "commit"}):
        left = training.kill(**spec)
        assert left.evidence["uncommitted"] is True
        assert left.verdict(interrupted(left)) == "no"
    training.kill(phase="retention")
    training.finish()
    check(training, reference("torch_save"), ALL)


def test_distributed_checkpoint_by_a_thread(chain: MakeChain, reference: FindReference) -> None:
    """The training goes on while it saves, and both die together."""
    training = chain("distributed_checkpoint", MODE="thread")
    for fraction in FRACTIONS:
        left = training.kill(fraction=fraction)
        landed_in_data(left)
        assert left.verdict(interrupted(left)) == "no"
    training.finish()
    check(training, reference("torch_save"), ALL)


def test_distributed_checkpoint_by_a_process_that_outlives_its_rank(chain: MakeChain, reference: FindReference) -> None:
    """Killed is the rank alone: its writer commits afterwards, is waited for, and that checkpoint is resumed from."""
    training = chain("distributed_checkpoint", MODE="process", RANK="0")
    left = training.kill(fraction=0.5, means="rank")
    assert left.evidence["uncommitted"] is True
    assert left.evidence["orphans"]
    assert left.store["newest_complete"] == left.kill.newest == interrupted(left)
    training.finish()
    check(training, reference("torch_save"), ALL)
