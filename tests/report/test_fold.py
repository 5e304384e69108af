"""Folding: the order of what counts, nothing missing passes, and nothing in a file can raise."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.errors import UsageError
from chaos_gpu.report.fold import EXIT_CODES, Ending, Result, ending_of, fold, worst_exit_code
from chaos_gpu.report.journal import fold_file, journals_in
from tests.report.journals import guard, journal, verdict

OPEN = {"restored": [], "open": ["node gpu-1 is still cordoned"]}
REFUSED = {"reason": "not opted in", "remedy": "chaos-gpu install"}


def ready(before: Any, after: Any, on_target: bool = False) -> dict[str, Any]:
    return {"before": before, "after": after, "after_on_target": on_target}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"recovery": OPEN}, 3),
        ({"recovery": OPEN, "refused": REFUSED, "signal": "SIGTERM"}, 3),
        ({"refused": REFUSED}, 4),
        ({"refused": REFUSED, "signal": "SIGTERM"}, 4),
        ({"signal": "SIGINT"}, 2),
        ({"signal": "abort", "verdicts": [verdict(outcome="fail")]}, 2),
        ({"platform_ready": ready(False, False)}, 2),
        ({"platform_ready": ready(None, True)}, 2),
        ({"platform_ready": ready(False, True), "verdicts": [verdict(outcome="fail")]}, 2),
        ({"platform_ready": ready(True, False)}, 1),
        ({"platform_ready": ready(True, False), "verdicts": [verdict(outcome="inconclusive")]}, 1),
        ({"platform_ready": ready(True, False, True)}, 3),
        ({"platform_ready": ready(True, True, True)}, 0),
        ({"platform_ready": ready(True, None)}, 2),
        ({"platform_ready": ready(True, None), "verdicts": [verdict(outcome="fail")]}, 1),
        ({"verdicts": [verdict(outcome="fail")]}, 1),
        ({"verdicts": [verdict(outcome="inconclusive")]}, 2),
        ({"verdicts": []}, 2),
        ({"planned": {"DEV-02": 2}}, 2),
        ({"planned": {"DEV-02": 2}, "verdicts": [verdict(outcome="fail")]}, 1),
        ({"planned": {"DEV-02": 2}, "verdicts": [verdict(), verdict()]}, 0),
        ({"planned": {"DEV-02": 1}, "verdicts": [verdict(), verdict(outcome="fail")]}, 1),
        ({"planned": {"DEV-02": 1, "DEV-07": 1}}, 2),
        ({"planned": {"DEV-02": 1}, "verdicts": [verdict(), verdict("DEV-07", "fail")]}, 1),
        ({"planned": {}, "verdicts": []}, 2),
        ({"planned": {}, "verdicts": [verdict()]}, 2),
        ({"planned": {"DEV-02": 0}, "verdicts": [verdict()]}, 2),
        (
            {
                "planned": {"DEV-02": 1, "DEV-07": 1},
                "verdicts": [verdict(outcome="inconclusive"), verdict("DEV-07", "fail")],
            },
            1,
        ),
    ],
)
def test_precedence(changes: dict[str, Any], code: int) -> None:
    result = fold(journal(**changes))
    assert result.exit_code == code
    assert bool(result.reasons) == (code != 0)
    assert result.as_json()["outcome"] == result.outcome == ending_of(code).value


def test_reasons_say_what_and_what_to_do() -> None:
    verdicts = [verdict(), verdict("DEV-07", "fail", "cordoned after 9 s, limit 3 s", remedy="look")]
    result = fold(journal(planned={"DEV-02": 2, "DEV-07": 1}, verdicts=verdicts))
    assert [(reason.reason, reason.remedy) for reason in result.reasons] == [
        ("DEV-02 inconclusive: 1 of 2 verdicts were given", "see the run's log for the activity that failed"),
        ("DEV-07 fail: cordoned after 9 s, limit 3 s", "look"),
    ]
    assert fold(journal(recovery=OPEN)).reasons[0].reason == "not recovered: node gpu-1 is still cordoned"
    assert fold(journal(refused=REFUSED)).reasons[0].remedy == "chaos-gpu install"
    assert "SIGHUP" in fold(journal(signal="SIGHUP")).reasons[0].reason


def test_facts_of_the_run() -> None:
    result = fold(journal())
    assert (result.title, result.started, result.seconds) == (
        "A fatal Xid takes its node out of service",
        "2026-11-29T12:00:00",
        12.34,
    )
    data = json.loads(json.dumps(result.as_json()))
    assert data["run"] == "1129-120000-abcdef"
    assert data["criteria"] == [{"id": "DEV-02", "outcome": "pass", "planned": 1, "verdicts": [verdict()]}]
    assert data["recovery"] == {"restored": ["injector pod ended"], "open": []}


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [(0, 0.0), (7, 7.0), (-1, 0.0), (1e9, 0.0), ("7", 0.0), (None, 0.0), (float("nan"), 0.0), (float("inf"), 0.0)],
)
def test_only_a_duration_is_a_duration(duration: Any, seconds: float) -> None:
    assert fold({**journal(), "duration": duration}).seconds == seconds
    assert Result(Ending.FAIL).seconds == 0


def test_unhealthy_and_not_looked_at_are_told_apart() -> None:
    assert fold(journal(platform_ready=ready(False, True))).reasons[0].reason == "the platform was not healthy before"
    assert fold(journal(platform_ready=ready(None, True))).reasons[0].reason.startswith("nobody saw")


def test_what_the_guard_adds_later_is_no_error() -> None:
    assert fold(journal(plans=[], context="lab")).exit_code == 0


@pytest.mark.parametrize("missing", sorted(guard()))
def test_a_guards_word_with_a_part_missing_is_not_believed(missing: str) -> None:
    record = {key: value for key, value in guard().items() if key != missing}
    result = fold({**journal(), "chaos_gpu": record})
    assert result.exit_code == 4
    assert missing in result.reasons[0].reason


@pytest.mark.parametrize(
    "raw", ["", [], 3, {"recovery": None}, {"recovery": {"open": []}}, {"recovery": {"open": None}}]
)
def test_another_word_is_not_the_guards(raw: Any) -> None:
    assert fold({**journal(), "chaos_gpu": raw}).exit_code == 4


@pytest.mark.parametrize("left", [["node gpu-1"], "node gpu-1", [{"kind": "Node"}], 1])
def test_what_is_left_open_counts_even_if_the_rest_cannot_be_read(left: Any) -> None:
    assert fold({**journal(), "chaos_gpu": {"recovery": {"open": left}}}).exit_code == 3


@pytest.mark.parametrize(
    "other", [None, 1, "x", [], {}, {"chaos_gpu": guard()}, {"experiment": "x", "chaos_gpu": guard()}]
)
def test_what_is_no_journal_is_refused(other: Any) -> None:
    assert fold(other).exit_code == 4


def test_without_a_word_of_the_guard() -> None:
    result = fold({**journal(), "chaos_gpu": None})
    assert result.exit_code == 4
    assert "chaos_gpu.controls.guard" in result.reasons[0].remedy


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(guard())), JSON)
def test_a_hostile_guards_word_never_raises_and_never_passes(key: str, value: Any) -> None:
    result = fold({**journal(), "chaos_gpu": {**guard(), key: value}})
    assert isinstance(result, Result)
    if result.exit_code == 0:
        assert key in {"run", "phase", "signal", "recovery", "platform_ready", "verdicts", "planned", "refused"}
        assert result.record is not None
        assert result.record.recovery.open == ()
        assert result.criteria
        assert all(criterion.verdicts for criterion in result.criteria)


@given(st.sampled_from(sorted(journal())), JSON)
def test_a_hostile_journal_never_raises(key: str, value: Any) -> None:
    assert isinstance(fold({**journal(), key: value}), Result)


@given(JSON)
def test_anything_never_raises(value: Any) -> None:
    assert fold(value).exit_code == 4


OUTCOMES = st.sampled_from(["pass", "fail", "inconclusive"])


@given(
    st.lists(st.tuples(st.sampled_from(["DEV-02", "DEV-07"]), OUTCOMES), max_size=6),
    st.integers(0, 3),
    st.integers(0, 3),
)
def test_a_pass_needs_every_verdict_that_was_planned(given: list[tuple[str, str]], two: int, seven: int) -> None:
    planned = {"DEV-02": two, "DEV-07": seven}
    result = fold(journal(planned=planned, verdicts=[verdict(*pair) for pair in given]))
    whole = all(sum(name == known for name, _ in given) >= max(count, 1) for known, count in planned.items())
    good = all(outcome == "pass" for _, outcome in given)
    assert (result.exit_code == 0) == (whole and good and two + seven > 0)
    assert (result.exit_code == 1) == any(outcome == "fail" for _, outcome in given)


@pytest.mark.parametrize(
    ("codes", "worst"),
    [
        ([], 2),
        ([0], 0),
        ([0, 4], 4),
        ([4, 2], 2),
        ([2, 1], 1),
        ([1, 5], 5),
        ([5, 3], 3),
        ([0, 1, 2, 3, 4, 5], 3),
        ([137], 5),
        ([0, -9], 5),
        ([3, 137], 3),
    ],
)
def test_worst_of_many(codes: list[int], worst: int) -> None:
    assert worst_exit_code(codes) == worst


def test_endings_and_codes_belong_together() -> None:
    assert all(ending_of(code) is ending for ending, code in EXIT_CODES.items())
    assert ending_of(77) is Ending.INTERNAL
    assert [EXIT_CODES[ending] for ending in Ending] == [0, 1, 2, 3, 4, 5]


class TestFiles:
    """Journals on disk."""

    def test_a_whole_one(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.json"
        path.write_text(json.dumps(journal()))
        assert fold_file(path).exit_code == 0

    @pytest.mark.parametrize("end", [1, 20, 200, -1])
    def test_one_that_was_cut_off_says_nothing(self, tmp_path: Path, end: int) -> None:
        path = tmp_path / "journal.json"
        path.write_text(json.dumps(journal())[:end])
        result = fold_file(path)
        assert result.exit_code == 2
        assert "not a whole journal" in result.reasons[0].reason

    @pytest.mark.parametrize("data", [b"", b"title: x", b"\xff\xfe", b"[1, 2]", b"null", b"NaN"])
    def test_another_file_is_refused(self, tmp_path: Path, data: bytes) -> None:
        path = tmp_path / "journal.json"
        path.write_bytes(data)
        assert fold_file(path).exit_code == 4

    def test_a_deep_one_does_not_end_the_program(self, tmp_path: Path) -> None:
        path = tmp_path / "journal.json"
        path.write_text('{"a":' * 100_000)
        assert fold_file(path).exit_code == 2

    def test_found_in_run_directories(self, tmp_path: Path) -> None:
        for name in ("b", "a"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "journal.json").write_text("{}")
        assert journals_in(tmp_path) == [tmp_path / "a" / "journal.json", tmp_path / "b" / "journal.json"]
        assert journals_in(tmp_path / "a") == [tmp_path / "a" / "journal.json"]
        assert journals_in(tmp_path / "a" / "journal.json") == [tmp_path / "a" / "journal.json"]

    def test_not_found(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "nothing"):
            with pytest.raises(UsageError):
                journals_in(path)
        with pytest.raises(UsageError):
            fold_file(tmp_path)


def test_a_run_that_stopped_at_its_hypothesis_tells_that_reason_and_its_remedy_alone() -> None:
    lacking = verdict(outcome="inconclusive", reason="no training is given", remedy="set CHAOS_GPU_JOB")
    ready = {"before": True, "after": None, "after_on_target": False}
    found = fold(journal(phase="before", planned={"DEV-02": 3}, verdicts=[lacking], platform_ready=ready))
    assert found.exit_code == 2
    assert [(each.reason, each.remedy) for each in found.reasons] == [
        ("DEV-02 inconclusive: no training is given", "set CHAOS_GPU_JOB")
    ]


@pytest.mark.parametrize("verdicts", [[], [verdict(outcome="fail")], [verdict()]], ids=["none", "fail", "pass"])
def test_a_run_that_stopped_elsewhere_tells_that_it_did(verdicts: list[dict[str, Any]]) -> None:
    ready = {"before": True, "after": None, "after_on_target": False}
    found = fold(journal(phase="before", planned={"DEV-02": 3}, verdicts=verdicts, platform_ready=ready))
    assert found.exit_code == (1 if any(each["outcome"] == "fail" for each in verdicts) else 2)
    assert any("nobody looked" in each.reason for each in found.reasons)
    assert any("of 3 verdicts were given" in each.reason for each in found.reasons)
