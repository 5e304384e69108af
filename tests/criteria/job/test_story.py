"""Reading logs and events: what is of use is found, and nothing else breaks it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.job.resume import judge_resume, judge_state, judge_steps
from chaos_gpu.criteria.job.story import MOST_LINE, Attempt, Kill, Resumed, Saved, Step
from chaos_gpu.verdict import Outcome
from tests.criteria.job.stories import saved, story

LOG = [
    "epoch 1",
    '{"event": "resumed", "source": "step-4.pt", "step": 4, "at": 1.0}',
    '{"step": 5, "loss": 0.5, "lr": 0.1, "at": 2.0}',
    '{"step": 6, "loss": NaN, "lr": 0.1}',
    '{"step": true, "loss": 1}',
    '{"step": 7}',
    '{"event": "saved", "step": 6, "blocked_s": 0.25}',
    '{"event": "finished", "step": 6, "loss": 1.0}',
    "{broken",
]


def test_a_log_is_read() -> None:
    found = Attempt.of(LOG, 0)
    assert found.resumed == Resumed("step-4.pt", 4)
    assert [step.step for step in found.steps] == [5, 6]
    assert found.steps[0] == Step(5, 0.5, 0.1)
    assert found.steps[1].loss != found.steps[1].loss
    assert found.blocked_s == {6: 0.25}
    assert found.exit_code == 0


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["step", "loss", "lr", "event"]), inner)
    ),
)


@given(st.lists(st.text() | ANY.map(json.dumps), max_size=6))
def test_no_line_breaks_it(lines: list[str]) -> None:
    for step in Attempt.of(lines).steps:
        assert isinstance(step.step, int)
        assert isinstance(step.loss, float)


def test_an_event_and_the_evidence_of_a_kill() -> None:
    checkpoint = {"step": 8, "complete": "yes", "components": ["model"], "state_crcs": {"model.x": 1}}
    event: dict[str, Any] = {"begun_ns": 2_000_000_000, "durable_ns": 3_500_000_000, "complete": 2, "least": 1}
    save = Saved.of({**event, "checkpoint": checkpoint, "garbage": {"x": 3}})
    assert (save.step, save.seconds, save.kept, save.least, save.garbage) == (8, 1.5, 2, 1, {"x": 3})
    assert Saved.of(event).complete == ""
    members = [{"name": "a", "complete": "yes"}, {"name": "b", "complete": "suspect"}]
    store = {"newest_complete": "a", "newest_step": 4, "members": members}
    kill = Kill.of({"between_ns": [1e9, 2e9], "uncommitted": True, "store": store, "fraction": 0.5})
    assert (kill.newest, kill.newest_step, kill.torn, kill.at_s) == ("a", 4, ("b",), 1.0)
    evidence = {"between_ns": [0, 0], "files": ["step-8.pt.tmp"], "store": store}
    assert Kill.of(evidence).torn == ("b",)
    assert Kill.of({**evidence, "uncommitted": True}).torn == ("b", "step-8.pt.tmp")
    assert Kill.of({"between_ns": [0, 0]}).uncommitted is False


def test_a_line_as_long_as_may_be_is_read_and_no_longer_one() -> None:
    line = '{"step": 5, "loss": 0.5, "lr": 0.1}'
    assert len(Attempt.of([line.ljust(MOST_LINE)]).steps) == 1
    assert Attempt.of([line.ljust(MOST_LINE + 1)]).steps == ()


@pytest.mark.parametrize(
    "line",
    [
        *(f'{{"event": "saved", "step": 6, "blocked_s": {taken}}}' for taken in ("NaN", "true", '"1"', "null")),
        '{"event": "saved", "blocked_s": 1.0}',
        '{"event": "saving", "step": 6, "blocked_s": 1.0}',
        '{"step": 6, "blocked_s": 1.0}',
    ],
)
def test_what_is_no_time_of_a_save_blocked_nobody(line: str) -> None:
    assert Attempt.of([line]).blocked_s == {}


def test_all_that_an_event_says_of_a_save_is_taken() -> None:
    checkpoint = {"components": ["model", "rng"], "state_crcs": {"model.x": 1}, "without_crc": 3}
    save = Saved.of({"begun_ns": 0, "durable_ns": 1, "bytes": 77, "checkpoint": checkpoint})
    assert (save.components, save.crcs, save.without_crc) == (("model", "rng"), {"model.x": 1}, 3)
    assert (save.step, save.size_bytes, save.kept, save.least, save.garbage) == (None, 77, 0, 0, {})


def test_all_that_is_known_of_a_kill_is_shown() -> None:
    place = {"phase": "data", "asked": {"fraction": 0.5}, "fraction": 0.51, "files": ["b"], "frozen_by": "cgroup v2"}
    misses = {"misses": [{"why": "late"}], "orphans": [7]}
    kill = Kill.of({**LANDED, **place, **misses, "text": "killed", "grace_s": 3, "note": "no durability", "other": 1})
    assert (kill.what, kill.grace_s, kill.note, kill.pod, kill.wall_s) == (
        "killed",
        3.0,
        "no durability",
        "pod-1",
        1000.7,
    )
    assert kill.as_json() == {
        "text": "killed",
        "newest_complete": {"name": "step-4.pt", "step": 4},
        "torn": ["b"],
        **place,
        **misses,
        "note": "no durability",
    }


def test_what_began_as_it_was_killed_was_saved_since() -> None:
    told = story(saves=(saved(4, 99.9), saved(8, 100.0), saved(12, 100.1)))
    assert [save.step for save in told.new_saves] == [8, 12]


LANDED: dict[str, Any] = {
    "uncommitted": True,
    "store": {"newest_complete": "step-4.pt", "newest_step": 4},
    "between_ns": [1, 2],
    "pod": "pod-1",
    "wall_s": 1000.7,
}


def test_one_told_to_end_is_judged_by_what_it_had_at_its_end() -> None:
    """Within its grace it commits: the store of the moment of the request would blame the resume for it."""
    ended = {"ended_ns": 5_000_000_000, "store": {"newest_complete": "step-8.pt", "newest_step": 8}}
    kill = Kill.at_end(LANDED, ended)
    assert (kill.newest, kill.newest_step, kill.at_s, kill.uncommitted) == ("step-8.pt", 8, 5.0, False)
    unseen = Kill.at_end(LANDED, None)
    assert (unseen.newest, unseen.newest_step, unseen.uncommitted) == ("", None, False)
    assert judge_steps(story(kill=unseen)).outcome is Outcome.INCONCLUSIVE
    assert judge_state(story(kill=unseen)).outcome is Outcome.INCONCLUSIVE
    assert judge_resume(story(kill=kill)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("pod", "start", "started_s", "after"),
    [
        ("pod-1", 0, 1000.0, False),
        ("pod-1", 1, 1000.0, True),
        ("pod-1", 1, 999.0, False),
        ("pod-1", 2, 1003.0, True),
        ("pod-0", 0, 990.0, False),
        ("pod-2", 0, 1001.0, True),
        ("pod-2", 1, 0.0, True),
    ],
)
def test_which_start_came_after_the_kill(pod: str, start: int, started_s: float, after: bool) -> None:
    """A training that had crashed before is started for the second time, and not by the kill."""
    assert Kill.of(LANDED).precedes(pod, start, started_s) is after
