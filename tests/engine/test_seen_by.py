"""A record is written so that the target's detectors can see it, and nobody is judged by what he cannot see or say."""

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.criteria.xid.record import Transport
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.detectors import KNOWN_DETECTORS, Detector, Profile, cannot_judge
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import Aim
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.faults.targets import Target
from chaos_gpu.faults.xid import XidArguments, xid_plan

TARGET = Target(node="n", node_uid="u", gpu={"index": "0"})
RAW = Profile(transport="kmsg", conditions=("Raw",), attribution=("raw",))
JOURNAL = Profile(transport="bracket", conditions=("Journal",), attribution=("journal",))


def detector(name: str, profile: Profile) -> Detector:
    return Detector(name=name, namespace="x", pod_labels={"app": name}, profile=profile)


def planned(transport: str, *there: Detector) -> Plan:
    wanted = XidArguments(fault="xid-48", code=48, transport=transport)
    return xid_plan(Settings(), GuardArguments(), "r", wanted, Aim(TARGET, list(there), {}))


raw, journal, raw_too = detector("raw", RAW), detector("journal", JOURNAL), detector("raw-too", RAW)
any_way = detector("any-way", Profile(transport="both", conditions=("Any",), attribution=("any",)))
idle = detector("idle", Profile(transport="bracket", conditions=("Idle",)))
cordons = detector("cordons", Profile(transport="kmsg", conditions=("Raw",), actions=("cordon",)))
PLANS = [
    ("", (), Transport.KMSG, ()),
    ("", (raw,), Transport.KMSG, ("Raw",)),
    ("", (raw, raw_too), Transport.KMSG, ("Raw",)),
    ("", (journal,), Transport.BRACKET, ("Journal",)),
    ("kmsg", (raw, journal), Transport.KMSG, ("Raw",)),
    ("bracket", (raw, journal), Transport.BRACKET, ("Journal",)),
    ("bracket", (raw,), Transport.BRACKET, ()),
    ("both", (raw, journal), Transport.BOTH, ("Raw", "Journal")),
    ("both", (raw,), Transport.BOTH, ("Raw",)),
    ("", (any_way,), Transport.KMSG, ("Any",)),
    ("", (any_way, raw), Transport.KMSG, ("Any", "Raw")),
    ("", (any_way, journal), Transport.BRACKET, ("Any", "Journal")),
    ("", (raw, idle), Transport.KMSG, ("Raw",)),
    ("", (idle, cordons), Transport.KMSG, ("Raw",)),
]


@pytest.mark.parametrize(("asked", "there", "transport", "conditions"), PLANS)
def test_the_transport_decides_who_is_judged(asked: str, there: Any, transport: Transport, conditions: Any) -> None:
    plan = planned(asked, *there)
    assert plan.facts["transport"] == transport
    assert plan.conditions == conditions
    assert all(each.profile.sees(transport) for each in plan.detectors)
    assert plan.consequence is not None
    assert set(plan.consequence.conditions) == {name for each in there for name in each.profile.conditions}
    assert plan.pod is not None
    spec = json.loads(plan.pod["metadata"]["annotations"]["chaos-gpu/spec"])
    ways = [record[3:4] for record in spec["records"]]
    assert ways == {"kmsg": ["N"], "bracket": ["["], "both": ["N", "["]}[transport]


def test_mixed_readers_must_be_chosen_between() -> None:
    with pytest.raises(UsageError, match="raw and journal do not read the same") as refused:
        planned("", raw, journal)
    assert "transport: kmsg or bracket, and the other is not judged; or both" in refused.value.remedy
    with pytest.raises(UsageError, match="raw and journal and any-way do not read the same"):
        planned("", raw, journal, any_way)
    tells = detector("tells", Profile(transport="kmsg", conditions=("Tells",)))
    with pytest.raises(UsageError, match="tells and idle do not read") as refused:
        planned("", tells, idle)
    assert "transport: kmsg or bracket, and" in refused.value.remedy


def test_a_detector_that_reads_no_kernel_log_sees_nothing() -> None:
    assert not any(Profile().sees(each) for each in Transport)


@pytest.mark.parametrize("transport", ["journal", "KMSG", " "])
def test_an_unknown_transport(transport: str) -> None:
    with pytest.raises(UsageError, match="no transport"):
        planned(transport, raw)


EXPECTED = {
    "syslog-health-monitor": {"DEV-02": True, "DEV-06": True, "DEV-07": True},
    "gpud": {"DEV-02": False, "DEV-06": False, "DEV-07": False},
    "node-problem-detector": {"DEV-02": True, "DEV-06": True, "DEV-07": True},
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_known_detectors_tell(name: str) -> None:
    there = [detector(name, KNOWN_DETECTORS[name])]
    said = {each: not cannot_judge(each, there, Action.CORDON) for each in EXPECTED[name]}
    assert said == EXPECTED[name]
    assert cannot_judge("DEV-06", there, Action.NONE) == "", "that it saw the record is shown by an Event"


@pytest.mark.parametrize("action", Action)
def test_more_detectors_never_judge_less(action: Action) -> None:
    profiles = [
        Profile(transport="kmsg", conditions=conditions, attribution=attribution)
        for conditions in ((), ("C",))
        for attribution in ((), ("a",))
    ]
    alone = [detector(str(number), each) for number, each in enumerate(profiles)]
    for criterion in ("DEV-02", "DEV-06", "DEV-07"):
        assert cannot_judge(criterion, [], action) == "no detector reads the kernel log there"
        for pair in combinations(alone, 2):
            able = [not cannot_judge(criterion, [each], action) for each in pair]
            assert not (any(able) and cannot_judge(criterion, pair, action))


# --- the site's own policy ------------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(1, 999), st.sampled_from(["cordon", "none"]), max_size=4), st.booleans())
def test_a_site_has_its_own_policy(own: dict[int, str], as_text: bool) -> None:
    value: Any = json.dumps(own) if as_text else own
    found, reference = Settings.read({"policy": value}), Settings.read({})
    for code in {*own, 48, 13}:
        assert found.action_for(code) == own.get(code, reference.action_for(code))


@pytest.mark.parametrize(
    "policy", ['{"48": "reboot"}', '{"x": "none"}', "{half", "[]", "3", {"48": ["none"]}, "${POLICY}"]
)
def test_a_policy_that_is_none_is_refused(policy: Any) -> None:
    with pytest.raises(UsageError, match="policy") as refused:
        Settings.read({"policy": policy})
    assert refused.value.remedy
