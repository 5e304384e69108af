"""An injector that waits for a training which is over is not waited for; it cannot know, the API server does."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos_gpu.errors import NotLanded
from chaos_gpu.faults import engine

Json = dict[str, Any]
HOLDING, LANDED = {"event": "holding"}, {"event": "landed", "evidence": {}}
RUNNING: Json = {"status": {"active": 1}}


def ended(kind: str, status: str = "True") -> Json:
    return {
        "status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": kind, "status": status}]}
    }


def land(monkeypatch: pytest.MonkeyPatch, events: list[Json], jobs: list[Json | None], kind: str = "Job") -> Any:
    """Have the engine wait for an injector that says this, beside a training that is found like that."""
    asked: list[str] = []
    written: list[Any] = []

    def find(path: str) -> Json | None:
        asked.append(path)
        return jobs.pop(0) if len(jobs) > 1 else jobs[0]

    def happens(*_: Any) -> Any:
        yield from events
        pytest.fail("it was waited for without an end")

    for name, stand_in in {
        "_make": None, "_change": None, "start_pod": None, "events_of": happens, "_landed": lambda *_: "landed",
    }.items():  # fmt: skip
        monkeypatch.setattr(engine, name, stand_in or (lambda *_: None))
    monkeypatch.setattr(engine.intent, "never", lambda run, plan, reason: reason)
    monkeypatch.setattr(engine.intent, "after", lambda *_: "after")
    objects = ({"kind": "ConfigMap", "metadata": {"name": "code"}}, {"kind": kind, "metadata": {"name": "r1-kill-sub"}})
    plan = SimpleNamespace(fault="kill", pod={"metadata": {"name": "r1-kill"}}, objects=objects)
    run: Any = SimpleNamespace(
        api=SimpleNamespace(find=find),
        ledger=SimpleNamespace(write=written.append),
        settings=SimpleNamespace(start_s=1),
    )
    injection: Any = SimpleNamespace(plan=plan, settled=False)
    try:
        return engine._land(run, injection), asked, written
    except NotLanded as failure:
        assert injection.settled
        return failure.reason, asked, written


@pytest.mark.parametrize(
    ("job", "said"),
    [(ended("Complete"), "is Complete"), (ended("Failed"), "is Failed"), (None, "is gone")],
)
def test_a_training_that_is_over_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, job: Json | None, said: str
) -> None:
    reason, asked, written = land(monkeypatch, [HOLDING, HOLDING, HOLDING], [RUNNING, job])
    assert reason == f"kill: what it waits for is over: Job r1-kill-sub {said}"
    assert set(asked) == {"/apis/batch/v1/namespaces/chaos-gpu/jobs/r1-kill-sub"}
    assert written == [f"what it waits for is over: Job r1-kill-sub {said}"]


def test_a_kill_that_ended_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said before is read later than the Job that fails by it."""
    assert land(monkeypatch, [HOLDING, LANDED], [ended("Failed")])[0] == "landed"
    assert land(monkeypatch, [HOLDING] * 5 + [LANDED], [ended("Complete", "False")])[0] == "landed"


def test_nothing_is_asked_where_there_is_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    assert land(monkeypatch, [HOLDING, HOLDING, LANDED], [None], kind="ConfigMap")[:2] == ("landed", [])
