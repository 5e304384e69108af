"""What must hold of every real training that was killed and went on."""

from chaos_gpu.criteria.job.resume import judge_loss, judge_resume, judge_state, judge_steps
from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.verdict import Judgement, Outcome
from tests.trainers.chain import Chain, Left, Reference

ALL = ("model", "optimizer", "scheduler", "rng", "data")
FRACTIONS = (0.1, 0.5, 0.9)


def landed_in_data(left: Left) -> None:
    """The kill was one, in the middle of a save, where it was asked for."""
    evidence = left.evidence
    assert evidence["uncommitted"] is True
    assert evidence["dead"] is True
    asked = evidence["asked"]["fraction"] * evidence["expected_bytes"]
    assert abs(evidence["written_bytes"] - asked) <= evidence["record_bytes"]


def interrupted(left: Left) -> str:
    """The member of the store that the kill has cut short, without what marks a temporary name."""
    (top,) = {name.split("/")[0] for name in left.evidence["files"]}
    return top


def verdicts(training: Chain, reference: Reference, components: tuple[str, ...]) -> list[dict[str, Judgement]]:
    """What the judges say of each kill: CKPT-01, -03, -04, and of the last one CKPT-02."""
    found = []
    for story in training.stories(reference):
        said = {"resume": judge_resume(story), "state": judge_state(story, components), "loss": judge_loss(story)}
        found.append(said)
    if found:
        found[-1]["steps"] = judge_steps(story)
    return found


def check(training: Chain, reference: Reference, components: tuple[str, ...]) -> None:
    """Every judge passes every kill; the last checkpoint is the reference's, bit for bit."""
    for left, said in zip(training.kills, verdicts(training, reference, components), strict=True):
        if not left.evidence["uncommitted"]:
            said.pop("resume")  # the save had committed, as the phase asks: where it resumed from says `state`
        wrong = {name: each for name, each in said.items() if each.outcome is not Outcome.PASS}
        assert not wrong, f"killed in {left.evidence['phase']}, start {left.number}: {wrong}"
    store = training.trainer.store
    newest = inspect(str(store))["newest_complete"]
    step = inspect(str(store / newest), deep=False)["step"]
    answer = inspect(str(store / newest), str(reference.of_step(step)))
    assert (answer["complete"], answer["differs"]) == ("yes", [])
