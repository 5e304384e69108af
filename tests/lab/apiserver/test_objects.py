"""Objects made and changed over HTTP: names, revisions, conflicts, patches, subresources."""

from typing import Any

import pytest

from tests.lab.apiserver.conftest import MAPS, NODES, PODS, Served, pod

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
DEPLOYMENTS = "apis/apps/v1/namespaces/default/deployments"


def deployment(**spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"a": "d"}},
        "spec": {"containers": [{"name": "m", "image": "x"}, {"name": "side", "image": "y"}]},
    }
    selector = {"matchLabels": {"a": "d"}}
    return {"metadata": {"name": "d"}, "spec": {"selector": selector, "template": template, **spec}}


def test_a_new_object_is_given_identity_time_and_revision(served: Served) -> None:
    meta = served.make(MAPS, "a", data={"k": "v"})["metadata"]
    assert meta["uid"]
    assert meta["creationTimestamp"].endswith("Z")
    assert int(meta["resourceVersion"]) > 0
    assert meta["namespace"] == "default"


def test_a_generated_name_begins_as_asked_and_is_unique(served: Served) -> None:
    names = {served.ok("POST", MAPS, {"metadata": {"generateName": "run-"}})["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("run-") and len(name) == 9 for name in names)


def test_a_second_object_of_that_name_is_a_conflict(served: Served) -> None:
    served.make(MAPS, "a")
    code, answer = served.call("POST", MAPS, {"metadata": {"name": "a"}})
    assert (code, answer["reason"]) == (409, "AlreadyExists")
    assert answer["message"] == 'configmaps "a" already exists'


def test_a_missing_object_is_not_found(served: Served) -> None:
    code, answer = served.call("GET", f"{MAPS}/nope")
    assert (code, answer["reason"]) == (404, "NotFound")
    assert answer["details"] == {"name": "nope", "kind": "configmaps"}


def test_nothing_is_made_in_a_missing_namespace(served: Served) -> None:
    code, answer = served.call("POST", "api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (code, answer["message"]) == (404, 'namespaces "nowhere" not found')


def test_a_dry_run_answers_but_stores_nothing(served: Served) -> None:
    answer = served.ok("POST", MAPS, {"metadata": {"name": "a"}}, params={"dryRun": "All"})
    assert answer["metadata"]["uid"]
    assert served.call("GET", f"{MAPS}/a")[0] == 404
    served.make(MAPS, "b", data={"k": "1"})
    changed = served.ok("PATCH", f"{MAPS}/b", {"data": {"k": "2"}}, media=MERGE, params={"dryRun": "All"})
    assert changed["data"] == {"k": "2"}
    assert served.ok("GET", f"{MAPS}/b")["data"] == {"k": "1"}
    served.ok("DELETE", f"{MAPS}/b", {"dryRun": ["All"]})
    served.ok("GET", f"{MAPS}/b")


def test_an_unknown_dry_run_is_refused(served: Served) -> None:
    assert served.call("POST", MAPS, {"metadata": {"name": "a"}}, params={"dryRun": "yes"})[0] == 422


def test_a_stale_replace_is_a_conflict_and_changes_nothing(served: Served) -> None:
    old = served.make(MAPS, "a", data={"k": "1"})
    served.ok("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, media=MERGE)
    code, answer = served.call("PUT", f"{MAPS}/a", old | {"data": {"k": "3"}})
    assert (code, answer["reason"]) == (409, "Conflict")
    assert served.ok("GET", f"{MAPS}/a")["data"] == {"k": "2"}


def test_a_patch_may_carry_the_revision_it_was_made_for(served: Served) -> None:
    old = served.make(MAPS, "a")
    served.ok("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, media=MERGE)
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"k": "3"}}
    assert served.call("PATCH", f"{MAPS}/a", stale, media=MERGE)[0] == 409


def test_another_uid_is_a_conflict(served: Served) -> None:
    old = served.make(MAPS, "a")
    del old["metadata"]["resourceVersion"]
    old["metadata"]["uid"] = "another"
    assert served.call("PUT", f"{MAPS}/a", old)[0] == 409


def test_an_unchanged_write_keeps_the_revision(served: Served) -> None:
    old = served.make(MAPS, "a", data={"k": "1"})
    same = served.ok("PATCH", f"{MAPS}/a", {"data": {"k": "1"}}, media=MERGE)
    assert same["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]
    assert served.ok("PUT", f"{MAPS}/a", old)["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


def test_a_replace_of_a_missing_lease_makes_it_but_of_a_map_does_not(served: Served) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    path = "apis/coordination.k8s.io/v1/namespaces/default/leases/l"
    assert served.ok("PUT", path, lease)["spec"]["holderIdentity"] == "me"
    assert served.call("PUT", f"{MAPS}/l", {"metadata": {"name": "l"}})[0] == 404


def test_the_name_in_the_body_must_be_that_of_the_path(served: Served) -> None:
    served.make(MAPS, "a")
    assert served.call("PUT", f"{MAPS}/a", {"metadata": {"name": "b"}})[0] == 400
    assert served.call("POST", MAPS, {"metadata": {"name": "b", "namespace": "kube-system"}})[0] == 400


def test_a_copied_object_with_a_revision_is_not_created(served: Served) -> None:
    assert served.call("POST", MAPS, {"metadata": {"name": "a", "resourceVersion": "5"}})[0] == 500


def test_the_system_fields_of_an_object_cannot_be_written(served: Served) -> None:
    old = served.make(MAPS, "a")
    patch = {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}}
    new = served.ok("PATCH", f"{MAPS}/a", patch, media=MERGE)
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert "deletionTimestamp" not in new["metadata"]


def test_generation_counts_changes_of_the_spec_only(served: Served) -> None:
    path = f"{DEPLOYMENTS}/d"
    assert served.ok("POST", DEPLOYMENTS, deployment())["metadata"]["generation"] == 1
    labelled = served.ok("PATCH", path, {"metadata": {"labels": {"x": "y"}}}, media=MERGE)
    assert labelled["metadata"]["generation"] == 1
    status = served.ok("PATCH", f"{path}/status", {"status": {"replicas": 1}}, media=MERGE)
    assert status["metadata"]["generation"] == 1
    assert served.ok("PATCH", path, {"spec": {"replicas": 4}}, media=MERGE)["metadata"]["generation"] == 2


def test_a_failing_test_of_a_json_patch_is_422_and_changes_nothing(served: Served) -> None:
    served.make(MAPS, "a", data={"k": "1"})
    patch = [{"op": "test", "path": "/data/k", "value": "other"}, {"op": "replace", "path": "/data/k", "value": "2"}]
    code, answer = served.call("PATCH", f"{MAPS}/a", patch, media=JSON_PATCH)
    assert (code, answer["reason"]) == (422, "Invalid")
    assert served.ok("GET", f"{MAPS}/a")["data"] == {"k": "1"}
    patch[0]["value"] = "1"
    assert served.ok("PATCH", f"{MAPS}/a", patch, media=JSON_PATCH)["data"] == {"k": "2"}


def test_a_json_patch_reads_keys_with_slashes(served: Served) -> None:
    served.make(NODES, "n", metadata={"annotations": {"a/b": "1"}})
    patch = [
        {"op": "test", "path": "/metadata/annotations/a~1b", "value": "1"},
        {"op": "remove", "path": "/metadata/annotations/a~1b"},
    ]
    served.ok("PATCH", f"{NODES}/n", patch, media=JSON_PATCH)
    assert not served.ok("GET", f"{NODES}/n")["metadata"].get("annotations")


def test_a_strategic_patch_merges_containers_by_name(served: Served) -> None:
    served.ok("POST", DEPLOYMENTS, deployment())
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "m", "env": [{"name": "A", "value": "1"}]}]}}}}
    new = served.ok("PATCH", f"{DEPLOYMENTS}/d", patch, media=STRATEGIC)
    first, second = new["spec"]["template"]["spec"]["containers"]
    assert (first["image"], first["env"]) == ("x", [{"name": "A", "value": "1"}])
    assert second["name"] == "side"


def test_node_conditions_are_merged_by_type(served: Served) -> None:
    served.make(NODES, "n", status={"conditions": [{"type": "Ready", "status": "True"}]})
    patch = {"status": {"conditions": [{"type": "GpuXidError", "status": "True", "reason": "Xid48"}]}}
    served.ok("PATCH", f"{NODES}/n/status", patch, media=STRATEGIC)
    conditions = served.ok("GET", f"{NODES}/n")["status"]["conditions"]
    assert {c["type"] for c in conditions} == {"Ready", "GpuXidError"}


def test_an_unknown_kind_of_patch_is_415(served: Served) -> None:
    served.make(MAPS, "a")
    assert served.call("PATCH", f"{MAPS}/a", {"data": {}}, media="application/json")[0] == 415


def test_status_and_spec_are_written_apart(served: Served) -> None:
    served.ok("POST", PODS, pod())
    main = served.ok("PATCH", f"{PODS}/p", {"status": {"phase": "Failed"}}, media=MERGE)
    assert main["status"]["phase"] == "Pending"
    patch = {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}, "spec": {"nodeName": "n"}}
    status = served.ok("PATCH", f"{PODS}/p/status", patch, media=MERGE)
    assert status["status"]["phase"] == "Running"
    assert "nodeName" not in status["spec"]


def test_a_new_pod_has_no_status_of_its_makers(served: Served) -> None:
    made = served.ok("POST", PODS, pod() | {"status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"


def test_a_pod_is_given_a_token_volume_and_defaults(served: Served) -> None:
    spec = served.ok("POST", PODS, pod())["spec"]
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert spec["serviceAccountName"] == "default"


def test_a_pod_without_its_service_account_is_forbidden(served: Served) -> None:
    code, answer = served.call("POST", PODS, pod(serviceAccountName="ghost"))
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert 'serviceaccount "ghost" not found' in answer["message"]


def test_a_pod_gets_the_value_of_its_priority_class(served: Served) -> None:
    served.make("apis/scheduling.k8s.io/v1/priorityclasses", "urgent", value=1000)
    assert served.ok("POST", PODS, pod(priorityClassName="urgent"))["spec"]["priority"] == 1000
    assert served.call("POST", PODS, pod("q", priorityClassName="ghost"))[0] == 403


def test_a_pods_spec_is_fixed_but_for_images(served: Served) -> None:
    served.ok("POST", PODS, pod())
    image = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
    assert served.ok("PATCH", f"{PODS}/p", image, media=STRATEGIC)["spec"]["containers"][0]["image"] == "new"
    command = {"spec": {"containers": [{"name": "main", "command": ["x"]}]}}
    code, answer = served.call("PATCH", f"{PODS}/p", command, media=STRATEGIC)
    assert (code, answer["reason"]) == (422, "Invalid")


def test_a_deployments_selector_is_fixed(served: Served) -> None:
    served.ok("POST", DEPLOYMENTS, deployment())
    patch = {"spec": {"selector": {"matchLabels": {"a": "other"}}}}
    assert served.call("PATCH", f"{DEPLOYMENTS}/d", patch, media=MERGE)[0] == 422


def test_an_immutable_map_stays(served: Served) -> None:
    served.make(MAPS, "a", data={"k": "1"}, immutable=True)
    assert served.call("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, media=MERGE)[0] == 422
    served.ok("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"x": "y"}}}, media=MERGE)


def test_a_binding_schedules_a_pod_once(served: Served) -> None:
    served.ok("POST", PODS, pod())
    served.ok("POST", f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "n"}})
    assert served.ok("GET", f"{PODS}/p")["spec"]["nodeName"] == "n"
    assert served.call("POST", f"{PODS}/p/binding", {"target": {"kind": "Node", "name": "m"}})[0] == 409


def test_scale_reads_and_writes_replicas(served: Served) -> None:
    served.ok("POST", DEPLOYMENTS, deployment(replicas=2))
    assert served.ok("GET", f"{DEPLOYMENTS}/d/scale")["spec"] == {"replicas": 2}
    scale = served.ok("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 5}}, media=MERGE)
    assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 5)
    assert served.ok("GET", f"{DEPLOYMENTS}/d")["spec"]["replicas"] == 5
    served.ok("PUT", f"{DEPLOYMENTS}/d/scale", scale | {"spec": {"replicas": 1}})
    assert served.ok("GET", f"{DEPLOYMENTS}/d")["spec"]["replicas"] == 1


def test_a_secrets_text_is_stored_encoded(served: Served) -> None:
    made = served.make("api/v1/namespaces/default/secrets", "s", stringData={"k": "v"})
    assert made["data"] == {"k": "dg=="}
    assert "stringData" not in made


def test_a_job_selects_its_own_pods(served: Served) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "x"}]}}}
    job = served.make("apis/batch/v1/namespaces/default/jobs", "j", spec=spec)
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == "j"
    assert job["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_nulls_are_absent_fields(served: Served) -> None:
    made = served.ok("POST", PODS, pod(volumes=None, nodeSelector=None))
    assert "nodeSelector" not in made["spec"]
    assert made["spec"]["volumes"]


@pytest.mark.parametrize("path", ["", "/p"])
def test_a_wrong_kind_is_refused(served: Served, path: str) -> None:
    served.ok("POST", PODS, pod())
    body = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "p"}}
    assert served.call("PUT" if path else "POST", PODS + path, body)[0] == 400
