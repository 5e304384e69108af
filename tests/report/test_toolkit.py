"""What Chaos Toolkit itself saw fail keeps a run from passing, whatever our own criteria say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.report.fold import Ending, fold
from chaos_gpu.report.toolkit import findings
from tests.report.journals import guard, journal, verdict

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def entry(module: str, status: str = "succeeded", **more: Any) -> dict[str, Any]:
    return {"activity": {"name": "it", "provider": {"type": "python", "module": module}}, "status": status, **more}


def after(*probes: dict[str, Any]) -> dict[str, Any]:
    return {"steady_states": {"before": None, "after": {"steady_state_met": False, "probes": list(probes)}}}


FOREIGN, OURS = "their.probes", "chaos_gpu.probes.platform"


@pytest.mark.parametrize(
    ("more", "ending"),
    [
        ({}, Ending.PASS),
        (after(entry(FOREIGN, tolerance_met=True)), Ending.PASS),
        (after(entry(FOREIGN, tolerance_met=False)) | {"deviated": True}, Ending.FAIL),
        (after(entry(FOREIGN, "failed")), Ending.INCONCLUSIVE),
        (after(entry(OURS, tolerance_met=False)) | {"deviated": True}, Ending.INCONCLUSIVE),
        ({"run": [entry(FOREIGN, "failed")]}, Ending.INCONCLUSIVE),
        ({"run": [entry("chaos_gpu.actions.run", "failed")]}, Ending.INCONCLUSIVE),
        ({"run": [{"activity": {"name": "interrupted"}}]}, Ending.INCONCLUSIVE),
        ({"rollbacks": [entry(FOREIGN, "failed")]}, Ending.INCONCLUSIVE),
        ({"status": "failed"}, Ending.INCONCLUSIVE),
        ({"status": "interrupted"}, Ending.INCONCLUSIVE),
        ({"status": "aborted"}, Ending.INCONCLUSIVE),
        ({"deviated": True}, Ending.INCONCLUSIVE),
    ],
)
def test_what_others_saw_fail_counts(more: dict[str, Any], ending: Ending) -> None:
    result = fold({**journal(), **more})
    assert result.ending is ending
    assert bool(result.reasons) is (ending is not Ending.PASS)


def test_a_failed_criterion_and_what_remains_stay_worse() -> None:
    doubtful = {"status": "failed"}
    failed = {"chaos_gpu": guard(verdicts=[verdict(outcome="fail", reason="not cordoned")])}
    left = {"chaos_gpu": guard(recovery={"restored": [], "open": ["node x"]})}
    assert fold({**journal(), **doubtful, **failed}).ending is Ending.FAIL
    assert fold({**journal(), **doubtful, **left}).ending is Ending.NOT_RECOVERED


@given(st.dictionaries(st.sampled_from(["steady_states", "run", "rollbacks", "status", "deviated"]), ANYTHING))
def test_nothing_in_a_journal_raises(found: dict[str, Any]) -> None:
    for text in (*findings(found).broken, *findings(found).doubtful):
        assert isinstance(text, str)
