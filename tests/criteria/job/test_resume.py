"""What a killed training goes on from, and how: each rule by a table, and what no story may ever do."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.job.resume import judge_loss, judge_resume, judge_state, judge_steps
from chaos_gpu.criteria.job.story import Attempt, Resumed, Saved, Step, Story
from chaos_gpu.verdict import Outcome
from tests.criteria.job.stories import GOOD, KILL, PARTS, RESUMED, attempt, saved, steps, story

FAIL, UNKNOWN, PASS = Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS


@pytest.mark.parametrize("judge", [judge_resume, judge_steps, judge_state, judge_loss])
def test_a_good_training_passes(judge: Any) -> None:
    assert judge(GOOD).outcome is PASS


@pytest.mark.parametrize(
    ("changed", "outcome", "said"),
    [
        ({"kill": replace(KILL, uncommitted=False)}, UNKNOWN, "had committed"),
        ({"kill": replace(KILL, newest="", newest_step=None)}, UNKNOWN, "no complete checkpoint"),
        ({"kill": replace(KILL, newest="")}, UNKNOWN, "no complete checkpoint"),
        ({"kill": replace(KILL, newest_step=None)}, UNKNOWN, "no complete checkpoint"),
        ({"after": (Attempt(resumed=Resumed("step-8.pt", 8)), attempt(5, 12, RESUMED))}, PASS, "step-4.pt"),
        ({"after": (attempt(5, 6), attempt(7, 12, Resumed("step-6.pt", 6)))}, PASS, "step-4.pt"),
        ({"after": (attempt(5, 12, Resumed("step-4.pt", None)),)}, PASS, "step-4.pt"),
        ({"after": (attempt(9, 12, Resumed("step-4.pt", 4)),)}, PASS, "step-4.pt"),
        ({"after": (Attempt(exit_code=1),), "restarts": 3}, FAIL, "3 times: a crash loop"),
        ({"after": (), "restarts": 5, "failed": "BackoffLimitExceeded"}, FAIL, "BackoffLimitExceeded"),
        ({"after": (Attempt(exit_code=0),)}, FAIL, "exit code 0"),
        ({"after": (), "restarts": 0}, FAIL, "not started again"),
        ({"after": (attempt(9, 12),), "restarts": 2, "lost": 1}, UNKNOWN, "starts since the kill (1) were gone"),
        ({"after": (attempt(9, 12, Resumed("step-8.pt.tmp", 8)),)}, FAIL, "torn"),
        ({"after": (attempt(9, 12, Resumed("step-8.pt", 8)),)}, FAIL, "from step 8"),
        ({"after": (attempt(1, 12),)}, FAIL, "from step 0"),
        ({"after": (attempt(5, 12),)}, PASS, "step-4.pt"),
        ({"after": (Attempt(exit_code=1), attempt(5, 12, RESUMED)), "restarts": 2}, PASS, "step-4.pt"),
    ],
)
def test_resume_source(changed: dict[str, Any], outcome: Outcome, said: str) -> None:
    judgement = judge_resume(story(**changed))
    assert judgement.outcome is outcome
    assert said in judgement.reason


@pytest.mark.parametrize(
    ("changed", "outcome", "said"),
    [
        ({"after": (attempt(4, 12),)}, FAIL, "first new step is 4"),
        ({"after": (attempt(1, 12),)}, FAIL, "first new step is 1"),
        ({"after": (attempt(6, 12),)}, FAIL, "first new step is 6"),
        ({"after": (Attempt(steps(5, 7) + steps(9, 12)),)}, FAIL, "step 9 follows step 7"),
        ({"after": (Attempt(steps(5, 7) + steps(7, 12)),)}, FAIL, "step 7 follows step 7"),
        ({"after": (attempt(5, 11),)}, FAIL, "[12]"),
        ({"after": (attempt(5, 11),), "finished": False}, UNKNOWN, "last new step is 11"),
        ({"before": attempt(2, 8)}, FAIL, "[1]"),
        ({"before": None}, UNKNOWN, "log up to the kill"),
        ({"before": Attempt()}, UNKNOWN, "log up to the kill"),
        ({"after": (attempt(9, 12),), "restarts": 2, "lost": 1}, UNKNOWN, "starts since the kill (1) were gone"),
        ({"references": ()}, UNKNOWN, "no reference"),
        ({"after": ()}, FAIL, "no new step"),
        ({"kill": replace(KILL, newest_step=None)}, UNKNOWN, "no complete checkpoint"),
    ],
)
def test_step_continuity(changed: dict[str, Any], outcome: Outcome, said: str) -> None:
    judgement = judge_steps(story(**changed))
    assert judgement.outcome is outcome
    assert said in judgement.reason


def test_lost_steps_are_counted() -> None:
    assert judge_steps(GOOD).evidence["lost_steps"] == 4
    assert judge_steps(story(before=attempt(1, 7))).evidence["lost_steps"] == 3


@pytest.mark.parametrize("part", PARTS)
def test_a_component_that_is_not_saved_is_named(part: str) -> None:
    rest = tuple(each for each in PARTS if each != part)
    broken = saved(8, 110.0, components=rest)
    judgement = judge_state(story(saves=(saved(4, 90.0), broken), reference_saves=(broken,)))
    assert judgement.outcome is FAIL
    assert judgement.reason.endswith(f"lacks {part}")


@pytest.mark.parametrize("part", PARTS)
def test_one_bit_that_differs_is_attributed(part: str) -> None:
    good = saved(8, 110.0)
    broken = replace(good, crcs={**(good.crcs or {}), f"{part}.x": 1 << 20})
    judgement = judge_state(story(saves=(saved(4, 90.0), broken)))
    assert judgement.outcome is FAIL
    assert judgement.evidence["differs"] == [f"{part}.x"]
    assert judgement.reason.endswith(f"in {part}")


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"saves": (saved(4, 90.0),)}, UNKNOWN),
        ({"saves": (saved(8, 110.0, complete="no"),)}, UNKNOWN),
        ({"saves": (), "after": ()}, FAIL),
        ({"reference_saves": (saved(4, 90.0),)}, UNKNOWN),
        ({"saves": (saved(8, 110.0, crcs=None),)}, UNKNOWN),
        ({"reference_saves": (saved(8, 110.0, components=PARTS[:5]),)}, FAIL),
        ({"reference_saves": (saved(8, 110.0, crcs={**(saved(8, 0).crcs or {}), "model.more": 1}),)}, FAIL),
    ],
)
def test_state_needs_two_to_compare(changed: dict[str, Any], outcome: Outcome) -> None:
    assert judge_state(story(**changed)).outcome is outcome


def without(prefix: str) -> Saved:
    return saved(8, 110.0, crcs={name: crc for name, crc in (saved(8, 0).crcs or {}).items() if prefix not in name})


@pytest.mark.parametrize(
    ("one", "other", "outcome", "said"),
    [
        (without("model"), without("model"), UNKNOWN, "no CRCs of model"),
        (without("model"), saved(8, 100.0), UNKNOWN, "no CRCs of model"),
        (saved(8, 110.0), without("rng"), UNKNOWN, "no CRCs of rng"),
        (saved(8, 110.0, without_crc=2), saved(8, 100.0), UNKNOWN, "no CRCs of 2 values"),
        (without("model"), saved(8, 100.0, crcs={**(saved(8, 0).crcs or {}), "rng.x": -1}), FAIL, "in rng"),
        (replace(saved(8, 110.0), step=None), replace(saved(8, 100.0), step=None), UNKNOWN, "does not say its step"),
    ],
)
def test_what_has_no_crc_is_not_proven(one: Saved, other: Saved, outcome: Outcome, said: str) -> None:
    judgement = judge_state(story(saves=(one,), reference_saves=(other,)))
    assert judgement.outcome is outcome
    assert said in judgement.reason


def test_the_save_that_was_killed_is_not_the_first_after_it() -> None:
    early = saved(8, 99.0, crcs={"model.x": 1})
    assert judge_state(story(saves=(early, saved(8, 110.0)))).outcome is PASS


@pytest.mark.parametrize(
    ("changed", "outcome", "said"),
    [
        ({"after": (Attempt(steps(5, 12, lr=0.5)),)}, FAIL, "at step 6 the learning rate is 0.5"),
        ({"after": (Attempt(steps(5, 12, loss=9.0)),)}, FAIL, "at step 5 the loss is 9"),
        ({"after": (Attempt(steps(5, 12, loss=float("nan"))),)}, FAIL, "nan"),
        ({"after": (Attempt(steps(5, 12, lr=None)),)}, UNKNOWN, "does not log"),
        ({"references": ()}, UNKNOWN, "no step in common"),
        ({"references": (attempt(1, 4),)}, UNKNOWN, "no step in common"),
        ({"references": (Attempt(steps(1, 6) + steps(9, 12)),)}, UNKNOWN, "lacks steps: [7, 8]"),
        ({"references": (attempt(1, 9),)}, PASS, "5 steps"),
        ({"after": ()}, FAIL, "no new step"),
    ],
)
def test_loss_continuity(changed: dict[str, Any], outcome: Outcome, said: str) -> None:
    judgement = judge_loss(story(**changed))
    assert judgement.outcome is outcome
    assert said in judgement.reason


@pytest.mark.parametrize("apart", [(1.0, 1.2), (1.1, 1.1)], ids=["there", "elsewhere"])
@pytest.mark.parametrize("beyond", [-0.01, 0.01])
def test_losses_that_vary_give_a_band(apart: tuple[float, float], beyond: float) -> None:
    """References that are 0.2 apart at one step: three times that on either side is allowed at each."""
    references = tuple(
        Attempt((Step(5, one, 0.1), Step(6, other, 0.1))) for one, other in zip((1.0, 1.2), apart, strict=True)
    )
    for loss in (min(apart) - 0.6 - beyond, max(apart) + 0.6 + beyond):
        judgement = judge_loss(story(after=(Attempt((Step(5, 1.1, 0.1), Step(6, loss, 0.1))),), references=references))
        assert judgement.outcome is (FAIL if beyond > 0 else PASS)


@pytest.mark.parametrize("drifting", [False, True])
def test_what_differs_by_chance_is_within_the_band_of_two(drifting: bool) -> None:
    """Three runs that differ by nothing but chance, a thousand times: one of them is next to never found at fault."""
    chance = random.Random(7)

    def run() -> Attempt:
        noise = [chance.gauss(0, 1e-3) for _ in range(24)]
        return Attempt(tuple(Step(n, 2.0 + (sum(noise[:n]) if drifting else noise[n]), 0.1) for n in range(24)))

    judged = [judge_loss(story(after=(run(),), references=(run(), run()))).outcome for _ in range(1000)]
    assert judged.count(FAIL) <= (30 if drifting else 2)


def test_values_that_differ_between_references_prove_nothing() -> None:
    usual = saved(8, 100.0).crcs or {}
    other, ours = saved(8, 100.0, crcs={**usual, "model.x": 1}), saved(8, 110.0, crcs={**usual, "model.x": 2})
    judgement = judge_state(story(saves=(ours,), other_saves=((other,),)))
    assert judgement.outcome is UNKNOWN
    assert "1 of 6 values differ between the reference runs" in judgement.reason
    lost = saved(8, 110.0, crcs={**usual, "model.x": 2, "optimizer.x": 3})
    judgement = judge_state(story(saves=(lost,), other_saves=((other,),)))
    assert judgement.outcome is FAIL
    assert judgement.evidence["differs"] == ["optimizer.x"]
    assert judge_state(story(other_saves=((saved(8, 100.0),),))).outcome is PASS


def test_equal_references_leave_no_band() -> None:
    references = tuple(Attempt((Step(5, 1.0, 0.1),)) for _ in range(2))
    nearly = (Attempt((Step(5, 1.0 + 1e-15, 0.1),)),)
    assert judge_loss(story(after=nearly, references=references)).outcome is FAIL


STEP = st.builds(Step, st.integers(0, 15), st.floats(allow_nan=True), st.none() | st.floats(allow_nan=False))
ATTEMPT = st.builds(
    Attempt,
    st.lists(STEP, max_size=6).map(tuple),
    st.none() | st.builds(Resumed, st.sampled_from(["step-4.pt", "step-8.pt.tmp", ""]), st.none() | st.integers(0, 9)),
    st.just({}),
    st.none() | st.integers(0, 137),
)
SAVED = st.builds(
    Saved,
    st.none() | st.integers(0, 12),
    st.sampled_from(["yes", "no", "suspect", ""]),
    st.lists(st.sampled_from(PARTS), unique=True).map(tuple),
    st.none() | st.dictionaries(st.sampled_from(["model.x", "rng.x"]), st.integers(0, 2)),
    st.floats(0, 200),
    st.floats(0, 200),
)
STORY = st.builds(
    Story,
    st.just(KILL) | st.just(replace(KILL, uncommitted=False)),
    st.none() | ATTEMPT,
    st.lists(ATTEMPT, max_size=3).map(tuple),
    st.integers(0, 3),
    st.sampled_from(["", "BackoffLimitExceeded"]),
    st.booleans(),
    st.lists(ATTEMPT, max_size=2).map(tuple),
    st.lists(SAVED, max_size=3).map(tuple),
    st.lists(SAVED, max_size=3).map(tuple),
)


@given(STORY)
def test_no_story_without_its_evidence_passes(told: Story) -> None:
    if judge_resume(told).outcome is PASS:
        assert told.kill.uncommitted
        assert told.new_steps
    if judge_steps(told).outcome is PASS:
        assert told.new_steps[0].step == 5
        assert told.references
    if judge_state(told).outcome is PASS:
        assert any(save.crcs and not save.without_crc and save.begun_s >= KILL.at_s for save in told.saves)
        assert told.reference_saves
    if judge_loss(told).outcome is PASS:
        assert told.references
        assert all(
            step.lr is not None for step in told.new_steps if step.step in {s.step for s in told.references[0].steps}
        )
