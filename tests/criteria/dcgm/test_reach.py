"""DEV-08 and DEV-09 judged on what DCGM, its exporter and the nodes show."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from chaos_gpu.criteria.dcgm import reach
from chaos_gpu.criteria.dcgm.injection import injection
from chaos_gpu.criteria.timeline import Landed, NodeState, Timeline
from chaos_gpu.verdict import Outcome

PASS, FAIL, UNSURE = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE
UUIDS = ["GPU-11111111-0000-4000-8000-000000000001", "GPU-11111111-0000-4000-8000-000000000002"]
DISCOVERY = {
    "rc": 0,
    "out": "2 GPUs found.\n| GPU ID | Device |\n"
    + "".join(f"| {n}      | Name: A |\n|        | Device UUID: {uuid} |\n" for n, uuid in enumerate(UUIDS)),
    "err": "",
}
DBE, INFOROM, REPLAYS = (injection(name, 0, "") for name in ("double-bit-ecc", "inforom", "pcie-replay"))


def said(document: Any, rc: int = 0) -> dict[str, Any]:
    return {"rc": rc, "out": document if isinstance(document, str) else json.dumps(document), "err": ""}


def health(*found: tuple[int, str, str]) -> dict[str, Any]:
    """A report of health: (GPU, system, grade)."""
    gpus = {
        str(gpu): {"children": {"Errors": {"children": {system: {"value": grade, "overflow": ["x"]}}}}, "value": grade}
        for gpu, system, grade in found
    }
    grades = [grade for _, _, grade in found]
    overall = "Failure" if "Failure" in grades else "Warning" if grades else "Healthy"
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    return said({"body": body | ({"GPU": {"children": gpus}} if gpus else {})})


def diag(*results: tuple[int, str, int], rc: int = 0, tests: tuple[str, ...] = ("software",)) -> dict[str, Any]:
    """A diagnosis: (GPU, status, severity of its error or 0)."""
    rows = [
        {
            "entity_group": "GPU",
            "entity_id": gpu,
            "status": status,
            **({"warnings": [{"warning": "w", "error_id": 1, "error_severity": severity}]} if severity else {}),
        }
        for gpu, status, severity in results
    ]
    tests_of = [{"name": name, "results": rows} for name in tests]
    return said({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests_of}]}}, rc)


WELL = health()["out"]
BOTH = ((0, "Pass", 0), (1, "Pass", 0))


@pytest.mark.parametrize(
    ("output", "level", "outcome", "why"),
    [
        (diag(*BOTH), 1, PASS, "r1 of 2 GPUs reads pass"),
        (diag((0, "Pass", 0), (1, "Fail", 1), rc=226), 1, PASS, "reads warn"),
        (diag((0, "Pass", 0), (1, "Fail", 1)), 1, PASS, "reads warn"),  # 3.x: a warning with exit status 0
        (diag((0, "Pass", 0), (1, "Fail", 2), rc=205), 1, PASS, "reads fail, action isolate"),
        (diag((0, "Pass", 0), (1, "Fail", 2)), 1, FAIL, "exit status 0"),
        (diag((0, "Pass", 0)), 1, FAIL, f"nothing about {UUIDS[1]}"),
        (diag(*BOTH), 2, UNSURE, "r2 was asked for, r1 was run"),
        (diag(*BOTH, tests=("software", "memory", "pcie")), 2, PASS, "r2 of 2 GPUs"),
        (said(diag(*BOTH)["out"][:-20]), 1, FAIL, "cut off"),
        (said("", 0), 1, FAIL, "no JSON"),
        (said("", 235), 1, UNSURE, "no engine reachable"),
        (said("Error: unable to establish a connection to the specified host: localhost", 235), 1, UNSURE, "no engine"),
        (said(diag(*BOTH)["out"][:-20], 226), 1, FAIL, "cut off"),
        (diag((0, "Pass", 0), (1, "Skip", 0)), 1, FAIL, f"nothing about {UUIDS[1]}"),  # named, and not tested
        (diag(*BOTH, rc=217), 1, UNSURE, "another diagnostic is running"),
        (said({"DCGM Diagnostic": {"runtime_error": "paused"}}, 202), 1, UNSURE, "could not run it: paused"),
        (said({"DCGM Diagnostic": {"test_categories": []}}), 1, UNSURE, "names no GPU|no test ran"),
    ],
)
def test_a_diagnosis(output: dict[str, Any], level: int, outcome: Outcome, why: str) -> None:
    discovery = DISCOVERY if "test_categories" not in output["out"] or '"results"' in output["out"] else said("")
    judged = reach.judge_diagnosis(output, discovery, UUIDS, level)
    assert judged.outcome is outcome, judged.reason
    assert any(part in judged.reason for part in why.split("|")), judged.reason


@pytest.mark.parametrize(
    ("output", "outcome", "why"),
    [
        (health((1, "Inforom", "Warning")), PASS, "says Warn"),
        (health((1, "Inforom", "Failure")), FAIL, "it is a Warn"),
        (health(), FAIL, "Healthy, naming no GPU"),
        (health((0, "Inforom", "Warning")), FAIL, "does not say Warn"),  # another GPU
        (health((1, "Memory system", "Warning")), FAIL, "does not say Warn"),  # another system
        (said("Error: Health watches not enabled.", 253), FAIL, "cannot be read"),
        (said(health((1, "Inforom", "Warning"))["out"][:-5]), FAIL, "cut off"),
    ],
)
def test_the_grade_of_a_warning(output: dict[str, Any], outcome: Outcome, why: str) -> None:
    judged = reach.judge_grade(output, DISCOVERY, INFOROM, UUIDS[1], WELL)
    assert judged.outcome is outcome, judged.reason
    assert why in judged.reason


def test_a_failure_is_called_one() -> None:
    assert reach.judge_grade(health((0, "Memory system", "Failure")), DISCOVERY, DBE, UUIDS[0], WELL).outcome is PASS
    assert reach.judge_grade(health((0, "Memory system", "Warning")), DISCOVERY, DBE, UUIDS[0], WELL).outcome is FAIL


def test_a_raw_field_has_no_grade() -> None:
    raw = injection("", 311, "1")
    failure = health((0, "Memory system", "Failure"))
    assert reach.judge_grade(failure, DISCOVERY, raw, UUIDS[0], WELL).outcome is UNSURE
    assert reach.judge_health_watch(health(), DISCOVERY, raw, UUIDS[0], WELL).outcome is UNSURE


@pytest.mark.parametrize(
    ("before", "judged_by_it"),
    [
        (health((0, "Memory system", "Warning")), False),  # the same system: whose is it?
        (health((0, "Memory system", "Failure")), False),
        (said(""), False),  # it is not known
        (said(health((0, "Memory system", "Warning"))["out"][:-9]), False),
        (health((0, "PCIe system", "Warning")), True),
        (health((1, "Memory system", "Failure")), True),
    ],
)
def test_what_health_had_before_is_not_taken_for_ours(before: dict[str, Any], judged_by_it: bool) -> None:
    now = health((0, "Memory system", "Failure"))
    for judge in (reach.judge_grade, reach.judge_health_watch):
        judged = judge(now, DISCOVERY, DBE, UUIDS[0], before["out"])
        assert judged.outcome is (PASS if judged_by_it else UNSURE), judged.reason


def test_no_gpu_is_no_diagnosis() -> None:
    judged = reach.judge_diagnosis(diag(*BOTH), DISCOVERY, [], 1)
    assert judged.outcome is UNSURE
    assert "lists no GPU" in judged.reason


@pytest.mark.parametrize(
    ("output", "outcome"),
    [
        (health((0, "Memory system", "Failure")), PASS),
        (health((0, "Memory system", "Warning")), PASS),  # seen: its grade is DEV-08's
        (health(), FAIL),
        (health((1, "Memory system", "Failure")), FAIL),
        (health((0, "Memory system", "Healthy")), FAIL),  # looked at, and nothing against it
        (said("Error: Health watches not enabled.", 253), UNSURE),
    ],
)
def test_what_health_sees(output: dict[str, Any], outcome: Outcome) -> None:
    assert reach.judge_health_watch(output, DISCOVERY, DBE, UUIDS[0], WELL).outcome is outcome


def page(**values: float) -> str:
    lines = [
        f'DCGM_FI_DEV_{name}{{gpu="{n}",UUID="{uuid}"}} {value if n == 0 else 0}'
        for name, value in values.items()
        for n, uuid in enumerate(UUIDS)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "sample", "uuid", "outcome"),
    [
        (page(ECC_DBE_VOL_TOTAL=1), DBE, UUIDS[0], PASS),
        (page(ECC_DBE_VOL_TOTAL=0), DBE, UUIDS[0], FAIL),
        (page(ECC_DBE_VOL_TOTAL=2), DBE, UUIDS[0], FAIL),  # not ours
        (page(ECC_DBE_VOL_TOTAL=1), DBE, UUIDS[1], FAIL),  # on another GPU
        (page(PCIE_REPLAY_COUNTER=100), REPLAYS, UUIDS[0], PASS),
        (page(PCIE_REPLAY_COUNTER=300), REPLAYS, UUIDS[0], PASS),  # it grows
        (page(PCIE_REPLAY_COUNTER=99), REPLAYS, UUIDS[0], FAIL),
        (page(GPU_TEMP=40), DBE, UUIDS[0], UNSURE),
        (page(ECC_DBE_VOL_TOTAL=1), DBE, "GPU-3", UNSURE),
        ("", DBE, UUIDS[0], UNSURE),
        ("# HELP x\nDCGM_FI_DEV_GPU_TEMP{", DBE, UUIDS[0], UNSURE),
        (page(GPU_TEMP=40), INFOROM, UUIDS[0], UNSURE),  # not exported at all
    ],
)
def test_what_the_exporter_shows(text: str, sample: Any, uuid: str, outcome: Outcome) -> None:
    judged = reach.judge_exported(text, sample, uuid, 0.0, sample.value)
    assert judged.outcome is outcome, judged.reason


@pytest.mark.parametrize(
    ("text", "sample", "prior", "injected", "outcome"),
    [
        (page(PCIE_REPLAY_COUNTER=1000), REPLAYS, 1000.0, 1100.0, FAIL),  # as it was: a frozen exporter
        (page(PCIE_REPLAY_COUNTER=1100), REPLAYS, 1000.0, 1100.0, PASS),
        (page(PCIE_REPLAY_COUNTER=1500), REPLAYS, 1000.0, 1100.0, PASS),
        (page(ECC_DBE_VOL_TOTAL=1), DBE, 1.0, 1.0, UNSURE),  # it was there before
        (page(ECC_DBE_VOL_TOTAL=1), DBE, 7.0, 1.0, PASS),
        (page(ECC_DBE_VOL_TOTAL=7), DBE, 7.0, 1.0, FAIL),
    ],
)
def test_the_exporter_must_show_what_was_not_there_before(
    text: str, sample: Any, prior: float, injected: float, outcome: Outcome
) -> None:
    judged = reach.judge_exported(text, sample, UUIDS[0], prior, injected)
    assert judged.outcome is outcome, judged.reason


LANDED = Landed(100.0, 0.01, 4, "0000:18:00", UUIDS[0], "n", "u", "cgpu-00000000", "text", 0)
NOTE = f'{{"code": 4, "gpu": "{UUIDS[0]}"}}'


def state(at_s: float, *, schedulable: bool = True, attribution: str = "") -> NodeState:
    return NodeState(at_s, "n", "u", schedulable, {}, attribution)


def seen(*states: NodeState, until_s: float = 110.0, gaps: tuple[tuple[float, float], ...] = ()) -> Timeline:
    return Timeline(states=states, until_s=until_s, gaps=gaps, watch_delay_s=0.01)


@pytest.mark.parametrize(
    ("timeline", "outcome", "why"),
    [
        (seen(state(99), state(101, schedulable=False, attribution=NOTE)), PASS, "cordoned after 1.000 s"),
        (seen(state(99), state(104, schedulable=False, attribution=NOTE)), FAIL, "limit 3 s"),
        (seen(state(99), state(103, schedulable=False, attribution=NOTE)), UNSURE, "limit 3 s"),
        (seen(state(99)), FAIL, "not cordoned within 3 s"),
        (seen(state(99), state(101, schedulable=False, attribution=NOTE), until_s=102.0), PASS, "after 1.000 s"),
        (seen(state(99), until_s=102.0), UNSURE, "not watched"),
        (seen(state(99), gaps=((101.0, 102.0),)), UNSURE, "not watched"),
        (seen(state(99), state(101, schedulable=False)), UNSURE, "nothing says"),
        (seen(state(99, schedulable=False)), UNSURE, "not known"),
        (seen(), UNSURE, "not known"),
    ],
)
def test_what_the_platform_does(timeline: Timeline, outcome: Outcome, why: str) -> None:
    judged = reach.judge_reaction(LANDED, timeline, DBE, 3.0)
    assert judged.outcome is outcome, judged.reason
    assert why in judged.reason


def test_a_warning_asks_for_no_cordon_and_of_a_raw_field_nobody_knows() -> None:
    for sample in (INFOROM, injection("", 311, "1")):
        assert reach.judge_reaction(LANDED, seen(state(99)), sample, 3.0).outcome is UNSURE


@pytest.mark.parametrize("record", [replace(LANDED, at_s=math.nan), replace(LANDED, error_s=math.inf)])
def test_an_unknown_time_measures_nothing(record: Landed) -> None:
    timeline = seen(state(99), state(101, schedulable=False, attribution=NOTE))
    assert reach.judge_reaction(record, timeline, DBE, 3.0).outcome is UNSURE


def test_one_instance_of_a_gpu_that_shows_an_error_is_enough() -> None:
    mig = page(ECC_DBE_VOL_TOTAL=0) + f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0",UUID="{UUIDS[0]}",GPU_I_ID="1"}} 1\n'
    assert reach.judge_exported(mig, DBE, UUIDS[0], 0.0, 1.0).outcome is PASS


def test_a_reason_says_who_tells_of_it_no_more() -> None:
    def told(output: dict[str, Any], sample: Any, watch_set: bool) -> str:
        put = reach.Put(0.0 if sample is DBE else 1.0, sample.value, WELL, watch_set)
        return reach.judge_restored(output, DISCOVERY, page(ECC_DBE_VOL_TOTAL=0), sample, UUIDS[0], put).reason

    assert told(health(), DBE, False) == f"health and exporter tell of {DBE} no more"
    assert told(health(), INFOROM, False) == f"health tells of {INFOROM} no more; this field is not exported"
    assert told(UNWATCHED, DBE, True) == f"the exporter tells of {DBE} no more; nobody else watches health there"


XID = injection("xid", 0, "")


@pytest.mark.parametrize(
    ("output", "text", "sample", "outcome", "why"),
    [
        (health(), page(ECC_DBE_VOL_TOTAL=0), DBE, PASS, "no more"),
        (health((1, "Memory system", "Failure")), page(ECC_DBE_VOL_TOTAL=0), DBE, PASS, "no more"),  # not our GPU
        (health((0, "Memory system", "Failure")), page(ECC_DBE_VOL_TOTAL=0), DBE, FAIL, "still says Fail"),
        (health((0, "PCIe system", "Warning")), page(ECC_DBE_VOL_TOTAL=0), DBE, FAIL, "still says Warn"),
        (health(), page(ECC_DBE_VOL_TOTAL=1), DBE, FAIL, "still shows 1"),
        (health(), "", DBE, UNSURE, "no exporter"),
        (health(), page(GPU_TEMP=40), DBE, UNSURE, "no series"),
        (health(), "", INFOROM, PASS, "not exported"),
        (said("Error: Health watches not enabled.", 253), page(ECC_DBE_VOL_TOTAL=0), DBE, UNSURE, "cannot be read"),
        (health((0, "Internal error", "Failure")), page(XID_ERRORS=0), XID, UNSURE, "engine restart needed"),
        (said("nothing", 235), "", DBE, UNSURE, "cannot be read"),
    ],
)
def test_what_is_left(output: dict[str, Any], text: str, sample: Any, outcome: Outcome, why: str) -> None:
    put = reach.Put(0.0, sample.value, WELL, watch_set=False)
    judged = reach.judge_restored(output, DISCOVERY, text, sample, UUIDS[0], put)
    assert judged.outcome is outcome, judged.reason
    assert why in judged.reason


@pytest.mark.parametrize(("shown", "outcome"), [(1000, PASS), (1003, PASS), (1100, FAIL), (1400, FAIL)])
def test_a_counter_that_stays_up_is_not_restored(shown: float, outcome: Outcome) -> None:
    put = reach.Put(1000.0, 1100.0, WELL, watch_set=False)
    judged = reach.judge_restored(health(), DISCOVERY, page(PCIE_REPLAY_COUNTER=shown), REPLAYS, UUIDS[0], put)
    assert judged.outcome is outcome, judged.reason


def test_one_series_of_many_that_stays_is_enough() -> None:
    mig = page(ECC_DBE_VOL_TOTAL=0) + f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="0",UUID="{UUIDS[0]}",GPU_I_ID="1"}} 1\n'
    put = reach.Put(0.0, 1.0, WELL, watch_set=False)
    assert reach.judge_restored(health(), DISCOVERY, mig, DBE, UUIDS[0], put).outcome is FAIL


def test_a_gpu_that_was_not_well_before_proves_nothing_by_not_being_well() -> None:
    thermal = health((0, "Thermal system", "Warning"))
    put = reach.Put(0.0, 1.0, thermal["out"], watch_set=False)
    judged = reach.judge_restored(thermal, DISCOVERY, page(ECC_DBE_VOL_TOTAL=0), DBE, UUIDS[0], put)
    assert judged.outcome is UNSURE, judged.reason


UNWATCHED = said("Error: Health watches not enabled.", 253)


@pytest.mark.parametrize(
    ("output", "text", "sample", "outcome"),
    [
        (UNWATCHED, page(ECC_DBE_VOL_TOTAL=0), DBE, PASS),
        (UNWATCHED, page(ECC_DBE_VOL_TOTAL=1), DBE, FAIL),
        (UNWATCHED, "", DBE, UNSURE),
        (UNWATCHED, "", INFOROM, UNSURE),  # nobody is left who could tell
        (said("nothing", 235), page(ECC_DBE_VOL_TOTAL=0), DBE, UNSURE),
        (health((0, "Memory system", "Failure")), page(ECC_DBE_VOL_TOTAL=0), DBE, FAIL),  # watched by somebody since
    ],
)
def test_where_the_watches_were_ours_the_exporter_tells(
    output: dict[str, Any], text: str, sample: Any, outcome: Outcome
) -> None:
    put = reach.Put(0.0 if sample is DBE else 1.0, sample.value, WELL, watch_set=True)
    judged = reach.judge_restored(output, DISCOVERY, text, sample, UUIDS[0], put)
    assert judged.outcome is outcome, judged.reason
