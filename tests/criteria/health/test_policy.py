"""The node health policy: each rule of DEV-01 to DEV-05 with its boundary."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.health.admission import Standing, judge_admission
from chaos_gpu.criteria.health.diagnosis import (
    Diagnosis,
    Job,
    diagnoses,
    judge_cordon_during_job,
    judge_diagnosis,
)
from chaos_gpu.criteria.health.keeping import Judged, judge_records
from chaos_gpu.criteria.health.record import Action, Record, Result
from chaos_gpu.criteria.health.weekly import Node, judge_weekly
from chaos_gpu.criteria.timeline import NodeState, Timeline
from chaos_gpu.verdict import Judgement, Outcome
from tests.criteria.scenes import OURS, ZERO_S, at, landed, timeline

OUT = at(0.5, cordoned=True, why=OURS)
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def ran(
    start: float | None, end: float, result: Result | None = Result.PASS, level: int = 3, *, confirmed: bool = False
) -> Diagnosis:
    """A diagnosis between two times after the fault."""
    return Diagnosis(level, result, ZERO_S + end, None if start is None else ZERO_S + start, confirmed)


def job(until: float = 2.0, *, ours: bool = True) -> Job:
    return Job("job", ZERO_S + until, ours)


class TestDiagnosis:
    """DEV-03: cordon, r3 on the idle node, decision."""

    @staticmethod
    def judged(line: Timeline, *done: Diagnosis, until: float = 2.0, ours: bool = True, error: float = 0) -> Judgement:
        return judge_diagnosis(landed(), line, job(until, ours=ours), done, 10, 3, 0.5, error)

    @pytest.mark.parametrize(
        ("done", "back", "until", "outcome", "told"),
        [
            ([ran(2, 3)], 3.5, 10, "pass", "r3 passed, returned"),
            ([ran(2, 3)], 3, 10, "pass", "returned"),
            ([ran(2, 3)], 2.9, 10, "fail", "before r3 had ended"),
            ([ran(1.9, 3)], 3.5, 10, "fail", "while job still ran"),
            ([ran(2, 3)], None, 5.9, "inconclusive", "not returned 2.900 s later"),
            ([ran(2, 3)], None, 6, "fail", "not returned within 3 s"),
            ([ran(2, 3, Result.FAIL)], None, 3.5, "pass", "kept out of service"),
            ([ran(2, 3, Result.FAIL)], None, 3.4, "inconclusive", "not watched for 0.5 s"),
            ([ran(2, 3, Result.FAIL)], 4, 10, "fail", "returned though r3 says fail"),
            ([ran(2, 3, Result.WARN)], None, 10, "pass", "kept out"),
            ([ran(2, 3, Result.WARN)], 4, 10, "fail", "though r3 says warn"),
            ([ran(2, 3, Result.WARN, confirmed=True)], 4, 10, "pass", "an operator's word"),
            ([ran(2, 3, Result.FAIL, confirmed=True)], 4, 10, "fail", "though r3 says fail"),
            ([ran(2, 3, None)], 4, 10, "inconclusive", "no record says what r3 came to"),
            ([ran(2, 3, Result.SKIP)], 4, 10, "inconclusive", "no record says what r3 came to"),
            ([ran(None, 3)], 4, 10, "inconclusive", "no record says when r3 started"),
            ([ran(None, 1.9)], 4, 10, "fail", "while job still ran"),
            ([ran(2, 3, level=2)], 4, 10, "fail", "returned without r3"),
            ([ran(2, 3, level=4)], 4, 10, "pass", "returned"),
            ([], 4, 10, "fail", "returned without r3"),
            ([], None, 11.9, "inconclusive", "no record of r3 yet"),
            ([], None, 12, "fail", "no record of r3 within 10 s"),
            ([ran(-3, -2)], 4, 10, "fail", "returned without r3"),
            ([ran(2, 3, Result.FAIL), ran(4, 5)], 5.5, 10, "pass", "r3 passed"),
            ([ran(2, 3), ran(4, 5, Result.FAIL)], 5.5, 10, "fail", "though r3 says fail"),
            ([ran(2, 3), ran(4, 5, Result.FAIL)], 3.5, 10, "pass", "r3 passed"),
        ],
    )
    def test_order_and_decision(
        self, done: list[Diagnosis], back: float | None, until: float, outcome: str, told: str
    ) -> None:
        states = [OUT, *([at(back)] if back is not None else [])]
        judged = self.judged(timeline(*states, until=until), *done)
        assert (judged.outcome, told in judged.reason) == (outcome, True), judged.reason

    def test_the_order_needs_a_cordon_that_names_the_xid(self) -> None:
        assert self.judged(timeline(), ran(2, 3)).outcome == "fail"
        assert self.judged(timeline(gaps=((1, 2),)), ran(2, 3)).outcome == "inconclusive"
        assert self.judged(timeline(at(0.5, cordoned=True)), ran(2, 3)).outcome == "inconclusive"
        before = timeline(at(-1, cordoned=True), OUT)
        assert self.judged(before, ran(2, 3)).outcome == "inconclusive"

    def test_r3_before_the_cordon(self) -> None:
        late = at(4, cordoned=True, why=OURS)
        assert "before the cordon" in self.judged(timeline(late, at(6)), ran(3.9, 5)).reason
        assert self.judged(timeline(late, at(6)), ran(4, 5)).outcome == "pass"
        assert self.judged(timeline(late, at(6), watch_delay_s=0.1), ran(3.9, 5)).outcome == "pass"

    def test_a_job_that_did_not_run_to_its_end_shows_nothing(self) -> None:
        assert self.judged(timeline(OUT, at(4)), ran(2, 3), ours=False).outcome == "inconclusive"

    @pytest.mark.parametrize(("start", "outcome"), [(1.0, "fail"), (1.5, "pass"), (1.4, "fail")])
    def test_what_lies_within_the_error_of_the_clocks_is_not_held_against_the_platform(
        self, start: float, outcome: str
    ) -> None:
        assert self.judged(timeline(OUT, at(4)), ran(start, 3), error=0.5).outcome == outcome

    @pytest.mark.parametrize(("back", "error"), [(3, 0), (2.9, 0.2)])
    def test_the_run_that_decides_is_the_last_one_before_the_return(self, back: float, error: float) -> None:
        done = [ran(2, 2.5, Result.FAIL), ran(2.6, 3)]
        assert self.judged(timeline(OUT, at(back)), *done, error=error).outcome == "pass"
        assert self.judged(timeline(OUT, at(back)), done[1], error=error).outcome == "pass"

    @pytest.mark.parametrize(
        ("end", "error", "own_error", "outcome"),
        [
            (0, 0, 0, "fail"),
            (-0.1, 0, 0, "none"),
            (-0.4, 0.5, 0, "fail"),
            (-0.6, 0.5, 0, "none"),
            (-0.5, 0, 0.5, "fail"),
        ],
    )
    def test_what_ended_before_the_xid_is_no_reaction(
        self, end: float, error: float, own_error: float, outcome: str
    ) -> None:
        record = landed(error_s=own_error)
        judged = judge_diagnosis(
            record, timeline(at(1, cordoned=True, why=OURS)), job(), [ran(-9, end)], 20, 3, 0.5, error
        )
        assert ("while job still ran" in judged.reason) == (outcome == "fail"), judged.reason

    @given(
        st.lists(st.tuples(st.floats(-5, 12), st.floats(0, 5), st.sampled_from([*Result, None])), max_size=4),
        st.none() | st.floats(0.6, 14),
    )
    def test_no_return_passes_without_an_r3_that_passed_before_it(
        self, runs: list[tuple[float, float, Result | None]], back: float | None
    ) -> None:
        done = [ran(start, start + lasts, result) for start, lasts, result in runs]
        states = [OUT, *([at(back)] if back is not None else [])]
        judged = self.judged(timeline(*states, until=15), *done)
        if judged.outcome is Outcome.PASS and back is not None:
            grounds = [each for each in done if each.result is Result.PASS and each.ended_s <= ZERO_S + back]
            assert grounds
            assert all((each.started_s or 0) >= job().running_until_s for each in done if each.ended_s >= ZERO_S)


class TestCordonDuringJob:
    """DEV-02 under a job."""

    @staticmethod
    def judged(line: Timeline, *done: Diagnosis, until: float = 2.0, ours: bool = True, error: float = 0) -> Judgement:
        return judge_cordon_during_job(landed(), line, job(until, ours=ours), done, 3, 0.5, error)

    def test_at_once_and_the_job_runs_on(self) -> None:
        judged = self.judged(timeline(OUT), ran(2, 3))
        assert judged.outcome == "pass"
        assert judged.evidence["job"]["running_until_after_s"] == 2
        assert [each["started_after_s"] for each in judged.evidence["diagnoses"]] == [2]
        assert self.judged(timeline(OUT)).outcome == "pass"
        assert self.judged(timeline(OUT), until=0.4).outcome == "inconclusive"
        assert self.judged(timeline(OUT), until=0.5).outcome == "pass"
        assert self.judged(timeline(OUT), ours=False).outcome == "inconclusive"

    def test_what_the_cordon_alone_does_not_pass(self) -> None:
        assert self.judged(timeline(until=7)).outcome == "fail"
        assert self.judged(timeline(at(4, cordoned=True, why=OURS)), until=5).outcome == "fail"

    @pytest.mark.parametrize(("start", "outcome"), [(1.9, "fail"), (2.0, "pass")])
    def test_r3_waits_for_the_end_of_the_job(self, start: float, outcome: str) -> None:
        judged = self.judged(timeline(OUT), ran(start, 3))
        assert judged.outcome == outcome
        assert ("at least until 2.000 s after the Xid" in judged.reason) == (outcome == "fail")
        assert self.judged(timeline(OUT), ran(start, 3), error=0.2).outcome == "pass"
        assert self.judged(timeline(OUT), ran(start, 3, level=2)).outcome == "pass"

    def test_an_r3_of_before_the_xid_is_no_reaction(self) -> None:
        assert self.judged(timeline(OUT), ran(-2, -1)).outcome == "pass"


class TestAdmission:
    """DEV-01."""

    @staticmethod
    def judged(line: Timeline, *done: Diagnosis, standing: Standing = Standing.NONE, error: float = 0) -> Judgement:
        return judge_admission(standing, landed(), line, done, 3, 0.5, error)

    @pytest.mark.parametrize("standing", list(Standing))
    def test_kept_out(self, standing: Standing) -> None:
        assert self.judged(timeline(OUT), standing=standing).outcome == "pass"
        assert self.judged(timeline(), standing=standing).outcome == "fail"

    @pytest.mark.parametrize(
        ("states", "until", "outcome"),
        [
            ((), 3.0, "fail"),
            ((), 2.9, "inconclusive"),
            ((at(3, cordoned=True),), 10, "pass"),
            ((at(3.1, cordoned=True),), 10, "fail"),
            ((OUT,), 1.0, "pass"),
            ((OUT,), 0.9, "inconclusive"),
            ((at(-1, cordoned=True),), 10, "inconclusive"),
        ],
    )
    def test_in_time_and_for_long_enough(self, states: tuple[NodeState, ...], until: float, outcome: str) -> None:
        assert self.judged(timeline(*states, until=until)).outcome == outcome

    def test_a_time_within_its_own_error_of_the_limit(self) -> None:
        line = timeline(at(2.9, cordoned=True), watch_delay_s=0.2)
        assert self.judged(line).outcome == "inconclusive"
        assert self.judged(timeline(gaps=((1, 2),))).outcome == "inconclusive"

    @pytest.mark.parametrize(
        ("done", "outcome"),
        [
            ([], "fail"),
            ([ran(1, 2, level=2)], "pass"),
            ([ran(1, 2, level=3)], "pass"),
            ([ran(1, 2, level=1)], "fail"),
            ([ran(1, 2, Result.FAIL, level=2)], "fail"),
            ([ran(1, 2, Result.WARN, level=2)], "fail"),
            ([ran(1, 2, Result.WARN, level=2, confirmed=True)], "pass"),
            ([ran(1, 2, Result.SKIP, level=2)], "fail"),
            ([ran(1, 2, None, level=2)], "fail"),
            ([ran(1, 2.1, level=2)], "fail"),
            ([ran(-3, -2, level=2)], "fail"),
        ],
    )
    def test_let_in_again_only_on_an_r2_of_after_the_change(self, done: list[Diagnosis], outcome: str) -> None:
        assert self.judged(timeline(OUT, at(2)), *done).outcome == outcome

    def test_never_seen_before(self) -> None:
        line = Timeline((OUT,), ZERO_S + 10)
        assert self.judged(line).outcome == "inconclusive"


def record(node: str = "n0", age_days: float = 1, level: int = 2, **more: Any) -> Record:
    facts: dict[str, Any] = {"result": Result.PASS, "action": Action.ADMIT, "gpu_uuid": "g"}
    return Record(node=node, level=level, ended_at=NOW - timedelta(days=age_days), **{**facts, **more})


class TestWeekly:
    """DEV-04."""

    NODES = (Node("n0", ()), Node("n1", ()))

    @staticmethod
    def judged(records: list[Record], nodes: tuple[Node, ...] = NODES, skew_s: float = 0) -> Judgement:
        return judge_weekly(nodes, records, NOW, skew_s)

    @pytest.mark.parametrize(
        ("age_days", "skew_s", "outcome"),
        [
            (7, 0, "pass"),
            (7 + 1 / 86400, 0, "fail"),
            (7 + 1 / 86400, 2, "inconclusive"),
            (7 + 3 / 86400, 2, "fail"),
            (7 - 1 / 86400, 2, "inconclusive"),
            (7 - 2 / 86400, 2, "pass"),
            (8, 60, "fail"),
            (-1 / 86400, 2, "pass"),
            (-3 / 86400, 2, "inconclusive"),
        ],
    )
    def test_age_and_clocks(self, age_days: float, skew_s: float, outcome: str) -> None:
        judged = self.judged([record("n0"), record("n1", age_days)], skew_s=skew_s)
        assert judged.outcome == outcome, judged.reason

    def test_the_newest_counts_and_a_higher_level_contains_r2(self) -> None:
        assert self.judged([record("n0"), record("n1", 9), record("n1", 2)]).outcome == "pass"
        assert self.judged([record("n0"), record("n1", 2, level=3)]).outcome == "pass"
        assert self.judged([record("n0"), record("n1", 2, level=1)]).outcome == "fail"

    def test_a_node_without_a_record(self) -> None:
        assert self.judged([record("n0")]).outcome == "fail"
        assert self.judged([record("n0"), replace(record("n1"), ended_at=None)]).outcome == "fail"

    def test_busy_nodes_are_exempt_but_someone_must_be_idle(self) -> None:
        busy = (Node("n0", ()), Node("n1", ("team/train",)))
        assert self.judged([record("n0")], busy).outcome == "pass"
        assert self.judged([record("n0")], (Node("n1", ("x",)),)).outcome == "inconclusive"
        assert self.judged([record("n0")], ()).outcome == "inconclusive"

    def test_no_record_at_all_says_nothing(self) -> None:
        assert self.judged([]).outcome == "inconclusive"
        assert self.judged([record("n0", level=1)]).outcome == "inconclusive"

    @pytest.mark.parametrize(
        ("changes", "outcome", "told"),
        [
            ({"result": Result.FAIL}, "pass", ""),
            ({"result": Result.SKIP}, "fail", "n1 has no record of r2"),
            ({"result": None, "problems": ("result is '???'",)}, "inconclusive", "result is '???'"),
            ({"gpu_uuid": "", "problems": ("gpu_uuid is '0'",)}, "inconclusive", "gpu_uuid is '0'"),
            ({"problems": ("it ended before it started",)}, "inconclusive", "ended before it started"),
            ({"level": 0, "problems": ("level is 'deep'",)}, "inconclusive", "level is 'deep'"),
            ({"level": 1, "problems": ("action is missing",)}, "fail", "n1 has no record of r2"),
        ],
    )
    def test_only_a_diagnosis_that_was_run_counts(self, changes: dict[str, Any], outcome: str, told: str) -> None:
        judged = self.judged([record("n0"), record("n1", **changes)])
        assert judged.outcome == outcome
        assert told in judged.reason

    def test_an_unreadable_record_beside_a_readable_one_does_no_harm(self) -> None:
        strange = record("n1", 0.5, result=None, problems=("result is '???'",))
        assert self.judged([record("n0"), strange, record("n1", 2)]).outcome == "pass"

    @pytest.mark.parametrize(
        ("uuids", "age_days", "outcome"),
        [("ab", 1, "pass"), ("abc", 1, "pass"), ("aA", 1, "inconclusive"), ("a", 1, "inconclusive"), ("a", 8, "fail")],
    )
    def test_records_must_name_the_gpus(self, uuids: str, age_days: float, outcome: str) -> None:
        records = [record("n0", age_days, gpu_uuid=uuid) for uuid in uuids]
        old = record("n0", 30, gpu_uuid="z")
        judged = self.judged([*records, old], (Node("n0", (), gpus=2), Node("n1", ("team/train",), gpus=8)))
        assert judged.outcome == outcome, judged.reason

    @given(st.dictionaries(st.sampled_from("abcd"), st.integers(-9, 200), min_size=1), st.sets(st.sampled_from("abcd")))
    def test_it_passes_exactly_when_every_idle_node_is_young_enough(
        self, ages_h: dict[str, int], idle: set[str]
    ) -> None:
        nodes = tuple(Node(name, () if name in idle else ("work",)) for name in "abcd")
        judged = self.judged([record(name, age_h / 24) for name, age_h in ages_h.items()], nodes)
        young = idle and all(name in ages_h and 0 <= ages_h[name] <= 7 * 24 for name in idle)
        assert (judged.outcome is Outcome.PASS) == bool(young)


class TestKeeping:
    """DEV-05."""

    GPUS = tuple(f"GPU-0000000{n}-0000-0000-0000-000000000000" for n in range(3))
    JUDGED = Judged("n0", frozenset(GPUS), 3, NOW, in_service=True)

    @classmethod
    def records(cls, **more: Any) -> list[Record]:
        facts: dict[str, Any] = {"age_days": -1 / 86400, "level": 3, "started_at": NOW, **more}
        return [record(**{"gpu_uuid": uuid, **facts}) for uuid in cls.GPUS]

    def judged(self, records: list[Record], **more: Any) -> Judgement:
        return judge_records(records, replace(self.JUDGED, **more), 0.5)

    def test_one_whole_and_true_record_for_each_gpu(self) -> None:
        assert self.judged(self.records()).outcome == "pass"

    @pytest.mark.parametrize(
        ("changes", "told"),
        [
            ({"gpu_uuid": "", "problems": ("gpu_uuid is missing",)}, "gpu_uuid is missing"),
            ({"action": None, "problems": ("action is 'reboot'",)}, "reboot"),
            ({"action": Action.ISOLATE}, "action isolate"),
            ({"action": Action.HOLD}, "action hold"),
            ({"gpu_uuid": GPUS[1]}, f"{GPUS[0].lower()} has no record"),
            ({"gpu_uuid": "GPU-99999999-0000-0000-0000-000000000000"}, "is no GPU of this node"),
        ],
    )
    def test_what_one_record_may_have_wrong(self, changes: dict[str, Any], told: str) -> None:
        first, *rest = self.records()
        judged = self.judged([replace(first, **changes), *rest])
        assert judged.outcome == "fail"
        assert told in judged.reason

    def test_a_record_that_is_lost_or_there_twice(self) -> None:
        first, *rest = self.records()
        assert "has no record" in self.judged(rest).reason
        assert "2 records of one judgement" in self.judged([first, first, *rest]).reason
        again = [replace(each, started_at=NOW + timedelta(seconds=2)) for each in (first, *rest)]
        assert self.judged([first, *rest, *again]).outcome == "pass"

    def test_the_decision_is_the_nodes(self) -> None:
        first, *rest = self.records(action=Action.ISOLATE)
        sick = [replace(first, result=Result.FAIL), *rest]
        assert self.judged(sick, in_service=False).outcome == "pass"
        assert "is in service" in self.judged(sick).reason
        warned = self.records(result=Result.WARN, action=Action.HOLD)
        assert self.judged(warned, in_service=False).outcome == "pass"
        admitted = self.records(result=Result.WARN)
        assert self.judged(admitted).outcome == "fail"
        assert self.judged([replace(each, confirmed_by="ann") for each in admitted]).outcome == "pass"

    def test_passed_but_kept_out(self) -> None:
        assert "is out of service" in self.judged(self.records(), in_service=False).reason

    def test_no_record_and_no_evidence(self) -> None:
        assert self.judged([]).outcome == "fail"
        assert self.judged([], in_service=False).outcome == "fail"
        assert self.judged([], in_service=None).outcome == "inconclusive"
        assert self.judged(self.records(), in_service=None).outcome == "inconclusive"
        assert self.judged(self.records(), gpus=frozenset()).outcome == "inconclusive"

    @pytest.mark.parametrize(("seconds", "outcome"), [(0.5, "pass"), (0.6, "fail")])
    def test_records_of_before_are_about_something_else(self, seconds: float, outcome: str) -> None:
        assert self.judged(self.records(age_days=seconds / 86400, started_at=None)).outcome == outcome

    def test_other_nodes_and_levels_are_about_something_else(self) -> None:
        assert self.judged(self.records(node="n1", gpu_uuid="x")).outcome == "fail"
        assert self.judged(self.records(level=2)).outcome == "fail"


def test_records_of_one_run_are_one_diagnosis() -> None:
    end = NOW + timedelta(minutes=3)
    one = [replace(record("n0", level=3), started_at=NOW, ended_at=end, gpu_uuid=g) for g in "ab"]
    other = [replace(record("n0", level=3, result=Result.FAIL), started_at=end, ended_at=end + timedelta(seconds=9))]
    elsewhere = [record("n1", level=3), replace(record("n0", level=3), ended_at=None), record("n0", level=0)]
    first, second = diagnoses([*other, *elsewhere, *one], "n0", NOW.timestamp() - 100)
    assert (first.result, first.started_s, first.ended_s, len(first.records)) == (Result.PASS, 100, 280, 2)
    assert (second.result, second.ended_s) == (Result.FAIL, 289)


def test_without_a_start_the_end_says_which_run_a_record_is_of() -> None:
    later = NOW + timedelta(seconds=1)
    unstarted = [replace(record("n0"), ended_at=end, gpu_uuid=uuid) for end in (NOW, later) for uuid in "ab"]
    assert [len(each.records) for each in diagnoses(unstarted, "n0", 0)] == [2, 2]
    started = [replace(each, started_at=NOW) for each in unstarted]
    (run,) = diagnoses(started, "n0", NOW.timestamp())
    assert (len(run.records), run.started_s, run.ended_s) == (4, 0, 1)
