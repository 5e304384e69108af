"""How objects end: at once, after their grace, after their finalizers, with their owners and namespaces."""

from typing import Any

import pytest

from tests.lab.apiserver.conftest import MAPS, NODES, PODS, Served, pod

MERGE = "application/merge-patch+json"
JOBS = "apis/batch/v1/namespaces/default/jobs"


def running(served: Served, name: str = "p", **spec: Any) -> Any:
    """Make a pod that a kubelet would be running."""
    served.ok("POST", PODS, pod(name, nodeName="n", **spec))
    return served.ok("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Running"}}, media=MERGE)


def exists(served: Served, path: str) -> bool:
    return served.call("GET", path)[0] == 200


def test_deleting_a_node_answers_with_a_status(served: Served) -> None:
    served.make(NODES, "n")
    answer = served.ok("DELETE", f"{NODES}/n")
    assert (answer["kind"], answer["status"], answer["details"]["name"]) == ("Status", "Success", "n")
    assert not exists(served, f"{NODES}/n")


def test_deleting_a_running_pod_only_marks_it(served: Served) -> None:
    running(served)
    answer = served.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 5})
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 5
    assert answer["metadata"]["deletionTimestamp"]
    assert exists(served, f"{PODS}/p")
    served.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert not exists(served, f"{PODS}/p")


def test_the_grace_is_the_pods_own_unless_told(served: Served) -> None:
    running(served, terminationGracePeriodSeconds=7)
    assert served.ok("DELETE", f"{PODS}/p")["metadata"]["deletionGracePeriodSeconds"] == 7
    running(served, "q")
    answer = served.ok("DELETE", f"{PODS}/q", params={"gracePeriodSeconds": "3"})
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 3


def test_a_second_delete_shortens_the_grace_but_never_lengthens_it(served: Served) -> None:
    running(served)
    grace = [
        served.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": s})["metadata"]["deletionGracePeriodSeconds"]
        for s in (20, 60, 5)
    ]
    assert grace == [20, 20, 5]


def test_an_unscheduled_or_finished_pod_goes_at_once(served: Served) -> None:
    served.ok("POST", PODS, pod())
    assert served.ok("DELETE", f"{PODS}/p")["kind"] == "Pod"
    assert not exists(served, f"{PODS}/p")
    running(served)
    served.ok("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, media=MERGE)
    served.ok("DELETE", f"{PODS}/p")
    assert not exists(served, f"{PODS}/p")


def test_a_finalizer_keeps_an_object_until_it_is_removed(served: Served) -> None:
    served.make(MAPS, "a", metadata={"finalizers": ["a/b"]})
    served.ok("DELETE", f"{MAPS}/a")
    assert served.ok("GET", f"{MAPS}/a")["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["a/b", "c/d"]}}
    assert served.call("PATCH", f"{MAPS}/a", more, media=MERGE)[0] == 422
    served.ok("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, media=MERGE)
    assert not exists(served, f"{MAPS}/a")


def test_a_pods_finalizer_outlives_its_process(served: Served) -> None:
    running(served, "p")
    served.ok("PATCH", f"{PODS}/p", {"metadata": {"finalizers": ["a/b"]}}, media=MERGE)
    served.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert exists(served, f"{PODS}/p")
    served.ok("PATCH", f"{PODS}/p", {"metadata": {"finalizers": []}}, media=MERGE)
    assert not exists(served, f"{PODS}/p")


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_preconditions_are_respected(served: Served, field: str) -> None:
    meta = served.make(MAPS, "a")["metadata"]
    code, answer = served.call("DELETE", f"{MAPS}/a", {"preconditions": {field: "123"}})
    assert (code, answer["reason"]) == (409, "Conflict")
    served.ok("DELETE", f"{MAPS}/a", {"preconditions": {field: meta[field]}})
    assert not exists(served, f"{MAPS}/a")


def test_a_collection_is_deleted_by_selector(served: Served) -> None:
    for name, value in (("a", "1"), ("b", "2"), ("c", "1")):
        served.make(MAPS, name, metadata={"labels": {"x": value}})
    served.ok("DELETE", MAPS, params={"labelSelector": "x=1"})
    left = served.ok("GET", MAPS)["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]
    assert served.call("DELETE", "api/v1/configmaps")[0] == 405


def owned(served: Served, name: str, *owners: Any) -> None:
    references = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]}
        for o in owners
    ]
    served.make(MAPS, name, metadata={"ownerReferences": references})


def test_dependents_follow_their_last_owner(served: Served) -> None:
    first, second = served.make(MAPS, "first"), served.make(MAPS, "second")
    owned(served, "both", first, second)
    served.ok("DELETE", f"{MAPS}/first")
    assert len(served.ok("GET", f"{MAPS}/both")["metadata"]["ownerReferences"]) == 1
    served.ok("DELETE", f"{MAPS}/second")
    assert not exists(served, f"{MAPS}/both")


def test_orphaned_dependents_stay(served: Served) -> None:
    owned(served, "child", served.make(MAPS, "owner"))
    served.ok("DELETE", f"{MAPS}/owner", {"propagationPolicy": "Orphan"})
    assert "ownerReferences" not in served.ok("GET", f"{MAPS}/child")["metadata"]


def test_a_job_deleted_without_a_policy_orphans_its_pods(served: Served) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}}}
    job = served.make(JOBS, "j", spec=spec)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"]}
    served.ok("POST", PODS, pod() | {"metadata": {"name": "p", "ownerReferences": [reference]}})
    served.ok("DELETE", f"{JOBS}/j")
    assert exists(served, f"{PODS}/p")


def test_what_is_made_when_its_owner_has_ended_is_collected(served: Served) -> None:
    owner = served.make(MAPS, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    served.ok("POST", MAPS, {"metadata": {"name": "in-time", "ownerReferences": [reference]}})
    assert exists(served, f"{MAPS}/in-time")
    served.ok("DELETE", f"{MAPS}/owner")
    served.ok("POST", MAPS, {"metadata": {"name": "late", "ownerReferences": [reference]}})
    assert not exists(served, f"{MAPS}/late")


def test_a_foreground_deletion_waits_for_dependents(served: Served) -> None:
    owner = served.make(MAPS, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    running(served)
    served.ok("PATCH", f"{PODS}/p", {"metadata": {"ownerReferences": [reference]}}, media=MERGE)
    served.ok("DELETE", f"{MAPS}/owner", params={"propagationPolicy": "Foreground"})
    assert served.ok("GET", f"{MAPS}/owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert served.ok("GET", f"{PODS}/p")["metadata"]["deletionTimestamp"]
    served.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert not exists(served, f"{MAPS}/owner")


def test_an_unknown_policy_is_422(served: Served) -> None:
    served.make(MAPS, "a")
    assert served.call("DELETE", f"{MAPS}/a", {"propagationPolicy": "Maybe"})[0] == 422


def test_a_namespace_takes_what_is_in_it_along(served: Served) -> None:
    served.make("api/v1/namespaces", "x")
    served.make("api/v1/namespaces/x/configmaps", "a")
    served.ok("POST", "api/v1/namespaces/x/pods", pod(nodeName="n"))
    answer = served.ok("DELETE", "api/v1/namespaces/x")
    assert answer["status"]["phase"] == "Terminating"
    assert not exists(served, "api/v1/namespaces/x/configmaps/a")
    code, refused = served.call("POST", "api/v1/namespaces/x/configmaps", {"metadata": {"name": "b"}})
    assert code == 403
    assert "being terminated" in refused["message"]
    served.ok("DELETE", "api/v1/namespaces/x/pods/p", {"gracePeriodSeconds": 0})
    assert not exists(served, "api/v1/namespaces/x")


def test_an_empty_namespace_goes_at_once_and_system_ones_never(served: Served) -> None:
    served.make("api/v1/namespaces", "x")
    served.ok("DELETE", "api/v1/namespaces/x")
    assert not exists(served, "api/v1/namespaces/x")
    assert served.call("DELETE", "api/v1/namespaces/kube-system")[0] == 403
