"""The health policy's decisions, and the controller against an API in memory with a clock of its own."""

import json
import urllib.request
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.lab.platform.health import Controller, Keeper, serve, stamp
from chaos_gpu.lab.platform.health_api import Refused
from chaos_gpu.lab.platform.health_manifests import SOURCE, health_objects, history, policy_source
from chaos_gpu.lab.platform.health_rules import (
    CONDITION,
    CORDONED_BY,
    DAY_S,
    DETECTOR,
    DUE_S,
    POLICY,
    R2_RESULT,
    Facts,
    Rules,
    Step,
    has_gpus,
    results_by_uuid,
)

Json = dict[str, Any]
BY_DETECTOR = json.dumps({"detector": DETECTOR, "code": 48})
BY_POLICY = json.dumps({"detector": POLICY, "why": "r2: none"})
BY_OTHERS = json.dumps({"detector": "somebody"})
UUIDS = ("GPU-00000000-1111-2222-3333-444444444440", "GPU-00000000-1111-2222-3333-444444444441")


def facts(**changes: Any) -> Facts:
    well = Facts("n0", True, "", "Pass", False, False, False, {}, 3 * DAY_S)
    return well._replace(**changes)


def out(note: str, **changes: Any) -> Facts:
    return facts(schedulable=False, note=note, **changes)


def judged(result: str) -> Json:
    return {"for": BY_DETECTOR, "result": result}


@pytest.mark.parametrize(
    ("node", "do"),
    [
        (facts(), None),
        (facts(r2="Warn"), "cordon"),
        (facts(r2="Warn", confirmed=True), None),
        (facts(r2="Fail"), "cordon"),
        (facts(r2="Fail", confirmed=True), "cordon"),
        (facts(r2=""), "cordon"),
        (facts(age_s=DUE_S), None),
        (facts(age_s=DUE_S + 1), "cordon"),
        (facts(age_s=None), "cordon"),
        (facts(age_s=DUE_S + 1, busy=True), None),
        (facts(schedulable=False), None),
        (out(BY_OTHERS, r2=""), None),
        (out(BY_POLICY, r2=""), "diagnose"),
        (out(BY_POLICY, r2="", busy=True), None),
        (out(BY_POLICY, r2="Fail"), None),
        (out(BY_POLICY, r2="Warn"), None),
        (out(BY_POLICY, r2="Warn", confirmed=True), "return"),
        (out(BY_POLICY), "return"),
        (out(BY_POLICY, age_s=DUE_S + 1), "diagnose"),
        (out(BY_DETECTOR), "diagnose"),
        (out(BY_DETECTOR, busy=True), None),
        (out(BY_DETECTOR, r3=judged("Pass")), "return"),
        (out(BY_DETECTOR, r3=judged("Pass"), sick=True), None),
        (out(BY_DETECTOR, r3=judged("Fail")), None),
        (out(BY_DETECTOR, r3=judged("Warn")), None),
        (out(BY_DETECTOR, r3=judged("Warn"), confirmed=True), "return"),
        (out(BY_DETECTOR, r3={"for": "another note", "result": "Pass"}), "diagnose"),
    ],
)
def test_what_is_next(node: Facts, do: str | None) -> None:
    step = Rules().next_step(node)
    assert (step.do if step else None) == do
    if step and step.do == "diagnose":
        assert step.level == (3 if node.note == BY_DETECTOR else 2)


@pytest.mark.parametrize(
    ("defect", "node", "do"),
    [
        ("admits-undiagnosed", facts(r2=""), None),
        ("admits-warn", facts(r2="Warn"), None),
        ("admits-failed", facts(r2="Fail"), None),
        ("returns-without-r3", out(BY_DETECTOR), "return"),
        ("returns-failed", out(BY_DETECTOR, r3=judged("Fail")), "return"),
        ("diagnoses-busy-node", out(BY_DETECTOR, busy=True), "diagnose"),
        ("skips-week", facts(age_s=8 * DAY_S), None),
        ("never-diagnoses", facts(age_s=None), None),
    ],
)
def test_each_defect_changes_one_answer(defect: str, node: Facts, do: str | None) -> None:
    planted = Rules(frozenset({f"policy-{defect}"})).next_step(node)
    assert (planted.do if planted else None) == do
    assert planted != Rules().next_step(node)


@given(
    st.builds(
        Facts,
        *[st.just("n")],
        st.booleans(),
        st.sampled_from(["", BY_DETECTOR, BY_POLICY, BY_OTHERS]),
        st.sampled_from(["", "Pass", "Warn", "Fail", "x"]),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.sampled_from([{}, judged("Pass"), judged("Fail")]),
        st.none() | st.floats(0, 9 * DAY_S),
    )
)
def test_no_node_returns_without_a_reason_to(node: Facts) -> None:
    step = Rules().next_step(node)
    if step and step.do == "return":
        assert node.note in (BY_DETECTOR, BY_POLICY)
        if node.note == BY_DETECTOR:
            assert node.r3["result"] == "Pass"
            assert not node.sick
        else:
            assert node.r2 == "Pass" or (node.r2 == "Warn" and node.confirmed)
    if step and step.do == "diagnose":
        assert not node.busy


class Cluster:
    """Nodes, pods and ConfigMaps in memory; what the controller may ask, answered as an API server would."""

    def __init__(self, *nodes: Json) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.pods: dict[str, Json] = {}
        self.maps: dict[str, Json] = {}
        self.work: list[Json] = []
        self.logs = {"discovery": discovery(), "diag": diagnosis()}

    def items(self, path: str, labels: str = "", fields: str = "") -> list[Json]:
        if path.endswith("/configmaps"):
            return list(self.maps.values())
        if path == "/api/v1/nodes":
            return list(self.nodes.values())
        return list(self.pods.values()) if "gpu-health" in path else self.work

    def request(self, method: str, path: str, body: Any = None, kind: str = "") -> Json:
        name = path.partition("?")[0].rstrip("/").rsplit("/", 1)[-1]
        if "/nodes/" in path:
            return self._node(self.nodes[name], body, kind)
        if "/configmaps" in path:
            return self._map(method, name, body)
        if method == "POST":
            body["status"] = {"phase": "Pending"}
            self.pods[body["metadata"]["name"]] = body
        elif method == "DELETE":
            del self.pods[name]
        else:
            return {"text": self.logs[path.rpartition("=")[2]]}
        return {}

    def _map(self, method: str, name: str, body: Json) -> Json:
        if method == "PATCH":
            if name not in self.maps:
                raise Refused(404, "")
            data = {**self.maps[name]["data"], **body["data"]}
            self.maps[name]["data"] = {key: text for key, text in data.items() if text is not None}
        else:
            self.maps[body["metadata"]["name"]] = body
        return {}

    def _node(self, node: Json, patch: Any, kind: str) -> Json:
        notes = node["metadata"]["annotations"]
        if "json-patch" not in kind:
            notes.update(patch["metadata"].get("annotations", {}))
            node["spec"].update(patch.get("spec", {}))
            return {}
        for change in patch:
            key = change["path"].rpartition("/")[2].replace("~1", "/")
            place = node["spec"] if key == "unschedulable" else notes
            if change["op"] == "test" and place.get(key) != change["value"]:
                raise Refused(422, "test")
            if change["op"] == "remove":
                del place[key]
        return {}

    def finish(self) -> None:
        """Let what runs come to its end."""
        for pod in self.pods.values():
            pod["status"] = {"phase": "Failed"}  # DCGM's exit status is not 0 for a warning either


class Site:
    """A controller in front of one node, at a time that the test says."""

    def __init__(self, *defects: str, **annotations: str) -> None:
        node = {"metadata": {"name": "n0", "resourceVersion": "1", "annotations": dict(annotations)}, "spec": {}}
        self.node, self.cluster, self.now_s = node, Cluster(node), 1e9
        self.cluster.maps["health-records-n0"] = history("n0", UUIDS, 3)
        self.keeper = Keeper(self.cluster)  # type: ignore[arg-type]
        self.keeper.load()
        rules = Rules(frozenset(f"policy-{defect}" for defect in defects))
        self.controller = Controller(self.cluster, self.keeper, lambda: rules, lambda: self.now_s)  # type: ignore[arg-type]

    def age(self, days: float) -> None:
        newest = self.keeper.newest_r2_s("n0")
        assert newest is not None
        self.now_s = newest + days * DAY_S

    @property
    def is_out(self) -> bool:
        return bool(self.node["spec"].get("unschedulable"))

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.controller.look()

    def records(self) -> list[Json]:
        return [json.loads(text) for text in self.cluster.maps["health-records-n0"]["data"].values()]


def discovery() -> str:
    rows = "".join(
        f"| {n:<6} | Name: NVIDIA H100 |\n|        | Device UUID: {uuid} |\n" for n, uuid in enumerate(UUIDS)
    )
    return "2 GPUs found.\n" + rows


def diagnosis(*severities: int, gpu: int = 0) -> str:
    errors = [{"warning": "x", "error_id": 1, "error_category": 1, "error_severity": each} for each in severities]
    result = {"entity_group": "GPU", "entity_id": gpu, "status": "Fail" if errors else "Pass", "warnings": errors}
    test = {"name": "pcie", "results": [result]}
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Integration", "tests": [test]}]}})


def test_a_week_goes_by() -> None:
    site = Site(**{R2_RESULT: "Pass"})
    site.age(5.9)
    site.look(3)
    assert not site.is_out
    site.age(6.1)
    site.look(2)
    assert site.is_out
    assert "weekly" in site.node["metadata"]["annotations"][CORDONED_BY]
    (pod,) = site.cluster.pods.values()
    assert pod["spec"]["containers"][0]["command"][-3:] == ["-r", "2", "-j"]
    site.cluster.finish()
    site.look(2)
    assert not site.is_out
    assert len(site.records()) == 4
    assert CORDONED_BY not in site.node["metadata"]["annotations"]


def test_a_busy_node_is_left_alone() -> None:
    site = Site(**{R2_RESULT: "Pass"})
    site.age(9)
    site.cluster.work = [{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}]
    site.look(2)
    assert not site.is_out


@pytest.mark.parametrize(
    ("severities", "action", "is_out"), [((), "return", False), ((1, 5), "hold", True), ((1, 2), "isolate", True)]
)
def test_an_xid_is_followed_by_r3_and_a_decision(severities: tuple[int, ...], action: str, is_out: bool) -> None:
    site = Site(**{R2_RESULT: "Pass", CORDONED_BY: BY_DETECTOR})
    site.age(1)
    site.node["spec"]["unschedulable"] = True
    site.node["status"] = {"conditions": [{"type": CONDITION, "status": "True"}]}
    site.cluster.logs["diag"] = diagnosis(*severities, gpu=1)
    site.look()
    site.cluster.finish()
    site.look(2)
    assert site.is_out  # whatever r3 says: the detector's condition is still raised
    site.node["status"]["conditions"][0]["status"] = "False"
    site.look()
    assert site.is_out == is_out
    fresh = [record for record in site.records() if record["level"] == "r3"]
    assert [record["action"] for record in fresh] == [action] * 2
    assert [record["gpu_uuid"] for record in fresh] == sorted(UUIDS)
    assert all(record["started_at"] == record["ended_at"] == stamp(site.now_s) for record in fresh)


def test_a_diagnosis_that_says_nothing_is_run_again() -> None:
    site = Site(**{R2_RESULT: "none"})
    site.age(1)
    site.cluster.logs["diag"] = "Error: unable to establish a connection"
    site.look(2)
    site.cluster.finish()
    site.look()
    assert site.cluster.pods == {}
    assert len(site.records()) == 2
    site.look()
    assert len(site.cluster.pods) == 1


def test_somebody_elses_cordon_is_not_undone() -> None:
    site = Site(**{R2_RESULT: "Pass", CORDONED_BY: BY_OTHERS})
    site.age(1)
    site.node["spec"]["unschedulable"] = True
    site.look(3)
    assert site.is_out
    assert site.cluster.pods == {}


def test_only_the_newest_records_are_kept() -> None:
    site = Site()
    for _ in range(300):
        site.keeper.add("n0", [{"node": "n0", "level": "r2", "ended_at": stamp(1e9)}])
    assert len(site.records()) == 256
    assert len(site.keeper.everything()) == 256


@pytest.mark.parametrize("pods", [["Running"], ["Pending"], ["Succeeded"], ["Failed"]])
def test_a_pod_that_is_over_has_no_gpus(pods: list[str]) -> None:
    container = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    assert has_gpus({"status": {"phase": pods[0]}, "spec": {"containers": [container]}}) == (pods[0][0] in "RP")
    assert not has_gpus({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "0", "cpu": "1"}}}]}})


def test_what_a_diagnosis_does_not_say_is_no_pass() -> None:
    assert results_by_uuid(discovery(), "noise\n" + diagnosis(2)) == {UUIDS[0]: "Fail", UUIDS[1]: "Pass"}
    for output, diag in (("", diagnosis()), (discovery(), ""), (discovery(), '{"DCGM Diagnostic": {}}')):
        with pytest.raises((ValueError, LookupError)):
            results_by_uuid(output, diag)


def test_records_are_served_on_http() -> None:
    site = Site()
    server = serve(site.keeper, "127.0.0.1:0")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/records", timeout=5) as answer:
            assert json.load(answer)["items"] == site.records()
    finally:
        server.shutdown()
        server.server_close()


def test_the_controller_is_one_file_with_few_rights() -> None:
    source = policy_source()
    assert "from chaos_gpu" not in source
    compile(source, "health.py", "exec")
    roles = [each for each in health_objects() if each["kind"] in ("ClusterRole", "Role")]
    cluster = [rule for rule in roles[0]["rules"] if rule["resources"] != ["pods"]]
    assert [rule["resources"] for rule in cluster] == [["nodes"]]
    assert SOURCE["items"] == "$.items[*].data.*"


def test_a_step_says_why() -> None:
    assert Rules().next_step(facts(r2="Fail")) == Step("cordon", 2, "r2: Fail")
