"""An error in DCGM by the real `chaos run`: refused where it must be, put back whatever becomes of the runner."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_gpu.errors import Refused, TargetError
from chaos_gpu.faults import dcgm_pods
from chaos_gpu.faults.dcgm import DcgmArguments, plan_dcgm
from chaos_gpu.faults.detectors import Watchers
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import Aim
from chaos_gpu.faults.settings import Settings
from chaos_gpu.faults.targets import Target
from chaos_gpu.lab.dcgm.dcgmi import answer
from chaos_gpu.lab.dcgm.engine import opened, state_file
from chaos_gpu.lab.dcgm.manifests import dcgm_objects
from chaos_gpu.probes import dcgm as probes
from tests.engine.site import Json, Nursery, Site, activity, experiment, over, unchanged
from tests.engine.test_refusals import check_refused
from tests.lab.conftest import running_lab

PARTS = [part for name in ("dcgm-engine", "dcgm-exporter", "dcgm-agent") for part in ("--only", name)]
NODE = "gpu-node-2"
HERE = {"CHAOS_GPU_NODE": NODE, "CHAOS_GPU_GPU": "5"}


@pytest.fixture(scope="module")
def open_lab(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lab with DCGM on its nodes, for the fixture `site`."""
    with installed(nursery, tmp_path_factory, PARTS) as made:
        yield made


@contextmanager
def installed(nursery: Nursery, places: pytest.TempPathFactory, parts: list[str]) -> Iterator[Site]:
    """Start a lab of some components, and install chaos_gpu in it."""
    with running_lab(places.mktemp("dcgm") / "lab", parts) as lab:
        made = Site(lab, nursery, places.mktemp("runs"))
        code, text = made.cli("install")
        assert code == 0, text
        yield made


def dcgm(fault: str = "bad", **arguments: Any) -> Json:
    return activity("action", fault, "chaos_gpu.actions.dcgm", "inject_dcgm_error", fault=fault, **arguments)


def engine_of(site: Site, node: str = NODE) -> Path:
    return site.lab.root / "nodes" / node / "dcgm"


def latest(site: Site, field: int, gpu: int = 5) -> float | None:
    with opened(engine_of(site)) as engine:
        return engine.latest(engine.gpus[gpu], field)


def until(what: Callable[[], bool], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "one of both"),
        ({"error": "inforom", "field": 84}, "one of both"),
        ({"error": "bit-rot"}, "no error 'bit-rot'"),
        ({"field": 397, "value": "1"}, "field 397"),
        ({"field": 311, "value": "abc"}, "not a number"),
        ({"field": 237, "value": "0"}, "outside of a table"),
        ({"field": 311, "value": 1}, "value: .*valid string"),
        ({"error": "xid"}, "engine restart needed"),
        ({"field": 230, "value": "31"}, "engine restart needed"),
        ({"error": "inforom", "fault": "Not A Label"}, "DNS label"),
    ],
)
def test_what_may_not_be_injected_changes_nothing(site: Site, arguments: Json, says: str) -> None:
    files = [state_file(engine_of(site, f"gpu-node-{n}")) for n in range(4)]
    until(lambda: all(file.exists() for file in files))  # the agent has set its watches
    states = [file.read_bytes() for file in files]
    with unchanged(site):
        ended = site.run(experiment(dcgm(**{"fault": "bad", **arguments}), *over(arguments.get("fault", "bad"))))
    check_refused(ended, says)
    assert [file.read_bytes() for file in files] == states


def test_an_embedded_engine_is_refused_and_nothing_is_changed(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with installed(nursery, tmp_path_factory, ["--only", "dcgm-exporter"]) as site:
        with unchanged(site):
            ended = site.run(experiment(dcgm(error="inforom"), *over("bad")))
        check_refused(ended, "embedded engine")
        assert "dcgm.enabled=true" in ended.guard["refused"]["remedy"]
        assert not [path for path in site.lab.root.glob("nodes/*/dcgm/state.json")]


def pods(*, engine: bool, change: Callable[[list[Json]], None] = lambda _: None) -> Any:
    """An API server that shows DCGM's pods of one node, as made by the operator."""
    found = []
    for obj in dcgm_objects(engine=engine, exporter=True, agent=False):
        if obj["kind"] == "DaemonSet":
            meta = {"namespace": "gpu-operator", "name": obj["metadata"]["name"], "labels": obj["metadata"]["labels"]}
            ready = {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
            found.append({"metadata": meta, "spec": obj["spec"]["template"]["spec"], "status": ready})
    found = json.loads(json.dumps(found))
    change(found)

    class Shown:
        def items(self, path: str, labels: str = "", fields: str = "") -> list[Json]:
            assert (path, labels, fields) == ("/api/v1/pods", "", "spec.nodeName=n")
            return found

    return Shown()


def distroless(found: list[Json]) -> None:
    found[0]["spec"]["containers"][0]["image"] = "registry/dcgm:4.6.0-distroless"


def starting(found: list[Json]) -> None:
    found[0]["status"]["conditions"][0]["status"] = "False"


def hidden(found: list[Json]) -> None:
    del found[:]


def on_host(found: list[Json]) -> None:
    env = found[0]["spec"]["containers"][0]["env"]
    env.append({"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": "localhost:5555"})


def test_a_standalone_engine_is_found() -> None:
    assert dcgm_pods.engine_on(pods(engine=True), "n") == dcgm_pods.Engine()
    assert dcgm_pods.engine_on(pods(engine=False, change=on_host), "n") == dcgm_pods.Engine()
    assert dcgm_pods.metrics_url(pods(engine=True), "n") == "http://10.0.0.7:9400/metrics"
    assert dcgm_pods.metrics_url(pods(engine=True, change=hidden), "n") == ""


@pytest.mark.parametrize(
    ("engine", "change", "says", "remedy"),
    [
        (False, lambda _: None, "embedded engine", "dcgm.enabled=true"),
        (True, distroless, "has no dcgmi", "image"),
        (True, starting, "not ready", "gpu-operator/nvidia-dcgm"),
    ],
)
def test_an_engine_that_takes_no_sample_is_refused(
    engine: bool, change: Callable[[list[Json]], None], says: str, remedy: str
) -> None:
    with pytest.raises(Refused, match=says) as refused:
        planned(pods(engine=engine, change=change))
    assert remedy in refused.value.remedy


def test_without_any_engine_nothing_can_be_judged_and_that_is_no_refusal() -> None:
    lacking = planned(pods(engine=False, change=hidden)).obstacles
    assert set(lacking) == {"DEV-08", "DEV-09"}
    assert all("no standalone DCGM engine on node n" in each.why for each in lacking.values())
    assert all("dcgm.enabled=true" in each.remedy for each in lacking.values())
    assert set(planned(pods(engine=True)).obstacles) == {"DEV-09"}  # no detector watches DCGM's health


def planned(api: Any) -> Plan:
    """Plan an injection on a node with these pods, of a cluster without detectors."""
    target = Target(node="n", node_uid="u", gpu={"index": "0"})
    planning: Any = SimpleNamespace(
        api=api, settings=Settings(), watchers=Watchers(), run="r1", aim=lambda _: Aim(target, [], {})
    )
    return plan_dcgm(planning, DcgmArguments(fault="bad", error="inforom"))


def asked(monkeypatch: pytest.MonkeyPatch, run: Any, times: int, **more: Any) -> list[Json]:
    """Ask a node's DCGM so often; return the pods that were made for it."""
    made: list[Json] = []
    monkeypatch.setattr(dcgm_pods, "start_pod", lambda _api, pod, _limit: made.append(pod))
    monkeypatch.setattr(dcgm_pods, "events_of", lambda *_: [{"event": "reverted", "said": {}, "page": "", "gpus": []}])
    for _ in range(times):
        dcgm_pods.ask(run, "bad-grade", "n", {"discovery": [], "diag": []}, **more)
    return made


def any_run(**facts: Any) -> Any:
    """A run of which little is known."""
    nothing = SimpleNamespace(delete=lambda _: None)
    known = {"id": "r1", "settings": Settings(start_s=120), "api": nothing, "check": lambda: None, "injections": {}}
    return SimpleNamespace(**{**known, **facts})


def test_each_reader_is_a_new_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [pod["metadata"]["name"] for pod in asked(monkeypatch, any_run(), 3)]
    assert len(set(names)) == 3
    assert all(name.startswith("chaos-gpu-r1-bad-grade-") for name in names)


def test_a_reader_ends_with_its_run_or_else_with_its_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    passive = asked(monkeypatch, any_run(), 1, limit_s=3600)[0]
    assert passive["spec"]["activeDeadlineSeconds"] <= 3600 + 300, "one diagnosis, not three"
    assert "env" not in passive["spec"]["containers"][0], "there is no ledger yet that could hold a key"
    active = asked(monkeypatch, any_run(injections={"bad": None}), 1)[0]
    source = active["spec"]["containers"][0]["env"][0]["valueFrom"]
    assert source == {"configMapKeyRef": {"name": "chaos-gpu-run-r1", "key": "go"}}
    assert active["metadata"]["labels"]["chaos-gpu/role"] == "reader"


@pytest.mark.parametrize(("level", "work", "allowed"), [(2, [], False), (2, ["a/b"], True), (1, ["a/b"], False)])
def test_a_diagnosis_runs_on_an_idle_node(
    monkeypatch: pytest.MonkeyPatch, level: int, work: list[str], allowed: bool
) -> None:
    diagnosed(monkeypatch, level, work, allowed)


def test_a_diagnosis_that_uses_the_gpus_is_not_run_beside_work_that_came_since(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetError, match=r"r2 uses every GPU of n, which runs a/b"):
        diagnosed(monkeypatch, 2, ["a/b"], allowed=False)


def diagnosed(monkeypatch: pytest.MonkeyPatch, level: int, work: list[str], allowed: bool) -> None:
    """Ask for a diagnosis of a node that runs some work."""
    plan = SimpleNamespace(target=SimpleNamespace(node="n"))
    said = {"diag": {"rc": 0, "out": ""}, "discovery": {"rc": 0, "out": ""}}
    run = any_run(
        guard=SimpleNamespace(allow_foreign_work=allowed),
        planned=lambda fault: plan,
        record=lambda *judged: judged,
        publish=lambda verdicts: {"verdicts": verdicts},
    )
    monkeypatch.setattr(probes, "armed_run", lambda _: run)
    monkeypatch.setattr(probes, "foreign_work", lambda *_: work)
    monkeypatch.setattr(probes, "ask", lambda *_, **__: dcgm_pods.Reading(said, "", []))
    assert len(probes.diagnosis_reads_right({}, "bad", level)["verdicts"]) == 1


def test_it_is_there_for_the_run_and_put_back(site: Site) -> None:
    ended = site.run(experiment(dcgm(error="row-remap-failure"), *over("bad")), **HERE)
    assert ended.result.exit_code == 2, ended.text  # it judges nothing
    out = ended.output_of("bad")["output"]
    assert (out["node"], out["field"], out["value"], out["prior"]) == (NODE, 395, 1, 0)
    assert ended.guard["recovery"]["open"] == []
    assert any("took it back" in text for text in ended.guard["recovery"]["restored"])
    assert latest(site, 395) == 0
    assert "Failure" not in answer(["health", "-g", "0", "-c"], engine_of(site)).out


def test_a_runner_that_is_killed_leaves_nothing_in_the_engine(site: Site) -> None:
    hold = activity("action", "hold", "chaos_gpu.actions.run", "hold", seconds=60)
    started = site.start(experiment(dcgm(error="inforom"), hold, *over("bad")), CHAOS_GPU_RUN="dies", **HERE)
    until(lambda: latest(site, 84) == 0)
    until(lambda: site.ledger("dies").get("fault.bad", {}).get("state") == "landed")
    started.process.kill()
    until(lambda: latest(site, 84) == 1)
    until(lambda: site.ledger("dies")["state"] == "closed")
