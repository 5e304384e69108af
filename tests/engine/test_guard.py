"""The guard fails closed, whatever breaks in it."""

import getpass
from types import SimpleNamespace
from typing import Any

import pytest
from chaoslib.exceptions import InterruptExecution

from chaos_gpu.controls import guard
from chaos_gpu.faults import preflight, recovery
from chaos_gpu.faults.run import mark
from chaos_gpu.report.fold import Ending, fold


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(guard, "_guard", guard._Guard())
    yield
    mark(None)


def test_no_activity_starts_when_the_guard_itself_broke_down() -> None:
    """Chaos Toolkit only notes an error in a control, and would go on with other people's actions."""
    with pytest.raises(InterruptExecution, match="did not arm"):
        guard.before_activity_control(context={"name": "cordon everything"})


def test_rollbacks_of_others_do_not_run_when_nothing_was_armed() -> None:
    with pytest.raises(InterruptExecution, match="nothing to roll back"):
        guard.before_rollback_control(context={})


def run_that(**changes: Any) -> Any:
    settings = SimpleNamespace(context="lab", environment="lab")
    facts = {"id": "r1", "phase": "after", "refused": None, "signal": "", "settings": settings, "plans": {}, "owed": {}}
    lists = {"verdicts": [], "restored": [], "open": [], "ready": {"before": True, "after": True}}
    return SimpleNamespace(**facts, **lists, **{"engaged": True, "trouble_on_target": False, **changes})


def test_a_closing_that_breaks_down_is_not_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise RuntimeError("unforeseen")

    mark(run_that())
    monkeypatch.setattr(recovery, "close", broken)
    journal: dict[str, Any] = {"experiment": {}, "status": "completed"}
    with pytest.raises(RuntimeError):
        guard.after_experiment_control(context={}, state=journal)
    assert fold(journal).ending is Ending.NOT_RECOVERED


def test_an_interrupted_arming_is_a_signal_and_no_refusal() -> None:
    assert guard.entry(None, None, "SIGTERM")["refused"] is None
    assert fold({"experiment": {}, "chaos_gpu": guard.entry(None, None, "SIGTERM")}).ending is Ending.INCONCLUSIVE
    assert fold({"experiment": {}, "chaos_gpu": guard.entry(None, None, "")}).ending is Ending.REFUSED


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("no username")])
def test_a_user_without_a_name_still_owns_the_run(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def nameless() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert preflight.owner().startswith("uid-")
