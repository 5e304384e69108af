"""Reading logs and events: what is of use is found, and nothing else breaks it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.job.story import Attempt, Kill, Resumed, Saved, Step

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
