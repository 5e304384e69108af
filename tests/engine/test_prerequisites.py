"""What a cluster lacks to be judged, as `chaos-gpu doctor` says it: what it is, what cannot be judged, what to do."""

import json
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.criteria.registry import components, criteria
from chaos_gpu.errors import ApiError, ApiUnavailable
from chaos_gpu.faults import prerequisites
from chaos_gpu.faults.dcgm_pods import Engine, engines_by_node
from chaos_gpu.faults.settings import Settings
from tests.engine.site import Json, Site

RECORD = {
    "node": "n0",
    "gpu_uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "level": "r2",
    "result": "pass",
    "action": "admit",
    "ended_at": "2026-11-29T10:00:00Z",
}
OBJECTS = json.dumps({"kubernetes": "/api/v1/configmaps?labelSelector=a", "items": "$.items[*].data.*"})
HTTP = json.dumps({"http": "http://ann:secret@127.0.0.1:9/records?token=abc"})


class Shown:
    """An API server that answers every list with the same, or not at all."""

    deadlines: Any

    def __init__(self, *found: Json, failure: Exception | None = None) -> None:
        self.found, self.failure, self.asked = found, failure, list[str]()

    def items(self, path: str, labels: str = "", fields: str = "") -> list[Json]:
        self.asked.append(labels)
        if self.failure:
            raise self.failure
        return list(self.found)


def records(declared: str, *found: Json, failure: Exception | None = None) -> prerequisites.Prerequisite:
    api: Any = Shown(*found, failure=failure)
    return prerequisites.records(api, Settings(records=declared))


def test_records_that_can_be_read_are_told_with_object_and_path() -> None:
    there = records(OBJECTS, {"data": {"1": json.dumps(RECORD)}})
    assert there.found == "objects of the cluster, /api/v1/configmaps?labelSelector=a, JSONPath $.items[*].data.*"
    assert (there.lacking, there.remedy) == ("", "")
    assert set(there.criteria) == {"DEV-01", "DEV-03", "DEV-04", "DEV-05"}


@pytest.mark.parametrize(
    ("declared", "failure", "why", "remedy"),
    [
        ("", None, "CHAOS_GPU_RECORDS does not say", "docs/records.md"),
        ("{", None, "no JSON", "docs/records.md"),
        (OBJECTS, None, "holds no record", "JSONPath"),
        (OBJECTS, ApiError("forbidden", 403), "cannot be read: forbidden", "has the Role"),
        (OBJECTS, ApiUnavailable("no answer"), "cannot be read: no answer", "has the Role"),
    ],
)
def test_records_that_cannot_be_read_are_told_with_a_remedy(
    declared: str, failure: Exception | None, why: str, remedy: str
) -> None:
    lacking = records(declared, failure=failure)
    assert why in lacking.lacking
    assert remedy in lacking.remedy


def test_an_address_that_does_not_answer_is_told_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise ApiUnavailable("connection refused")

    monkeypatch.setattr("chaos_gpu.faults.records._from_http", refused)
    lacking = records(HTTP)
    assert lacking.found == "HTTP, http://127.0.0.1:9/records, JSONPath $.items[*]"
    assert "connection refused" in lacking.lacking
    assert "answers from here" in lacking.remedy
    assert "secret" not in str(lacking)
    assert "abc" not in str(lacking)


def test_the_mark_of_an_r2_must_be_on_a_node() -> None:
    declared = Settings(admission=json.dumps({"key": "health/r2"}))
    node = {"metadata": {"annotations": {"health/r2": "Pass"}}}
    assert prerequisites.mark(declared, [{"metadata": {}}, node]).lacking == ""
    assert prerequisites.mark(declared, [{"metadata": {}}]).lacking == "no GPU node has it"
    assert "CHAOS_GPU_ADMISSION" in prerequisites.mark(Settings(), [node]).lacking
    assert "no JSON" in prerequisites.mark(Settings(admission="{"), [node]).lacking


def test_a_training_is_a_manifest_that_can_be_read(tmp_path: Path) -> None:
    assert "CHAOS_GPU_JOB" in prerequisites.training(Settings()).remedy
    assert prerequisites.training(Settings()).criteria[0] == "CKPT-01"
    unreadable = prerequisites.training(Settings(job=str(tmp_path / "none.yaml")))
    assert "cannot be read" in unreadable.lacking


def test_one_node_with_an_engine_that_takes_injections_is_enough() -> None:
    closed = Engine(True, "embedded on a", "turn it on")
    assert prerequisites.engine({"a": closed, "b": Engine()}).found == "takes injections on 1 of 2 GPU nodes"
    lacking = prerequisites.engine({"a": closed})
    assert (lacking.lacking, lacking.remedy, lacking.criteria) == ("embedded on a", "turn it on", ("DEV-08", "DEV-09"))


def test_the_engines_of_all_nodes_are_found_with_one_list_for_each_label() -> None:
    def pod(node: str, **labels: str) -> Json:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        meta = {"namespace": "gpu-operator", "name": "p", "labels": labels}
        return {"metadata": meta, "spec": {"nodeName": node, "containers": [{"image": "dcgm"}]}, "status": ready}

    class Selecting(Shown):
        def items(self, path: str, labels: str = "", fields: str = "") -> list[Json]:
            key = labels.partition(" ")[0]
            return [each for each in super().items(path, labels, fields) if key in each["metadata"]["labels"]]

    engine, exporter = {"app": "nvidia-dcgm"}, {"app.kubernetes.io/name": "dcgm-exporter"}
    api: Any = Selecting(pod("a", **engine), pod("b", **exporter), pod("elsewhere", **engine))
    found = engines_by_node(api, ["a", "b", "c"])
    assert len(api.asked) == 2
    assert found["a"] == Engine()
    assert (found["b"].there, "embedded" in found["b"].closed) == (True, True)
    assert (found["c"].there, bool(found["c"].closed)) == (False, True)


def test_what_a_criterion_needs_is_what_its_experiments_need() -> None:
    """The lab's components stand for it: an experiment that says nothing without one needs what it brings."""
    brings = {
        "detector": prerequisites.DETECTOR,
        "health-policy": prerequisites.RECORDS,
        "dcgm-engine": prerequisites.ENGINE,
        "dcgm-agent": prerequisites.WATCHER,
        "trainer": prerequisites.TRAINING,
    }
    for criterion in criteria():
        of_some = {brings[name] for each in criterion.experiments for name in components(each) if name in brings}
        needs = set(prerequisites.needs_of(criterion.id)) - {prerequisites.MARK}
        assert needs, criterion.id
        assert needs <= of_some, criterion.id


def test_the_doctor_tells_all_of_it(site: Site) -> None:
    code, text = site.cli("doctor", CHAOS_GPU_RECORDS="", CHAOS_GPU_ADMISSION="", CHAOS_GPU_JOB="")
    assert code == 2, text
    assert "detector     gpu-health-agent" in text
    assert "records      none: CHAOS_GPU_RECORDS does not say where" in text
    assert "without it not judged: DEV-01, DEV-03, DEV-04, DEV-05; nor what DEV-02 says of an Xid under a job" in text
    assert "DCGM         none: no standalone DCGM engine on node gpu-node-0" in text
    assert "dcgm.enabled=true" in text
    assert "training     none: no training is given" in text
    assert "DEV-02       can be judged" in text
    assert "DEV-08       cannot be judged: no standalone DCGM engine" in text
    assert "CKPT-01      cannot be judged: no training is given" in text
