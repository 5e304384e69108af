"""What `plan` says of a run's duration: never more than the least that it takes, never less than the most."""

import json
from typing import Any

import pytest

from chaos_gpu.criteria.registry import JUDGES
from chaos_gpu.faults.duration import _WAITS, Span, duration_of
from chaos_gpu.faults.plan import Consequence, Plan
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.targets import Target
from tests.engine.site import Site, activity, experiment, inject, over

Json = dict[str, Any]
SETTINGS = Settings.read(
    {"cordon_s": 60, "condition_s": 50, "uncordon_s": 300, "hold_s": 5, "start_s": 100, "echo_s": 90, "resume_s": 1800}
)
FORESEEN = Consequence(conditions=(), attribution=(), reaction_s=120, uncordon_s=300)
POD: Json = {"metadata": {"name": "p"}}


def plan(kind: str = "xid", consequence: Consequence | None = FORESEEN, jobs: int = 0, **facts: Any) -> Plan:
    target = Target(node="n", node_uid="u", gpu={"index": "0"})
    return Plan(
        **{"fault": "x", "kind": kind, "target": target, "detectors": (), "change": "", "undo": "", "deadline_s": 600},
        facts={"code": 48, "form": "process", **facts},
        consequence=consequence,
        pod=POD,
        objects=tuple({"kind": "Job"} for _ in range(jobs)),
    )


def probe(function: str, **arguments: Any) -> Json:
    module, _, func = function.rpartition(".")
    return activity("probe", "p", f"chaos_gpu.{module}", func, fault="x", **arguments)


XID = inject("x", code=48)
ERROR = activity("action", "x", "chaos_gpu.actions.dcgm", "inject_dcgm_error", fault="x", error="pcie-replay")
KILL = activity("action", "x", "chaos_gpu.actions.checkpoint", "kill_during_save", fault="x")
LANDS_S = 100 + 2 * 100
SEEN_S = 120 + 300
CASES = [
    ([XID, probe("probes.device.time_to_cordon")], plan(), Span(5, LANDS_S + 125 + SEEN_S, 2)),
    ([XID, probe("probes.device.node_kept")], plan(code=13), Span(60 + 60, LANDS_S + 65 + SEEN_S, 2)),
    ([XID, probe("probes.device.policy_followed")], plan(code=13), Span(60 + 60, LANDS_S + 65 + SEEN_S, 2)),
    ([XID, probe("probes.device.policy_followed")], plan(code=48), Span(0, LANDS_S + 120 + SEEN_S, 2)),
    ([XID, probe("probes.device.detectors_see")], plan(code=13), Span(120, LANDS_S + 100 + SEEN_S, 2)),
    ([XID, probe("actions.run.hold", seconds=200)], plan(code=13), Span(200, LANDS_S + 200 + SEEN_S, 2)),
    (
        [ERROR, probe("probes.dcgm.error_gone")],
        plan("dcgm", error="pcie-replay", field=202, value=10.0),
        Span(90, LANDS_S + 90 + 90 + 100 + 30 + SEEN_S, 3),
    ),
    ([KILL, probe("probes.job.resumes")], plan("kill", None, jobs=2), Span(0, 100 + 100 + 600 + 1830, 4)),
]


@pytest.mark.parametrize(("method", "planned", "span"), CASES)
def test_each_activity_counts_for_what_it_waits_for(method: list[Json], planned: Plan, span: Span) -> None:
    assert duration_of(method, {"x": planned}, SETTINGS) == span


def test_without_a_fault_nothing_is_waited_for() -> None:
    looks = activity("probe", "p", "chaos_gpu.probes.health", "idle_nodes_diagnosed")
    assert duration_of([looks], {}, SETTINGS) == Span(0, 0)


def test_every_judging_probe_is_known() -> None:
    looks_once = {"chaos_gpu.probes.health.idle_nodes_diagnosed"}
    assert set(JUDGES) - set(_WAITS) == looks_once
    assert all(least_s <= most_s for least_s, most_s, _ in (_WAITS[each]({}, None, SETTINGS) for each in _WAITS))


def test_a_run_takes_as_long_as_its_plan_says(site: Site) -> None:
    made = experiment(inject(), *over())
    file = site.place() / "experiment.json"
    file.write_text(json.dumps(made))
    code, text = site.cli("plan", str(file), "--json")
    assert code == 0, text
    told = json.loads(text)["duration"]
    assert (told["from_s"], told["pods"]) == (4, 2), "twice the limit, for the policy leaves the node alone"
    ended = site.run(made)
    assert ended.result.exit_code == 2, ended.text  # nothing judges
    assert told["from_s"] <= ended.result.seconds <= told["to_s"]
    code, text = site.cli("plan", str(file))
    assert f"at least 4 s and the starts of 2 pods; if all takes as long as it may, {told['to_s']:g} s" in text
