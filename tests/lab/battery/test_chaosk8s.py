"""chaostoolkit-kubernetes against the lab: the probes and actions that experiments use."""

from typing import Any

import chaosk8s.crd.actions as crd_actions
import chaosk8s.crd.probes as crd_probes
import chaosk8s.deployment.actions as deployment_actions
import chaosk8s.event.probes as event_probes
import chaosk8s.node.actions as node_actions
import chaosk8s.node.probes as node_probes
import chaosk8s.pod.actions as pod_actions
import chaosk8s.pod.probes as pod_probes
import pytest
from chaoslib.exceptions import ActivityFailed
from kubernetes import __version__ as client_version

from tests.lab.battery.conftest import TRAININGS, UPSTREAM_WARNINGS, pod_body, training
from tests.lab.conftest import Lab

pytestmark = UPSTREAM_WARNINGS
CLIENT = int(client_version.partition(".")[0])


@pytest.fixture
def job(lab: Lab, ns: str) -> list[str]:
    """Three running pods with an owner, as drain_nodes needs them, that no controller adds to; their names."""
    owner = lab.request("POST", f"api/v1/namespaces/{ns}/configmaps", {"metadata": {"name": "s"}})
    uid = owner["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "s", "uid": uid, "controller": True}
    names = [f"job-{n}" for n in range(3)]
    for name in names:
        body = pod_body(name, labels={"app": "job"}, nodeName="gpu-node-2")
        body["metadata"]["ownerReferences"] = [reference]
        lab.request("POST", f"api/v1/namespaces/{ns}/pods", body)
    for name in names:
        lab.wait_phase(name, "Running", ns)
    return names


def test_a_node_is_cordoned_and_uncordoned_by_name(lab: Lab, node: str) -> None:
    assert node_actions.cordon_node(name=node) == [node]
    cordoned = {n["metadata"]["name"] for n in lab.get("api/v1/nodes")["items"] if n["spec"].get("unschedulable")}
    assert cordoned == {node}
    assert node_actions.uncordon_node(name=node) == [node]
    assert not lab.get(f"api/v1/nodes/{node}")["spec"].get("unschedulable")


def test_nodes_are_read() -> None:
    assert "gpu-node-0" in str(node_probes.get_nodes())


@pytest.mark.usefixtures("job")
def test_pods_are_judged(ns: str) -> None:
    assert pod_probes.pods_in_phase("app=job", phase="Running", ns=ns)
    assert pod_probes.count_pods("app=job", phase="Running", ns=ns) == 3
    assert pod_probes.pods_in_conditions("app=job", [{"type": "Ready", "status": "True"}], ns=ns)
    assert pod_probes.all_pods_healthy(ns=ns)


@pytest.mark.usefixtures("trainer")
def test_logs_are_read(ns: str) -> None:
    assert "step" in str(pod_probes.read_pod_logs(label_selector="app=train", ns=ns))


@pytest.mark.usefixtures("trainer")
def test_exec_in_pods_gives_output_and_exit_code(ns: str) -> None:
    def execute(command: Any) -> Any:
        options = {"label_selector": "app=train", "ns": ns, "container_name": "main", "request_timeout": 10}
        (result,) = pod_actions.exec_in_pods(command, **options)
        return result

    said = execute("echo hey")
    assert said["exit_code"] == 0
    assert "hey" in said["stdout"]
    assert str(execute(["sh", "-c", "exit 4"])["exit_code"]) == "4"


def test_a_random_pod_is_terminated(lab: Lab, ns: str, job: list[str]) -> None:
    (gone,) = pod_actions.terminate_pods(label_selector="app=job", rand=True, grace_period=2, ns=ns)
    assert gone in job
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", gone)


@pytest.mark.slow
@pytest.mark.usefixtures("job")
def test_a_node_is_drained(lab: Lab, ns: str) -> None:
    """drain_nodes looks again every 10 seconds."""
    try:
        node_actions.drain_nodes(name="gpu-node-2", timeout=25)
        assert lab.get(f"api/v1/namespaces/{ns}/pods?fieldSelector=spec.nodeName=gpu-node-2")["items"] == []
    finally:
        node_actions.uncordon_node(name="gpu-node-2")


@pytest.mark.usefixtures("trainings")
def test_custom_objects(ns: str) -> None:
    group, version, plural = TRAININGS
    body = training("w", queueName="q")
    crd_actions.create_custom_object(group, version, plural, ns=ns, resource=body)
    assert crd_probes.get_custom_object(group, version, plural, "w", ns=ns)["spec"] == {"queueName": "q"}
    patch = [{"op": "add", "path": "/spec/active", "value": False}]
    assert (
        crd_actions.patch_custom_object(group, version, plural, "w", ns=ns, resource=patch)["spec"]["active"] is False
    )
    crd_actions.delete_custom_object(group, version, plural, "w", ns=ns)
    with pytest.raises(ActivityFailed, match="404|Not Found|not found"):
        crd_probes.get_custom_object(group, version, plural, "w", ns=ns)


@pytest.mark.usefixtures("trainings")
def test_an_object_as_a_patch_of_a_custom_object_is_refused_as_on_any_cluster(ns: str) -> None:
    """The client turns it into a strategic merge patch, which custom resources do not take."""
    group, version, plural = TRAININGS
    body = training("w")
    crd_actions.create_custom_object(group, version, plural, ns=ns, resource=body)
    with pytest.raises(ActivityFailed, match="Unsupported Media Type"):
        crd_actions.patch_custom_object(group, version, plural, "w", ns=ns, resource={"spec": {"active": False}})


def test_a_deployment_is_scaled(lab: Lab, ns: str) -> None:
    template = {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "m", "image": "x"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "d"}}, "template": template}
    path = f"apis/apps/v1/namespaces/{ns}/deployments"
    lab.request("POST", path, {"metadata": {"name": "d"}, "spec": spec})
    deployment_actions.scale_deployment("d", 0, ns=ns)
    assert lab.get(f"{path}/d")["spec"]["replicas"] == 0


def test_events_are_read(lab: Lab, ns: str) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": ns}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "XidError", "type": "Warning"}
    lab.request("POST", f"api/v1/namespaces/{ns}/events", event)
    assert "XidError" in str(event_probes.get_events())


def test_deleting_nodes_works_with_client_36_and_is_broken_with_37(lab: Lab, node: str) -> None:
    """Client 37 returns dicts from delete calls (kubernetes-client/python#2664); chaosk8s 0.39 reads an attribute."""
    if CLIENT >= 37:
        with pytest.raises(AttributeError, match="'dict' object has no attribute 'status'"):
            node_actions.delete_nodes(label_selector=f"spare={node}")
    else:
        assert node_actions.delete_nodes(label_selector=f"spare={node}") == [node]
    assert node not in {item["metadata"]["name"] for item in lab.get("api/v1/nodes")["items"]}
