"""The Python client's typed, custom, dynamic and stream APIs against the lab."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client, dynamic, stream, watch

from tests.lab.battery.conftest import GROUP, PLURAL, UPSTREAM_WARNINGS, VERSION, pod_body, training
from tests.lab.conftest import Lab

pytestmark = UPSTREAM_WARNINGS


def refused(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[int, str]:
    """Return code and reason with which a call is refused."""
    with pytest.raises(client.ApiException) as error:
        call(*arguments, **options)
    return error.value.status, json.loads(error.value.body)["reason"]


def names(listed: Any) -> list[str]:
    return [item.metadata.name for item in listed.items]


def inert(name: str, **spec: Any) -> Any:
    """Return a pod that no scheduler takes."""
    labels = spec.pop("labels", {"app": "other"})
    return pod_body(name, labels=labels, schedulerName="none", **spec)


def test_version(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")


def test_nodes_and_namespaces_are_listed(core: client.CoreV1Api, ns: str) -> None:
    assert {f"gpu-node-{n}" for n in range(4)} <= set(names(core.list_node()))
    assert {"default", "kube-system", ns} <= set(names(core.list_namespace()))


def test_a_pod_is_made_once_and_found(core: client.CoreV1Api, ns: str) -> None:
    made = core.create_namespaced_pod(ns, inert("p"))
    assert made.metadata.uid
    assert refused(core.create_namespaced_pod, ns, inert("p")) == (409, "AlreadyExists")
    meta = core.read_namespaced_pod("p", ns).metadata
    assert (meta.uid, meta.resource_version) == (made.metadata.uid, made.metadata.resource_version)
    assert meta.creation_timestamp
    assert refused(core.read_namespaced_pod, "nope", ns) == (404, "NotFound")


def test_a_pod_becomes_running(core: client.CoreV1Api, ns: str, trainer: str) -> None:
    status = core.read_namespaced_pod(trainer, ns).status
    assert status.phase == "Running"
    assert status.container_statuses[0].state.running


@pytest.mark.parametrize(
    ("selectors", "found"),
    [
        ({"label_selector": "app=other"}, ["b"]),
        ({"label_selector": "app in (other,x),!foo"}, ["b"]),
        ({"field_selector": "spec.nodeName=elsewhere"}, ["b"]),
        ({"field_selector": "status.phase!=Pending"}, []),
        ({"label_selector": "app", "field_selector": "metadata.name=a"}, ["a"]),
    ],
)
def test_selectors(core: client.CoreV1Api, ns: str, selectors: dict[str, str], found: list[str]) -> None:
    core.create_namespaced_pod(ns, inert("a", labels={"app": "one"}))
    core.create_namespaced_pod(ns, inert("b", nodeName="elsewhere"))
    assert names(core.list_namespaced_pod(ns, **selectors)) == found


def test_a_node_is_found_by_name(core: client.CoreV1Api) -> None:
    assert names(core.list_node(field_selector="metadata.name=gpu-node-1")) == ["gpu-node-1"]


def test_lists_come_in_pages(core: client.CoreV1Api) -> None:
    first = core.list_node(limit=2)
    assert len(first.items) == 2
    second = core.list_node(limit=2, _continue=first.metadata._continue)
    assert not set(names(first)) & set(names(second))


def deployment(**spec: Any) -> Any:
    template = {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "m", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "d"}}, "template": template, **spec}
    return {"metadata": {"name": "d"}, "spec": spec}


def test_a_dict_patches_strategically(api: client.ApiClient, ns: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(ns, deployment())
    container = {"name": "m", "env": [{"name": "A", "value": "1"}]}
    patched = apps.patch_namespaced_deployment("d", ns, {"spec": {"template": {"spec": {"containers": [container]}}}})
    (merged,) = patched.spec.template.spec.containers
    assert (merged.image, merged.env[0].name) == ("x", "A")


def test_a_list_is_a_json_patch(core: client.CoreV1Api, node: str) -> None:
    patched = core.patch_node(node, [{"op": "add", "path": "/metadata/labels/jp", "value": "1"}])
    assert patched.metadata.labels["jp"] == "1"
    assert refused(core.patch_node, node, [{"op": "test", "path": "/metadata/labels/jp", "value": "2"}])[0] == 422


def test_none_deletes_a_label(core: client.CoreV1Api, node: str) -> None:
    assert not core.patch_node(node, {"metadata": {"labels": {"spare": None}}}).metadata.labels


def test_a_nodes_conditions_are_merged(core: client.CoreV1Api, node: str) -> None:
    for kind in ("Ready", "GpuXid"):
        core.patch_node_status(node, {"status": {"conditions": [{"type": kind, "status": "True"}]}})
    assert {c.type for c in core.read_node(node).status.conditions} == {"Ready", "GpuXid"}


def test_the_main_resource_does_not_write_status(core: client.CoreV1Api, ns: str) -> None:
    core.create_namespaced_pod(ns, inert("p"))
    assert core.patch_namespaced_pod("p", ns, {"status": {"phase": "Failed"}}).status.phase == "Pending"


def test_a_replace_needs_the_latest_revision(core: client.CoreV1Api, ns: str) -> None:
    """Of an object that nobody else writes: a node has controllers that do."""
    read = core.create_namespaced_config_map(ns, {"metadata": {"name": "r"}})
    read.data = {"put": "1"}
    assert core.replace_namespaced_config_map("r", ns, read).data == {"put": "1"}
    assert refused(core.replace_namespaced_config_map, "r", ns, read) == (409, "Conflict")


def test_server_side_apply(core: client.CoreV1Api, ns: str) -> None:
    for value in ("1", "2"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": value}}
        applied = core.patch_namespaced_config_map(
            "a", ns, body, field_manager="t", force=True, _content_type="application/apply-patch+yaml"
        )
        assert applied.data == {"k": value}


def test_the_dynamic_client_applies_too(api: client.ApiClient, ns: str) -> None:
    maps = dynamic.DynamicClient(api)
    resource = maps.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": ns}, "data": {"k": "1"}}
    assert maps.server_side_apply(resource, body, field_manager="t").data.k == "1"


def test_a_watch_tells_every_change(core: client.CoreV1Api, ns: str) -> None:
    since = core.list_namespaced_config_map(ns).metadata.resource_version
    core.create_namespaced_config_map(ns, {"metadata": {"name": "w"}})
    core.patch_namespaced_config_map("w", ns, {"data": {"x": "y"}})
    core.delete_namespaced_config_map("w", ns)
    changes = watch.Watch().stream(
        core.list_namespaced_config_map, ns, resource_version=since, timeout_seconds=1, _request_timeout=10
    )
    seen = [e["type"] for e in changes if e["object"].metadata.name == "w"]  # a cluster puts its root CA there too
    assert seen == ["ADDED", "MODIFIED", "DELETED"]


def test_a_watch_follows_its_selector(core: client.CoreV1Api, ns: str) -> None:
    core.create_namespaced_config_map(ns, {"metadata": {"name": "w", "labels": {"app": "in"}}})
    since = core.list_namespaced_config_map(ns).metadata.resource_version
    for value in ("out", "in"):
        core.patch_namespaced_config_map("w", ns, {"metadata": {"labels": {"app": value}}})
    changes = watch.Watch().stream(
        core.list_namespaced_config_map, ns, label_selector="app=in", resource_version=since, timeout_seconds=1
    )
    assert [e["type"] for e in changes] == ["DELETED", "ADDED"]


def execute(core: client.CoreV1Api, ns: str, *command: str, **options: Any) -> Any:
    options = {"stdin": False, "stdout": True, "stderr": True, "tty": False, **options}
    return stream.stream(core.connect_get_namespaced_pod_exec, "trainer", ns, command=list(command), **options)


@pytest.mark.usefixtures("trainer")
def test_exec_returns_output(core: client.CoreV1Api, ns: str) -> None:
    assert execute(core, ns, "sh", "-c", "echo hello").strip() == "hello"


@pytest.mark.usefixtures("trainer")
def test_exec_returns_the_exit_code(core: client.CoreV1Api, ns: str) -> None:
    session = execute(core, ns, "sh", "-c", "echo oops >&2; exit 3", _preload_content=False)
    session.run_forever(timeout=10)
    assert session.returncode == 3
    assert session.read_stderr() == "oops\n"
    session.close()


@pytest.mark.usefixtures("trainer")
def test_exec_reads_stdin(core: client.CoreV1Api, ns: str) -> None:
    session = execute(core, ns, "cat", stdin=True, _preload_content=False)
    session.write_stdin("ping\n")
    assert session.readline_stdout(timeout=10) == "ping"
    session.close()


def log_text(core: client.CoreV1Api, ns: str, **options: Any) -> str:
    """Return a log, read raw: client 36 hands out the repr of its bytes (`b'one'`) otherwise."""
    response = core.read_namespaced_pod_log("p", ns, _preload_content=False, **options)
    return str(response.data.decode())


def test_the_log_has_a_tail(core: client.CoreV1Api, lab: Lab, ns: str) -> None:
    body = pod_body("p", command=["sh", "-c", "echo one; echo two; echo three"], restartPolicy="Never")
    core.create_namespaced_pod(ns, body)
    lab.wait_phase("p", "Succeeded", ns)
    assert log_text(core, ns) == "one\ntwo\nthree\n"
    assert log_text(core, ns, tail_lines=1) == "three\n"


@pytest.mark.usefixtures("trainer")
def test_the_log_can_be_followed(core: client.CoreV1Api, ns: str) -> None:
    response = core.read_namespaced_pod_log("trainer", ns, follow=True, tail_lines=1, _preload_content=False)
    text = b""
    for chunk in response.stream():
        text += chunk
        if text.count(b"step") >= 3:
            break
    response.close()
    assert text.count(b"step") >= 3


def test_a_deleted_pod_gets_its_grace(core: client.CoreV1Api, lab: Lab, ns: str, trainer: str) -> None:
    answer = core.delete_namespaced_pod(trainer, ns, grace_period_seconds=5)
    meta = answer["metadata"] if isinstance(answer, dict) else answer.metadata.to_dict()
    assert meta.get("deletionTimestamp") or meta.get("deletion_timestamp")
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", trainer)


def eviction(name: str) -> client.V1Eviction:
    options = client.V1DeleteOptions(grace_period_seconds=2)
    return client.V1Eviction(metadata=client.V1ObjectMeta(name=name), delete_options=options)


def test_an_eviction_ends_a_pod(core: client.CoreV1Api, lab: Lab, ns: str, trainer: str) -> None:
    core.create_namespaced_pod_eviction(trainer, ns, eviction(trainer))
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", trainer)


def test_a_budget_blocks_an_eviction(api: client.ApiClient, core: client.CoreV1Api, ns: str, trainer: str) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
    client.PolicyV1Api(api).create_namespaced_pod_disruption_budget(ns, {"metadata": {"name": "b"}, "spec": spec})
    assert refused(core.create_namespaced_pod_eviction, trainer, ns, eviction(trainer)) == (429, "TooManyRequests")


def test_a_deployment_is_scaled(api: client.ApiClient, ns: str) -> None:
    apps = client.AppsV1Api(api)
    apps.create_namespaced_deployment(ns, deployment())
    assert apps.patch_namespaced_deployment_scale("d", ns, {"spec": {"replicas": 1}}).spec.replicas == 1
    assert apps.read_namespaced_deployment("d", ns).spec.replicas == 1


def test_a_lease_changes_hands(api: client.ApiClient, ns: str) -> None:
    leases = client.CoordinationV1Api(api)
    body = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    lease = leases.create_namespaced_lease(ns, body)
    lease.spec.holder_identity = "b"
    assert leases.replace_namespaced_lease("l", ns, lease).spec.holder_identity == "b"
    assert refused(leases.replace_namespaced_lease, "l", ns, lease) == (409, "Conflict")


def test_events_are_found_by_their_object(core: client.CoreV1Api, ns: str) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": ns}
    core.create_namespaced_event(
        ns, {"metadata": {"name": "e"}, "involvedObject": about, "reason": "XidError", "type": "Warning"}
    )
    assert names(core.list_namespaced_event(ns, field_selector="involvedObject.name=p")) == ["e"]
    assert not names(core.list_namespaced_event(ns, field_selector="involvedObject.name=other"))


@pytest.mark.usefixtures("trainings")
def test_objects_of_a_definition(api: client.ApiClient, ns: str) -> None:
    custom = client.CustomObjectsApi(api)
    custom.create_namespaced_custom_object(GROUP, VERSION, ns, PLURAL, training("w", queueName="q"))
    assert custom.get_namespaced_custom_object(GROUP, VERSION, ns, PLURAL, "w")["spec"]["queueName"] == "q"
    assert len(custom.list_cluster_custom_object(GROUP, VERSION, PLURAL)["items"]) == 1
    status = {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}
    patched = custom.patch_namespaced_custom_object_status(GROUP, VERSION, ns, PLURAL, "w", status)
    assert patched["status"] == status["status"]
    custom.delete_namespaced_custom_object(GROUP, VERSION, ns, PLURAL, "w")
    assert refused(custom.get_namespaced_custom_object, GROUP, VERSION, ns, PLURAL, "w") == (404, "NotFound")


def test_a_finalizer_keeps_an_object(core: client.CoreV1Api, ns: str) -> None:
    core.create_namespaced_config_map(ns, {"metadata": {"name": "f", "finalizers": ["a/b"]}})
    core.delete_namespaced_config_map("f", ns)
    assert core.read_namespaced_config_map("f", ns).metadata.deletion_timestamp
    core.patch_namespaced_config_map("f", ns, [{"op": "remove", "path": "/metadata/finalizers"}])
    assert refused(core.read_namespaced_config_map, "f", ns) == (404, "NotFound")


def test_a_dry_run_leaves_nothing(core: client.CoreV1Api, ns: str) -> None:
    core.create_namespaced_config_map(ns, {"metadata": {"name": "dry"}}, dry_run="All")
    assert refused(core.read_namespaced_config_map, "dry", ns) == (404, "NotFound")


def test_a_collection_is_deleted(core: client.CoreV1Api, ns: str) -> None:
    core.create_namespaced_config_map(ns, {"metadata": {"name": "c", "labels": {"x": "1"}}})
    core.delete_collection_namespaced_config_map(ns, label_selector="x=1")
    assert refused(core.read_namespaced_config_map, "c", ns) == (404, "NotFound")


def test_deleting_a_node_answers_success(core: client.CoreV1Api, node: str) -> None:
    """Client 37 hands out a dict where 36 hands out a V1Status (kubernetes-client/python#2664)."""
    answer = core.delete_node(node)
    assert (answer["status"] if isinstance(answer, dict) else answer.status) == "Success"
