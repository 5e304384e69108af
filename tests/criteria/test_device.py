"""What the platform does about an Xid: each rule of DEV-02, DEV-06, DEV-07 with its boundary."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.device import (
    Landed,
    NodeState,
    Timeline,
    judge_cordon_target,
    judge_detection,
    judge_policy_action,
    judge_time_to_cordon,
)
from chaos_gpu.verdict import Judgement, Outcome
from tests.criteria.scenes import HEALTHY, OURS, SICK, UUID, ZERO_S, at, landed, timeline

CORDON = at(1, cordoned=True, why=OURS)
FOREIGN = '{"detector": "somebody", "record": "NVRM: Xid (PCI:0000:3b:00): 48, x cgpu-99999999"}'
Gaps = tuple[tuple[float, float], ...]


def target(line: Timeline, record: Landed | None = None, limit_s: float = 3, hold_s: float = 0.5) -> Judgement:
    return judge_cordon_target(record or landed(), line, limit_s, hold_s)


def detection(line: Timeline, record: Landed | None = None, conditions: Any = ("GpuXidError",)) -> Judgement:
    return judge_detection(record or landed(), line, conditions, 3)


def action(line: Timeline, expected: str, record: Landed | None = None) -> Judgement:
    return judge_policy_action(record or landed(), line, expected, 3)


def timing(line: Timeline, record: Landed | None = None, earlier_s: tuple[float, ...] = ()) -> Judgement:
    return judge_time_to_cordon(record or landed(), line, 3, earlier_s)


class TestTimeToCordon:
    """DEV-07."""

    def test_a_time_below_its_own_error_is_told_by_its_bound(self) -> None:
        judged = timing(timeline(at(0.104, cordoned=True, why=OURS), watch_delay_s=0.1), landed(error_s=0.011))
        assert "Xid 48 on n0: cordoned after at most 0.215 s, limit 3 s" in judged.reason
        assert (judged.evidence["seconds"], judged.evidence["error_s"]) == (0.104, 0.111)

    def test_a_fault_goes_by_its_name(self) -> None:
        judged = timing(timeline(at(1, cordoned=True, why=OURS)), landed(called="Xid 48 (no-pci)"))
        assert judged.reason.startswith("Xid 48 (no-pci) on n0: cordoned after 1.000 s")
        assert judged.evidence["record"]["called"] == "Xid 48 (no-pci)"

    @pytest.mark.parametrize(
        ("seen_s", "error_s", "delay_s", "outcome"),
        [
            (2.0, 0.0, 0.0, "pass"),
            (3.0, 0.0, 0.0, "pass"),
            (3.125, 0.0, 0.0, "fail"),
            (2.5, 0.25, 0.25, "pass"),
            (2.625, 0.25, 0.25, "inconclusive"),
            (3.5, 0.25, 0.25, "inconclusive"),
            (3.625, 0.25, 0.25, "fail"),
            (3.5, 0.25, 0.0, "fail"),
            (3.5, 0.0, 0.25, "fail"),
            (3.25, 0.5, 0.0, "inconclusive"),
            (3.25, 0.0, 0.5, "inconclusive"),
        ],
    )
    def test_the_measured_time_decides_unless_its_error_reaches_the_limit(
        self, seen_s: float, error_s: float, delay_s: float, outcome: str
    ) -> None:
        line = timeline(at(seen_s, cordoned=True, why=OURS), watch_delay_s=delay_s)
        judged = timing(line, landed(error_s=error_s))
        assert judged.outcome == outcome
        assert f"after {seen_s:.3f} s ± {error_s + delay_s:.3f} s, limit 3 s" in judged.reason
        assert judged.evidence["seconds"] == seen_s
        assert judged.evidence["error_s"] == error_s + delay_s
        assert ("within its own error" in judged.reason) == (outcome == "inconclusive")
        assert (judged.remedy == "") == (outcome == "pass")

    def test_it_says_worst_and_median_of_the_repetitions(self) -> None:
        judged = timing(timeline(at(2, cordoned=True, why=OURS)), earlier_s=(0.5, 2.5))
        assert judged.outcome == "pass"
        assert judged.reason.endswith("; worst 2.500 s, median 2.000 s of 3")
        assert judged.evidence["repetitions"] == {"seconds": [0.5, 2.5, 2], "worst_s": 2.5, "median_s": 2}

    def test_never_is_said_as_the_time_that_was_waited(self) -> None:
        assert "not cordoned within 2 × the limit of 3 s" in timing(timeline(until=6)).reason
        assert "not cordoned within 5.875 s, limit 3 s" in timing(timeline(until=5.875)).reason

    @pytest.mark.parametrize(
        ("until", "error_s", "outcome"),
        [(3.0, 0.0, "fail"), (2.875, 0.0, "inconclusive"), (3.25, 0.25, "fail"), (3.125, 0.25, "inconclusive")],
    )
    def test_never_needs_the_whole_limit_to_have_been_watched(self, until: float, error_s: float, outcome: str) -> None:
        assert timing(timeline(until=until), landed(error_s=error_s)).outcome == outcome
        assert timing(timeline(until=until, watch_delay_s=error_s)).outcome == outcome

    @pytest.mark.parametrize(
        ("gaps", "outcome"),
        [
            (((1, 2),), "inconclusive"),
            (((2.875, 4),), "inconclusive"),
            (((3, 4),), "fail"),
            (((-1, 0),), "fail"),
            (((-1, 0.125),), "inconclusive"),
        ],
    )
    def test_never_while_nobody_watched_is_not_never(self, gaps: Gaps, outcome: str) -> None:
        assert timing(timeline(gaps=gaps)).outcome == outcome

    @pytest.mark.parametrize(("gap", "error_s"), [((-0.25, -0.125), 0.25), ((3.125, 3.5), 0.25)])
    def test_the_error_widens_what_must_have_been_watched(self, gap: tuple[float, float], error_s: float) -> None:
        assert timing(timeline(gaps=(gap,)), landed(error_s=error_s)).outcome == "inconclusive"
        assert timing(timeline(gaps=(gap,)), landed(error_s=error_s / 4)).outcome == "fail"

    @pytest.mark.parametrize(
        ("gaps", "outcome"),
        [
            (((1, 3.5),), "inconclusive"),
            (((3.25, 3.5),), "fail"),
            (((3, 3.5),), "inconclusive"),
            (((4, 5),), "fail"),
            (((-2, -1),), "fail"),
        ],
    )
    def test_a_late_cordon_may_have_come_in_a_gap(self, gaps: Gaps, outcome: str) -> None:
        judged = timing(timeline(at(3.5, cordoned=True, why=OURS), gaps=gaps))
        assert judged.outcome == outcome
        assert ("while nobody watched" in judged.reason) == (outcome == "inconclusive")

    def test_a_gap_around_the_record_counts_if_the_record_may_have_come_in_it(self) -> None:
        line = timeline(at(4, cordoned=True, why=OURS), gaps=((-0.5, -0.125),))
        assert timing(line, landed(error_s=0.25)).outcome == "inconclusive"
        assert timing(line, landed(error_s=0.125)).outcome == "fail"

    def test_a_gap_does_not_matter_to_a_cordon_that_was_in_time(self) -> None:
        assert timing(timeline(at(2, cordoned=True, why=OURS), gaps=((0.5, 1.5),))).outcome == "pass"

    def test_what_was_seen_before_the_record_is_not_its_effect(self) -> None:
        line = timeline(at(-0.5, cordoned=True, why=OURS))
        assert timing(line, landed(error_s=0.25)).outcome == "inconclusive"
        assert timing(line, landed(error_s=0.5)).outcome == "pass"  # the record may have been that early

    def test_a_cordon_that_names_nothing_is_not_measured(self) -> None:
        for why in ("", FOREIGN):
            judged = timing(timeline(at(1, cordoned=True, why=why)))
            assert judged.outcome == "inconclusive"
            assert "nothing says that it was for this" in judged.reason

    def test_the_cordon_that_names_the_record_is_measured_not_an_earlier_one(self) -> None:
        line = timeline(at(0.5, cordoned=True, why="maintenance"), at(1), at(2, cordoned=True, why=OURS))
        assert timing(line).evidence["seconds"] == 2


class TestCordonTarget:
    """DEV-02, the node."""

    def test_pass_says_what_was_seen(self) -> None:
        judged = target(timeline(CORDON, at(4)))
        assert judged.outcome == "pass"
        assert judged.evidence["events"] == [
            {"what": "record", "node": "n0", "after_s": 0},
            {"what": "cordon", "node": "n0", "after_s": 1},
            {"what": "uncordon", "node": "n0", "after_s": 4},
        ]
        assert judged.evidence["named_by"] == "marker"
        assert judged.evidence["record"]["code"] == 48
        assert judged.evidence["watch"] == {"until_s": 10, "delay_s": 0, "gaps_s": []}

    @pytest.mark.parametrize(
        ("end_s", "delay_s", "outcome"),
        [
            (1.5, 0.0, "pass"),
            (1.375, 0.0, "fail"),
            (1.625, 0.125, "pass"),
            (1.5, 0.125, "inconclusive"),
            (1.375, 0.125, "inconclusive"),
            (1.25, 0.125, "fail"),
        ],
    )
    def test_it_must_hold(self, end_s: float, delay_s: float, outcome: str) -> None:
        judged = target(timeline(CORDON, at(end_s), watch_delay_s=delay_s))
        assert judged.outcome == outcome
        said = f"uncordoned {end_s - 1:.3f} s after the cordon, not held for 0.5 s"
        assert (said in judged.reason) == (outcome == "fail")

    @pytest.mark.parametrize(("until", "outcome"), [(1.5, "pass"), (1.375, "inconclusive")])
    def test_holding_must_have_been_watched(self, until: float, outcome: str) -> None:
        assert target(timeline(CORDON, until=until)).outcome == outcome

    @pytest.mark.parametrize(
        ("gaps", "outcome"),
        [(((1.25, 1.75),), "inconclusive"), (((1.5, 1.75),), "pass"), (((1.0, 1.125),), "inconclusive")],
    )
    def test_a_gap_may_hide_that_it_did_not_hold(self, gaps: Gaps, outcome: str) -> None:
        assert target(timeline(CORDON, at(3), gaps=gaps)).outcome == outcome

    def test_a_gap_may_hide_that_it_began_earlier(self) -> None:
        around = timeline(CORDON, at(1.25), gaps=((-0.5, -0.125),))
        assert target(around, landed(error_s=0.25)).outcome == "inconclusive"
        assert target(around, landed(error_s=0.125)).outcome == "fail"
        assert target(timeline(CORDON, at(1.25), gaps=((0.5, 1),))).outcome == "inconclusive"
        assert target(timeline(CORDON, at(1.25), gaps=((0.875, 1),))).outcome == "fail"

    def test_late_is_a_failure_and_so_is_late_and_short(self) -> None:
        late = at(3.5, cordoned=True, why=OURS)
        assert target(timeline(late)).outcome == "fail"
        assert target(timeline(late, until=3.5)).outcome == "fail"
        assert "uncordoned" in target(timeline(late, at(3.75))).reason

    def test_never(self) -> None:
        assert target(timeline()).outcome == "fail"
        assert target(timeline(gaps=((1, 2),))).outcome == "inconclusive"

    def test_the_wrong_node_fails_even_beside_the_right_one(self) -> None:
        wrong = at(1, "n1", cordoned=True, why=OURS)
        for line in (timeline(wrong), timeline(CORDON, wrong), timeline(at(-1, cordoned=True), wrong)):
            judged = target(line)
            assert judged.outcome == "fail"
            assert "n1 was cordoned because of it" in judged.reason
            assert judged.evidence["wrong_node"] == "n1"

    def test_the_wrong_node_may_come_as_early_as_the_record(self) -> None:
        wrong = at(-0.25, "n1", cordoned=True, why=OURS)
        assert target(timeline(wrong, CORDON), landed(error_s=0.25)).outcome == "fail"
        assert target(timeline(wrong, CORDON), landed(error_s=0.125)).outcome == "pass"

    def test_the_wrong_node_may_say_so_later(self) -> None:
        line = timeline(at(1, "n1", cordoned=True), at(2, "n1", cordoned=True, why=OURS))
        assert target(line).evidence["wrong_node"] == "n1"

    def test_another_nodes_cordon_is_noted_not_held_against_it(self) -> None:
        judged = target(timeline(CORDON, at(1, "n1", cordoned=True, why="maintenance")))
        assert judged.outcome == "pass"
        assert judged.evidence["cordoned_elsewhere"] == ["n1"]

    def test_another_nodes_same_address_proves_nothing(self) -> None:
        same = "Xid 48 on PCI 0000:3b:00"
        assert target(timeline(CORDON, at(1, "n1", cordoned=True, why=same))).outcome == "pass"
        assert target(timeline(CORDON, at(1, "n1", cordoned=True, why=f"{same} {UUID}"))).outcome == "fail"

    def test_another_nodes_earlier_cordon_is_not_ours(self) -> None:
        line = timeline(at(-1, "n1", cordoned=True, why=OURS), CORDON)
        assert target(line).outcome == "pass"
        assert target(line).evidence["cordoned_elsewhere"] == []

    def test_a_node_that_was_out_of_service_cannot_be_taken_out(self) -> None:
        judged = target(timeline(at(-1, cordoned=True), CORDON))
        assert judged.outcome == "inconclusive"
        assert "unschedulable before the record" in judged.reason

    def test_an_unknown_past_is_inconclusive(self) -> None:
        line = timeline(CORDON)
        assert target(replace(line, states=line.states[1:])).outcome == "inconclusive"

    def test_another_machine_of_that_name_is_not_the_target(self) -> None:
        assert target(timeline(at(1, uid="other", cordoned=True, why=OURS))).outcome == "fail"

    def test_cordoned_for_something_else(self) -> None:
        judged = target(timeline(at(1, cordoned=True, why=FOREIGN)))
        assert judged.outcome == "inconclusive"
        assert judged.evidence["attribution"] == FOREIGN

    def test_a_cordon_must_say_what_for(self) -> None:
        judged = target(timeline(at(1, cordoned=True)))
        assert judged.outcome == "fail"
        assert "names the record" in judged.reason
        assert target(timeline(at(1, cordoned=True), until=2)).outcome == "inconclusive"

    def test_it_may_say_so_later_or_in_a_condition(self) -> None:
        bare = at(1, cordoned=True)
        assert target(timeline(bare, at(2, cordoned=True, why=OURS))).evidence["seconds"] == 1
        assert target(timeline(bare, at(2, cordoned=True, sick=True))).outcome == "pass"

    @pytest.mark.parametrize("error_s", [float("nan"), float("inf"), -0.5])
    def test_impossible_errors_are_inconclusive(self, error_s: float) -> None:
        assert target(timeline(CORDON), landed(error_s=error_s)).outcome == "inconclusive"
        assert timing(timeline(CORDON), landed(error_s=error_s)).outcome == "inconclusive"


class TestDetection:
    """DEV-02, the record."""

    @pytest.mark.parametrize(("seen_s", "outcome"), [(1, "pass"), (3, "pass"), (3.125, "fail")])
    def test_a_condition_names_the_record_in_time(self, seen_s: float, outcome: str) -> None:
        judged = detection(timeline(at(seen_s, sick=True)))
        assert judged.outcome == outcome
        assert judged.evidence["named_by"] == "marker"
        assert judged.evidence["events"][-1] == {
            "what": "condition",
            "node": "n0",
            "after_s": seen_s,
            "condition": "GpuXidError",
            "status": "True",
            "reason": "Xid48",
        }

    @pytest.mark.parametrize(
        ("reason", "message", "why", "outcome", "by"),
        [
            ("Xid48", "on 0000:3b:00", "", "pass", "code and PCI address"),
            ("NvidiaXID48Error", f"gpu {UUID.lower()}", "", "pass", "code and GPU UUID"),
            ("X", "ErrorCode:48 PCI:0000:3B:00.0 x", "", "pass", "code and PCI address"),
            ("X", "NVRM: Xid (PCI:0000:3b:00): 48, pid=1", "", "pass", "code and PCI address"),
            ('{"48":true}', "00000000:3B:00.0", "", "pass", "code and PCI address"),
            ("X", "unhealthy", OURS, "pass", "marker"),
            ("Xid48", "on 0000:3c:00", "", "fail", ""),
            ("Xid48", "somewhere", "", "fail", ""),
            ("Xid148", "on 0000:3b:00", "", "fail", ""),
            ("Xid480", "on 0000:3b:00", "", "fail", ""),
            ("Xid79", "on 0000:48:00 and 0000:3b:00", "", "fail", ""),
            ("Xid48", "on 0001:3b:00", "", "fail", ""),
            ("Xid48", "on 0000:3b:00.1", "", "fail", ""),
            ("Xid48", "on 0000:3b:00 cgpu-99999999", "", "fail", ""),
            ("Xid48", "", "", "fail", ""),
        ],
    )
    def test_what_names_a_record(self, reason: str, message: str, why: str, outcome: str, by: str) -> None:
        told = {"GpuXidError": ("True", reason, message)}
        judged = detection(timeline(at(1, conditions=told, why=why)))
        assert judged.outcome == outcome
        assert judged.evidence.get("named_by", "") == by

    @pytest.mark.parametrize(
        ("profile", "status", "outcome"),
        [
            ("Accelerated", "True", "pass"),
            ("Accelerated", "False", "fail"),
            ("Accelerated", "Unknown", "fail"),
            ("Accelerated=False", "False", "pass"),
            ("Accelerated=False", "True", "fail"),
            ("Another", "True", "fail"),
        ],
    )
    def test_a_profile_says_which_status_is_unhealthy(self, profile: str, status: str, outcome: str) -> None:
        told = {"Accelerated": (status, *SICK["GpuXidError"][1:])}
        assert detection(timeline(at(1, conditions=told)), conditions=[profile]).outcome == outcome

    def test_a_long_message_is_searched_to_its_end_and_kept_in_part(self) -> None:
        told = {"GpuXidError": ("True", "x", "earlier; " * 1000 + SICK["GpuXidError"][2])}
        judged = detection(timeline(at(1, conditions=told)))
        assert judged.outcome == "pass"
        assert len(judged.evidence["told"]) == 4096

    def test_any_condition_of_the_profile_will_do(self) -> None:
        told = {"A": ("True", "x", "y"), **SICK}
        assert detection(timeline(at(1, conditions=told)), conditions=["A", "GpuXidError"]).outcome == "pass"

    def test_it_may_name_the_record_later(self) -> None:
        vague = at(1, conditions={"GpuXidError": ("True", "x", "y")})
        assert detection(timeline(vague, at(2, sick=True))).evidence["seconds"] == 2

    def test_nothing(self) -> None:
        assert detection(timeline()).outcome == "fail"
        assert detection(timeline(until=2)).outcome == "inconclusive"
        assert detection(timeline(gaps=((1, 2),))).outcome == "inconclusive"

    def test_the_wrong_nodes_condition_is_told(self) -> None:
        judged = detection(timeline(at(1, "n1", sick=True)))
        assert judged.outcome == "fail"
        assert judged.reason.endswith("; n1 has it instead")

    def test_a_condition_that_was_unhealthy_before_shows_nothing(self) -> None:
        vague = {"GpuXidError": ("True", "Xid48", "earlier")}
        assert detection(timeline(at(-1, conditions=vague))).outcome == "inconclusive"
        assert detection(timeline(at(-1, conditions=vague), at(1, sick=True))).outcome == "pass"

    def test_without_a_profile_there_is_nothing_to_look_for(self) -> None:
        assert detection(timeline(at(1, sick=True)), conditions=[]).outcome == "inconclusive"

    def test_an_unknown_past_is_inconclusive(self) -> None:
        line = timeline(at(1, sick=True))
        assert detection(replace(line, states=line.states[1:])).outcome == "inconclusive"

    def test_gap_before_a_late_condition(self) -> None:
        assert detection(timeline(at(4, sick=True), gaps=((1, 4),))).outcome == "inconclusive"


class TestPolicyAction:
    """DEV-06."""

    @pytest.mark.parametrize(("seen_s", "outcome"), [(3, "pass"), (3.125, "fail")])
    def test_cordon(self, seen_s: float, outcome: str) -> None:
        judged = action(timeline(at(seen_s, cordoned=True, why=OURS)), "cordon")
        assert judged.outcome == outcome
        assert judged.evidence["expected"] == "cordon"
        assert judged.evidence["limit_s"] == 3, "to be drawn"

    def test_cordon_expected_but_nothing_done_names_the_code(self) -> None:
        judged = action(timeline(), "cordon", landed(code=74))
        assert judged.outcome == "fail"
        assert judged.reason.startswith("Xid 74 on n0, policy cordon: not cordoned within 2 × the limit of 3 s")

    def test_cordon_by_nobody_known(self) -> None:
        assert action(timeline(at(1, cordoned=True)), "cordon").outcome == "inconclusive"
        assert action(timeline(at(-1, cordoned=True), CORDON), "cordon").outcome == "inconclusive"
        assert action(timeline(until=2), "cordon").outcome == "inconclusive"

    @pytest.mark.parametrize(
        ("until", "error_s", "outcome"),
        [(3.0, 0.0, "pass"), (2.875, 0.0, "inconclusive"), (3.25, 0.25, "pass"), (3.125, 0.25, "inconclusive")],
    )
    def test_none_must_have_been_watched_all_along(self, until: float, error_s: float, outcome: str) -> None:
        assert action(timeline(until=until), "none", landed(error_s=error_s)).outcome == outcome
        assert action(timeline(until=until, watch_delay_s=error_s), "none").outcome == outcome

    def test_none_but_cordoned(self) -> None:
        judged = action(timeline(CORDON), "none", landed(code=13))
        assert judged.outcome == "fail"
        assert "Xid 13 on n0, policy none: n0 was cordoned because of it after 1.000 s" in judged.reason
        assert action(timeline(CORDON, gaps=((0, 3),), until=1), "none").outcome == "fail"

    def test_none_but_another_node_was_cordoned_for_it(self) -> None:
        judged = action(timeline(at(1, "n1", cordoned=True, why=OURS)), "none")
        assert judged.outcome == "fail"
        assert judged.evidence["cordoned"] == "n1"

    def test_none_cannot_be_told_from_what_others_do(self) -> None:
        assert action(timeline(at(1, cordoned=True)), "none").outcome == "inconclusive"
        assert action(timeline(at(1, cordoned=True, why=FOREIGN)), "none").outcome == "inconclusive"
        assert action(timeline(at(-1, cordoned=True)), "none").outcome == "inconclusive"
        assert action(timeline(gaps=((1, 2),)), "none").outcome == "inconclusive"
        assert action(timeline(at(1, "n1", cordoned=True, why=FOREIGN)), "none").outcome == "pass"

    def test_an_unknown_past_is_inconclusive(self) -> None:
        line = timeline()
        assert action(replace(line, states=line.states[1:]), "none").outcome == "inconclusive"

    def test_other_expectations_are_an_error(self) -> None:
        with pytest.raises(ValueError, match="drain"):
            action(timeline(), "drain")


# Eighths of seconds are exact in floating point, so that moving a clock is exact too.
EIGHTHS = st.integers(-40, 80).map(lambda n: n / 8)
REASONS = st.sampled_from(["", OURS, FOREIGN, "maintenance"])
STATES = st.builds(
    lambda after_s, node, cordoned, sick, why: at(after_s, node, cordoned=cordoned, sick=sick, why=why),
    EIGHTHS,
    st.sampled_from(["n0", "n1"]),
    st.booleans(),
    st.booleans(),
    REASONS,
)
TIMELINES = st.builds(
    lambda states, until, gaps, delay: timeline(
        *sorted(states, key=lambda s: s.at_s),
        until=until,
        gaps=tuple(tuple(sorted(g)) for g in gaps),
        watch_delay_s=delay,
    ),
    st.lists(STATES, max_size=6),
    EIGHTHS,
    st.lists(st.tuples(EIGHTHS, EIGHTHS), max_size=2),
    st.sampled_from([0.0, 0.125, 0.5]),
)
RECORDS = st.builds(lambda error_s: landed(error_s=error_s), st.sampled_from([0.0, 0.125, 0.5]))


def every(record: Landed, line: Timeline) -> dict[str, Judgement]:
    return {
        "detection": detection(line, record),
        "target": target(line, record),
        "cordon": action(line, "cordon", record),
        "none": action(line, "none", record),
        "timing": timing(line, record),
    }


@given(RECORDS, TIMELINES)
def test_without_a_cordon_of_the_target_nothing_that_needs_one_passes(record: Landed, line: Timeline) -> None:
    states = tuple(s if s.node != "n0" else replace(s, schedulable=True) for s in line.states)
    judged = every(record, replace(line, states=states))
    assert {judged[name].outcome for name in ("target", "cordon", "timing")} <= {Outcome.FAIL, Outcome.INCONCLUSIVE}


@given(RECORDS, TIMELINES)
def test_without_anything_that_names_the_record_nothing_passes_but_none(record: Landed, line: Timeline) -> None:
    states = tuple(replace(s, attribution="", conditions=HEALTHY) for s in line.states)
    judged = every(record, replace(line, states=states))
    judged.pop("none")
    assert Outcome.PASS not in {judgement.outcome for judgement in judged.values()}


@given(RECORDS, TIMELINES, st.integers(-1000, 1000).map(lambda n: n / 4))
def test_clocks_may_start_anywhere(record: Landed, line: Timeline, by_s: float) -> None:
    moved = Timeline(
        tuple(replace(s, at_s=s.at_s + by_s) for s in line.states),
        line.until_s + by_s,
        tuple((a + by_s, b + by_s) for a, b in line.gaps),
        line.watch_delay_s,
    )
    assert every(replace(record, at_s=record.at_s + by_s), moved) == every(record, line)


@given(RECORDS, TIMELINES)
def test_knowing_less_never_turns_a_judgement_round(record: Landed, line: Timeline) -> None:
    known = every(record, line)
    blind = every(record, replace(line, gaps=(*line.gaps, (ZERO_S - 5, ZERO_S + 10))))
    for name, judgement in blind.items():
        assert judgement.outcome in {known[name].outcome, Outcome.INCONCLUSIVE}, name


@given(RECORDS, TIMELINES)
def test_cordon_and_none_never_pass_together(record: Landed, line: Timeline) -> None:
    judged = every(record, line)
    assert not judged["cordon"].outcome == judged["none"].outcome == Outcome.PASS


@given(RECORDS, TIMELINES)
def test_every_judgement_says_why_and_what_to_do(record: Landed, line: Timeline) -> None:
    for name, judgement in every(record, line).items():
        assert f"Xid {record.code} on n0" in judgement.reason, name
        assert (judgement.remedy == "") == (judgement.outcome == Outcome.PASS), name
        assert judgement.evidence["record"]["marker"] == record.marker
        assert " s" in judgement.reason or judgement.outcome != Outcome.PASS


def test_states_of_unknown_nodes_do_not_matter() -> None:
    stranger = NodeState(ZERO_S + 1, "n7", "u7", False, {}, "")
    assert target(timeline(CORDON, stranger)).outcome == "pass"
