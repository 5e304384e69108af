"""The node health policy once more: unreadable fields, unknown clocks, and what a reason says."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from chaos_gpu.criteria.health.admission import Standing, judge_admission
from chaos_gpu.criteria.health.diagnosis import diagnoses, judge_diagnosis
from chaos_gpu.criteria.health.keeping import judge_records
from chaos_gpu.criteria.health.record import Action, Record, Result
from chaos_gpu.criteria.health.weekly import Node, judge_weekly
from chaos_gpu.criteria.timeline import Landed, Timeline
from tests.criteria.health import test_policy
from tests.criteria.health.test_policy import NOW, OUT, job, ran, record
from tests.criteria.scenes import OURS, ZERO_S, at, landed, timeline

_KEEPING = test_policy.TestKeeping
records, JUDGED, GPUS = _KEEPING.records, _KEEPING.JUDGED, _KEEPING.GPUS
STRANGER = "GPU-99999999-0000-0000-0000-000000000000"


def kept(found: list[Record], **more: Any) -> tuple[str, str]:
    judged = judge_records(found, replace(JUDGED, **more), 0.5)
    return judged.outcome, judged.reason


class TestKeeping:
    """DEV-05."""

    @pytest.mark.parametrize(
        ("changes", "problem"),
        [
            ({"node": ""}, "node is missing"),
            ({"level": 0}, "level is 'deep'"),
            ({"ended_at": None}, "ended_at is missing"),
            ({"ended_at": None, "node": ""}, "node is missing"),
            ({"action": None}, "action is 'reboot'"),
            ({"result": None}, "result is missing"),
        ],
    )
    def test_a_record_with_an_unreadable_field_is_still_of_its_gpu_and_told_once(
        self, changes: dict[str, Any], problem: str
    ) -> None:
        first, *rest = records()
        bad = replace(first, problems=(problem,), **changes)
        assert kept([bad, *rest]) == ("fail", f"n0: {GPUS[0]}: {problem}")

    @pytest.mark.parametrize(
        "changes",
        [
            {"node": "n1"},
            {"node": "", "gpu_uuid": STRANGER},
            {"node": "", "gpu_uuid": STRANGER, "ended_at": None},
            {"level": 1},
        ],
    )
    def test_a_record_of_something_else_is_neither_counted_nor_blamed(self, changes: dict[str, Any]) -> None:
        first, *rest = records()
        other = replace(first, problems=("result is missing",), **changes)
        assert kept([first, *rest, other])[0] == "pass"
        assert kept([*rest, other]) == ("fail", f"n0: {GPUS[0].lower()} has no record")

    def test_records_without_a_uuid_are_not_taken_for_those_of_one_gpu(self) -> None:
        first, second, third = records()
        nameless = [replace(each, gpu_uuid="", problems=("gpu_uuid is '0'",)) for each in (first, second)]
        _, reason = kept([*nameless, third])
        missing = "; ".join(f"{uuid.lower()} has no record" for uuid in GPUS[:2])
        assert reason == f"n0: a record: gpu_uuid is '0'; {missing}"

    def test_two_judgements_that_tell_no_start_are_told_apart_by_their_ends(self) -> None:
        one = records(started_at=None)
        again = [replace(each, ended_at=NOW + timedelta(seconds=9)) for each in one]
        assert kept([*one, *again])[0] == "pass"

    def test_an_action_must_follow_from_the_worst_result(self) -> None:
        assert kept(records(action=Action.ISOLATE), in_service=False)[0] == "fail"
        confirmed = records(result=Result.FAIL, action=Action.ADMIT, confirmed_by="ann")
        assert kept(confirmed)[0] == "fail", "an operator confirms warnings only"

    def test_one_confirmation_is_the_whole_nodes(self) -> None:
        first, *rest = records(result=Result.WARN)
        assert kept([replace(first, confirmed_by="ann"), *rest])[0] == "pass"

    def test_an_unreadable_record_hides_no_fault_behind_it(self) -> None:
        first, second, third = records()
        bad = replace(first, action=None, problems=("action is missing",))
        assert "action isolate" in kept([bad, replace(second, action=Action.ISOLATE), third])[1]

    def test_what_was_done_without_a_record_is_said(self) -> None:
        assert "was returned, but no record" in kept([])[1]
        assert "was kept out of service, but no record" in kept([], in_service=False)[1]

    @pytest.mark.parametrize(("faults", "more"), [(5, ""), (6, " and 1 more")])
    def test_of_many_faults_five_are_told(self, faults: int, more: str) -> None:
        first, *rest = records()
        bad = replace(first, problems=tuple(f"fault {number}" for number in range(faults)))
        _, reason = kept([bad, *rest])
        assert reason.count("fault ") == 5
        assert reason.endswith(f"fault 4{more}")


class TestDiagnosis:
    """DEV-03."""

    @pytest.mark.parametrize(
        ("record", "line"),
        [
            (landed(), Timeline((OUT,), ZERO_S + 10)),  # the node was not seen before
            (landed(error_s=float("nan")), timeline(OUT, at(4))),
            (landed(at_s=float("inf")), timeline(OUT, at(4))),
        ],
    )
    def test_nothing_is_judged_by_an_unknown_time_or_state(self, record: Landed, line: Timeline) -> None:
        judged = judge_diagnosis(record, line, job(), [ran(2, 3)], 10, 3, 0.5, 0)
        assert judged.outcome == "inconclusive"
        admitted = judge_admission(Standing.NONE, record, line, [], 3, 0.5, 0)
        assert admitted.outcome == "inconclusive"

    def test_an_r3_before_the_cordon_fails(self) -> None:
        late = at(4, cordoned=True, why=OURS)
        judged = judge_diagnosis(landed(), timeline(late, at(6)), job(), [ran(3.9, 5)], 10, 3, 0.5, 0)
        assert judged.outcome == "fail"

    def test_a_wrong_return_is_one_though_no_record_says_when_r3_started(self) -> None:
        judged = judge_diagnosis(landed(), timeline(OUT, at(4)), job(), [ran(None, 3, Result.FAIL)], 10, 3, 0.5, 0)
        assert judged.outcome == "fail"

    def test_one_confirmed_record_confirms_the_diagnosis(self) -> None:
        found = [record("n0", level=3, gpu_uuid=uuid, confirmed_by=by) for uuid, by in (("a", ""), ("b", "ann"))]
        assert [each.confirmed for each in diagnoses(found, "n0", 0)] == [True]


class TestAdmission:
    """DEV-01."""

    def test_an_r2_may_have_ended_later_by_the_error_of_its_clock(self) -> None:
        line, done = timeline(OUT, at(2)), [ran(1, 2.1, level=2)]
        assert judge_admission(Standing.NONE, landed(), line, done, 3, 0.5, 0.2).outcome == "pass"
        assert judge_admission(Standing.NONE, landed(), line, done, 3, 0.5, 0.05).outcome == "fail"

    def test_an_operator_cannot_confirm_a_failure(self) -> None:
        done = [ran(1, 2, Result.FAIL, level=2, confirmed=True)]
        assert judge_admission(Standing.FAIL, landed(), timeline(OUT, at(2)), done, 3, 0.5, 0).outcome == "fail"


class TestWeekly:
    """DEV-04."""

    def test_a_reason_names_ages_in_days(self) -> None:
        nodes = (Node("n0", ()), Node("n1", ()), Node("n2", ("team/train",)))
        passed = judge_weekly(nodes, [record("n0", 1), record("n1", 2)], NOW, 0)
        assert passed.reason == "2 idle nodes, the oldest r2 is 2.0 days old"
        assert passed.evidence["idle"] == {"n0": 1.0, "n1": 2.0}
        assert passed.evidence["busy"] == {"n2": ["team/train"]}
        old = judge_weekly(nodes, [record("n0", 1), record("n1", 8)], NOW, 0)
        assert old.reason == "n1's is 8.0 days old"

    @pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more")])
    def test_of_many_nodes_five_are_told(self, count: int, more: str) -> None:
        nodes = tuple(Node(f"n{number}", ()) for number in range(count))
        judged = judge_weekly(nodes, [record("elsewhere")], NOW, 0)
        assert judged.reason.count("has no record") == 5
        assert judged.reason.endswith(f"n4 has no record of r2{more}")

    def test_why_there_is_no_idle_node(self) -> None:
        assert "there is no GPU node" in judge_weekly((), [record()], NOW, 0).reason
        assert "every GPU node is busy" in judge_weekly((Node("n0", ("x",)),), [record()], NOW, 0).reason

    def test_records_that_name_no_node_are_none(self) -> None:
        judged = judge_weekly((Node("n0", ()),), [record("")], NOW, 0)
        assert (judged.outcome, "no record of r2 of any node" in judged.reason) == ("inconclusive", True)
