"""A probe that waits for what the policy does not call for could only judge wrongly: it is refused before anything."""

import json
from typing import Any

import pytest

from chaos_gpu.criteria.registry import JUDGES
from chaos_gpu.criteria.xid.policy import Action
from chaos_gpu.errors import UsageError
from chaos_gpu.faults.expected import TAKES_FOR_GRANTED, check_expected
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.targets import Target
from tests.engine.site import Site, activity, experiment, inject, over, unchanged

RECOVERED = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)"


def plan(code: int, kind: str = "xid", form: str = "process", text: str = "") -> Plan:
    facts = {"code": code, "form": form, "text": text}
    target = Target(node="n", node_uid="u", gpu={"index": "0"})
    return Plan(fault="x", kind=kind, target=target, detectors=(), change="", undo="", deadline_s=1, facts=facts)


def probe(function: str, fault: str = "x") -> dict[str, Any]:
    module, _, func = function.rpartition(".")
    return activity("probe", "judges", module, func, fault=fault)


def refusal(function: str, planned: Plan, policy: str = "") -> UsageError | None:
    try:
        check_expected([probe(function)], {"x": planned}, Settings.read({"policy": policy}))
    except UsageError as error:
        return error
    return None


CORDON, NONE = "chaos_gpu.probes.device.time_to_cordon", "chaos_gpu.probes.device.node_kept"
CASES = [
    (CORDON, plan(48), "", ""),
    (CORDON, plan(31), "", "on Xid 31 the policy has it left in service"),
    (CORDON, plan(94), "", "on Xid 94 the policy has it left in service"),
    (CORDON, plan(31), '{"31": "cordon"}', ""),
    (CORDON, plan(74), '{"74": "none"}', "on Xid 74 the policy has it left in service: the policy names Xid 74"),
    (CORDON, plan(154), "", ""),
    (CORDON, plan(154, text=RECOVERED), "", "on Xid 154 the policy has it left in service"),
    (CORDON, plan(31, kind="application-xid", form="driver"), "", "on Xid 31"),
    (CORDON, plan(0, kind="dcgm"), "", "judges an Xid, and fault 'x' is none"),
    (CORDON, plan(24007, form="sxid"), "", ""),
    (NONE, plan(13), "", ""),
    (NONE, plan(48), "", "on Xid 48 the policy has it cordoned"),
    (NONE, plan(13), '{"13": "cordon"}', "on Xid 13 the policy has it cordoned"),
    (NONE, plan(999), "", "on Xid 999 the policy has it cordoned: no action is published"),
]


@pytest.mark.parametrize(("function", "planned", "policy", "says"), CASES)
def test_a_probe_must_fit_the_policy(function: str, planned: Plan, policy: str, says: str) -> None:
    refused = refusal(function, planned, policy)
    assert bool(refused) == bool(says), refused
    if refused:
        assert says in refused.reason
        assert "judge it by" in refused.remedy


@pytest.mark.parametrize("function", sorted(TAKES_FOR_GRANTED))
@pytest.mark.parametrize(("code", "action"), [(48, Action.CORDON), (13, Action.NONE)])
def test_every_such_probe_is_held_against_it(function: str, code: int, action: Action) -> None:
    assert function in JUDGES
    assert bool(refusal(function, plan(code))) == (TAKES_FOR_GRANTED[function] not in (action, None))


@pytest.mark.parametrize("code", [31, 94])
def test_a_harmless_code_in_a_copied_experiment_is_refused_by_run_and_plan(site: Site, code: int) -> None:
    cordons = activity("probe", "cordons", "chaos_gpu.probes.device", "time_to_cordon", fault="mine")
    made = experiment(inject("mine", code=code), cordons, *over("mine"))
    with unchanged(site):
        ended = site.run(made)
        file = site.place() / "mine.json"
        file.write_text(json.dumps(made))
        planned, text = site.cli("plan", str(file))
    assert ended.result.exit_code == planned == 4, (ended.text, text)
    assert f"on Xid {code} the policy has it left in service" in ended.guard["refused"]["reason"]
    assert "node_kept or policy_followed" in ended.guard["refused"]["remedy"]
    assert "node_kept or policy_followed" in text
    assert ended.guard["verdicts"] == []
