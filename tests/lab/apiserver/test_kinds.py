"""Kinds with rules of their own: definitions and what they define, events, audit lines, kubeconfig."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.lab.apiserver.audit import AuditLog
from chaos_gpu.lab.apiserver.server import write_kubeconfig
from chaos_gpu.lab.apiserver.tables import age
from tests.lab.apiserver.conftest import MAPS, NODES, PODS, Served, pod

CRDS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKLOADS = "apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads"
MERGE = "application/merge-patch+json"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def version(name: str, *, storage: bool = False) -> dict[str, Any]:
    columns = [
        {"name": "Queue", "type": "string", "jsonPath": ".spec.queueName"},
        {"name": "Admitted", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Admitted")].status'},
    ]
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "selectableFields": [{"jsonPath": ".spec.queueName"}],
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }


def define(served: Served, **spec: Any) -> Any:
    names = {"plural": "workloads", "kind": "Workload", "shortNames": ["wl"]}
    versions = [version("v1beta1", storage=True), version("v1beta2")]
    spec = {"group": "kueue.x-k8s.io", "scope": "Namespaced", "names": names, "versions": versions, **spec}
    return served.make(CRDS, "workloads.kueue.x-k8s.io", spec=spec)


def test_a_definition_is_served_at_once(served: Served) -> None:
    assert served.call("GET", WORKLOADS)[0] == 404
    made = define(served)
    assert {c["type"]: c["status"] for c in made["status"]["conditions"]}["Established"] == "True"
    served.make(WORKLOADS, "w", spec={"queueName": "q"})
    assert served.ok("GET", WORKLOADS)["kind"] == "WorkloadList"
    assert [r["name"] for r in served.ok("GET", "apis/kueue.x-k8s.io/v1beta1")["resources"]] == [
        "workloads",
        "workloads/status",
    ]


def test_versions_show_the_same_object(served: Served) -> None:
    define(served)
    served.make(WORKLOADS, "w", spec={"queueName": "q"})
    other = served.ok("GET", WORKLOADS.replace("v1beta1", "v1beta2") + "/w")
    assert (other["apiVersion"], other["spec"]) == ("kueue.x-k8s.io/v1beta2", {"queueName": "q"})
    listed = served.ok("GET", WORKLOADS.replace("v1beta1", "v1beta2"))["items"]
    assert [item["apiVersion"] for item in listed] == ["kueue.x-k8s.io/v1beta2"]


def test_columns_and_selectable_fields_of_a_definition(served: Served) -> None:
    define(served)
    served.make(WORKLOADS, "w", spec={"queueName": "q"})
    conditions = {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}
    served.ok("PATCH", f"{WORKLOADS}/w/status", conditions, media=MERGE)
    answer = served.ok("GET", WORKLOADS, headers=TABLE)
    assert [c["name"] for c in answer["columnDefinitions"]] == ["Name", "Queue", "Admitted"]
    assert answer["rows"][0]["cells"] == ["w", "q", "True"]
    assert len(served.ok("GET", WORKLOADS, params={"fieldSelector": "spec.queueName=q"})["items"]) == 1
    assert served.call("GET", WORKLOADS, params={"fieldSelector": "spec.other=q"})[0] == 400


def test_the_status_of_a_custom_object_is_apart(served: Served) -> None:
    define(served)
    made = served.make(WORKLOADS, "w", spec={"a": 1}, status={"x": 1})
    assert "status" not in made
    both = served.ok("PATCH", f"{WORKLOADS}/w/status", {"spec": {"a": 2}, "status": {"x": 1}}, media=MERGE)
    assert (both["spec"], both["status"]) == ({"a": 1}, {"x": 1})


def test_custom_objects_take_no_strategic_patch(served: Served) -> None:
    define(served)
    served.make(WORKLOADS, "w")
    code, _ = served.call("PATCH", f"{WORKLOADS}/w", {}, media="application/strategic-merge-patch+json")
    assert code == 415


def test_a_definition_takes_its_objects_along(served: Served) -> None:
    define(served)
    served.make(WORKLOADS, "w")
    served.make(WORKLOADS, "held", metadata={"finalizers": ["a/b"]})
    served.ok("DELETE", f"{CRDS}/workloads.kueue.x-k8s.io")
    assert served.call("GET", f"{WORKLOADS}/w")[0] == 404
    served.ok("PATCH", f"{WORKLOADS}/held", {"metadata": {"finalizers": None}}, media=MERGE)
    assert served.call("GET", WORKLOADS)[0] == 404
    assert served.call("GET", f"{CRDS}/workloads.kueue.x-k8s.io")[0] == 404


@pytest.mark.parametrize(
    "spec", [{"scope": "Both"}, {"group": "nodots"}, {"versions": [version("v1beta1")]}, {"versions": []}], ids=str
)
def test_invalid_definitions(served: Served, spec: dict[str, Any]) -> None:
    names = {"plural": "workloads", "kind": "Workload"}
    body = {
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Namespaced",
            "names": names,
            "versions": [version("v1", storage=True)],
            **spec,
        },
    }
    assert served.call("POST", CRDS, body)[0] == 422
    assert served.call("POST", CRDS, {"metadata": {"name": "x"}})[0] == 400


EVENTS = "api/v1/namespaces/default/events"
EVENTS_V1 = "apis/events.k8s.io/v1/namespaces/default/events"
EVENT = {
    "involvedObject": {"kind": "Node", "name": "n"},
    "reason": "XidError",
    "message": "Xid 79",
    "type": "Warning",
    "count": 2,
    "lastTimestamp": "2026-11-29T18:00:00Z",
    "source": {"component": "agent"},
}


def test_both_groups_show_the_same_events_each_in_its_shape(served: Served) -> None:
    served.make(EVENTS, "e", **EVENT)
    shown = served.ok("GET", f"{EVENTS_V1}/e")
    assert (shown["apiVersion"], shown["regarding"]["name"], shown["note"]) == ("events.k8s.io/v1", "n", "Xid 79")
    assert (shown["deprecatedLastTimestamp"], shown["deprecatedCount"]) == ("2026-11-29T18:00:00Z", 2)
    assert shown["deprecatedSource"] == {"component": "agent"}
    assert "involvedObject" not in shown
    (listed,) = served.ok("GET", EVENTS_V1)["items"]
    assert listed == shown


def test_an_event_made_in_the_newer_group_is_a_core_event_too(served: Served) -> None:
    body = {"regarding": {"kind": "Node", "name": "n"}, "note": "hello", "reportingController": "c", "reason": "R"}
    served.make(EVENTS_V1, "e", **body)
    shown = served.ok("GET", f"{EVENTS}/e")
    assert (shown["apiVersion"], shown["kind"], shown["message"]) == ("v1", "Event", "hello")
    assert (shown["involvedObject"]["name"], shown["reportingComponent"]) == ("n", "c")
    found = served.ok("GET", EVENTS, params={"fieldSelector": "involvedObject.name=n,reason=R"})["items"]
    assert len(found) == 1
    assert len(served.ok("GET", EVENTS_V1, params={"fieldSelector": "regarding.name=n"})["items"]) == 1
    assert served.ok("GET", EVENTS, params={"fieldSelector": "involvedObject.name=zz"})["items"] == []


def test_an_event_lives_in_its_objects_namespace_or_in_default(served: Served) -> None:
    elsewhere = "api/v1/namespaces/kube-system/events"
    code, _ = served.call("POST", elsewhere, {"metadata": {"name": "e"}, **EVENT})
    assert code == 422


def test_changes_lists_and_watches_are_audited_and_gets_are_not(served: Served) -> None:
    served.make(NODES, "n")
    served.ok("GET", f"{NODES}/n")
    served.ok("GET", NODES)
    served.call("PATCH", f"{NODES}/ghost", {}, media=MERGE)
    served.ok("PATCH", f"{NODES}/n", {"spec": {"unschedulable": True}}, media=MERGE, headers={"User-Agent": "me/1"})
    lines = [line for line in served.audit_lines() if line["resource"] == "nodes"]
    assert [(line["verb"], line["code"]) for line in lines] == [
        ("create", 201),
        ("list", 200),
        ("patch", 404),
        ("patch", 200),
    ]
    last = lines[-1]
    assert (last["user"], last["userAgent"], last["name"], last["namespace"]) == ("system:admin", "me/1", "n", "")
    assert last["resourceVersion"] == served.ok("GET", f"{NODES}/n")["metadata"]["resourceVersion"]
    assert last["at"].endswith("Z")
    assert len(last["at"]) == len("2026-11-29T18:17:00.123456Z")
    assert last["monotonic"] > lines[0]["monotonic"]


def test_refused_changes_are_audited_with_their_code(served: Served) -> None:
    served.call("POST", MAPS, {"metadata": {"name": "A"}})
    served.ok("POST", PODS, pod())
    served.ok("DELETE", f"{PODS}/p")
    found = [(line["resource"], line["verb"], line["code"]) for line in served.audit_lines()]
    assert found == [("configmaps", "create", 422), ("pods", "create", 201), ("pods", "delete", 200)]


def test_an_audit_log_without_a_file_is_silent() -> None:
    AuditLog(None).close()


def test_a_kubeconfig_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, "http://127.0.0.1:1/secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = json.loads(path.read_text())
    assert config["current-context"] == "lab"
    assert config["clusters"][0]["cluster"] == {"server": "http://127.0.0.1:1/secret"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (190, "3m10s"), (600, "10m"), (10800, "3h"), (172800, "2d")],
)
def test_ages_read_as_kubectl_writes_them(seconds: int, text: str) -> None:
    from datetime import UTC, datetime, timedelta

    now = datetime(2026, 11, 29, tzinfo=UTC)
    assert age((now - timedelta(seconds=seconds)).isoformat(), now) == text


@pytest.mark.parametrize("timestamp", [None, "", "yesterday", 5])
def test_an_unknown_age(timestamp: Any) -> None:
    assert age(timestamp) == "<unknown>"
