"""What Chaos Toolkit itself saw fail keeps a run from passing, whatever our own criteria say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.report.fold import Ending, fold
from chaos_gpu.report.html import as_html
from chaos_gpu.report.junit import as_junit
from chaos_gpu.report.toolkit import failures, findings
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


def broken(func: str, fault: str, said: str, module: str = "chaos_gpu.x") -> dict[str, Any]:
    exception = ["Traceback…\n", f"chaoslib.exceptions.ActivityFailed: chaos_gpu.errors.NotLanded: {said}\n"]
    found = entry(module, "failed", exception=exception)
    found["activity"]["provider"] |= {"func": func, "arguments": {"fault": fault}}
    return found


NO_LIBRARY = "xid-31: no libcuda.so.1 in this container"


def test_verdicts_that_are_missing_are_missing_for_a_reason_that_every_form_tells() -> None:
    method = [broken("raise_xid", "xid-31", NO_LIBRARY), broken("node_kept", "xid-31", "xid-31 did not land")]
    result = fold({**journal(verdicts=[]), "run": method})
    told = f"DEV-02 inconclusive: 0 of 1 verdicts were given: {NO_LIBRARY}"
    assert [reason.reason for reason in result.reasons] == [told], "what follows from it has nothing to add"
    assert told in as_junit([("x", result)])
    assert told in as_html([("x", result)])


def test_of_many_failures_some_are_told_and_the_rest_counted() -> None:
    method = [broken("inject", f"f{number}", f"f{number}: no") for number in range(5)]
    (reason,) = fold({**journal(verdicts=[]), "run": method}).reasons
    assert reason.reason.endswith("verdicts were given: f0: no; f1: no; f2: no; and 2 more")


def test_who_else_failed_is_no_reason_for_our_verdicts() -> None:
    method = [broken("f", "x", "theirs", module=FOREIGN), entry("chaos_gpu.probes.device", "failed")]
    assert failures({"run": method}) == ("activity 'it' failed",)


@given(st.dictionaries(st.sampled_from(["steady_states", "run", "rollbacks", "status", "deviated"]), ANYTHING))
def test_nothing_in_a_journal_raises(found: dict[str, Any]) -> None:
    for text in (*findings(found).broken, *findings(found).doubtful, *failures(found)):
        assert isinstance(text, str)
