"""kubectl against the lab."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab.battery.conftest import DEADLINE_S, UPSTREAM_WARNINGS, Kubectl, Lines, pod_body, training
from tests.lab.conftest import Lab

pytestmark = UPSTREAM_WARNINGS


def config_map(name: str, **data: str) -> Any:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def deployment() -> Any:
    template = {"metadata": {"labels": {"a": "d"}}, "spec": {"containers": [{"name": "m", "image": "x"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "d"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["version"], ["Server Version: v1."]),
        (["api-resources"], ["nodes ", "daemonsets ", "leases "]),
        (["get", "nodes"], ["STATUS", "Ready", "gpu-node-0"]),
        (["get", "node", "gpu-node-0", "-o", "yaml"], ["kind: Node"]),
        (["describe", "node", "gpu-node-0"], ["Conditions:", "Allocatable:", "Events:"]),
        (["auth", "can-i", "create", "pods"], ["yes"]),
        (["auth", "whoami"], ["system:admin"]),
        (["explain", "pods"], ["KIND:", "FIELDS"]),
        (["top", "nodes"], ["CPU(cores)", "gpu-node-0"]),
        (["get", "--raw", "/readyz"], ["ok"]),
    ],
    ids=lambda value: " ".join(value[:3]),
)
def test_questions(kubectl: Kubectl, arguments: list[str], printed: list[str]) -> None:
    said = kubectl(*arguments)
    assert all(text in said for text in printed), said


def test_apply_makes_then_leaves_then_changes(kubectl: Kubectl) -> None:
    body = pod_body("p", schedulerName="none")
    assert "pod/p created" in kubectl.apply(body)
    assert "pod/p unchanged" in kubectl.apply(body)
    body["metadata"]["labels"]["v"] = "2"
    assert "pod/p configured" in kubectl.apply(body)


def test_server_side_apply_and_its_conflict(kubectl: Kubectl) -> None:
    arguments = ["apply", "--server-side", "-f", "-"]
    assert "serverside-applied" in kubectl(*arguments, given=config_map("a", k="1"))
    refused = kubectl.run(*arguments, "--field-manager=other", given=config_map("a", k="2"))
    assert refused.returncode == 1
    assert "conflict" in refused.stderr
    kubectl(*arguments, "--field-manager=other", "--force-conflicts", given=config_map("a", k="2"))
    assert kubectl("get", "cm", "a", "-o", "jsonpath={.data.k}") == "2"


def test_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    kubectl.apply(config_map("a", k="1"))
    shown = kubectl.run("diff", "-f", "-", given=config_map("a", k="other"))
    assert shown.returncode == 1
    assert "other" in shown.stdout


def test_replace(kubectl: Kubectl) -> None:
    kubectl.apply(config_map("a", k="1"))
    assert "replaced" in kubectl("replace", "-f", "-", given=config_map("a", k="2"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["configmap", "a", "--from-literal=k=v"],
        ["secret", "generic", "a", "--from-literal=k=v"],
        ["serviceaccount", "a"],
        ["job", "a", "--image=x", "--", "true"],
        ["deployment", "a", "--image=x", "--replicas=0"],
        ["poddisruptionbudget", "a", "--selector=a=b", "--min-available=50%"],
        ["role", "a", "--verb=get", "--resource=pods"],
        ["rolebinding", "a", "--clusterrole=view", "--serviceaccount=default:default"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_create(kubectl: Kubectl, arguments: list[str]) -> None:
    """These bodies come as protobuf."""
    assert " created" in kubectl("create", *arguments)


def test_create_namespace(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "battery-made")
    assert "deleted" in kubectl("delete", "namespace", "battery-made")


def test_a_kind_that_is_not_read_as_protobuf_comes_with_a_way_out(kubectl: Kubectl) -> None:
    arguments = ["create", "cronjob", "c", "--image=x", "--schedule=* * * * *"]
    refused = kubectl.run(*arguments)
    assert refused.returncode == 1
    assert "kubectl apply -f -" in refused.stderr
    body = kubectl(*arguments, "--dry-run=client", "-o", "json")
    assert "created" in kubectl("apply", "-f", "-", given=body)


@pytest.mark.usefixtures("trainings")
def test_custom_resources_have_short_names_and_columns(kubectl: Kubectl) -> None:
    assert "created" in kubectl.apply(training("w", queueName="q1"))
    status = '{"status":{"conditions":[{"type":"Admitted","status":"True"}]}}'
    kubectl("patch", "tr", "w", "--type=merge", "--subresource=status", "-p", status)
    said = kubectl("get", "tr")
    assert all(text in said for text in ("QUEUE", "ADMITTED", "q1", "True"))


def test_label_annotate_taint(kubectl: Kubectl, node: str) -> None:
    assert "labeled" in kubectl("label", "node", node, "a=b")
    assert "annotated" in kubectl("annotate", "node", node, "c=d")
    assert "tainted" in kubectl("taint", "node", node, "xid=79:NoSchedule")


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("json", '[{"op":"add","path":"/metadata/labels/q","value":"1"}]'),
        ("merge", '{"metadata":{"labels":{"q":"1"}}}'),
        ("strategic", '{"metadata":{"labels":{"q":"1"}}}'),
    ],
)
def test_patch(kubectl: Kubectl, node: str, kind: str, patch: str) -> None:
    kubectl("patch", "node", node, f"--type={kind}", "-p", patch)
    assert kubectl("get", "node", node, "-o", "jsonpath={.metadata.labels.q}") == "1"


def test_cordon_and_uncordon(kubectl: Kubectl, node: str) -> None:
    assert "cordoned" in kubectl("cordon", node)
    assert "SchedulingDisabled" in kubectl("get", "node", node)
    assert "uncordoned" in kubectl("uncordon", node)
    assert "SchedulingDisabled" not in kubectl("get", "node", node)


def test_events(kubectl: Kubectl, ns: str) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": ns},
        "reason": "XidError",
        "type": "Warning",
        "firstTimestamp": "2026-11-29T18:00:00Z",
        "lastTimestamp": "2026-11-29T18:00:00Z",
    }
    kubectl("create", "-f", "-", given=event)
    for command in (["get", "events"], ["events"], ["get", "events.events.k8s.io"]):
        said = kubectl(*command)
        assert "XidError" in said
        assert "<unknown>" not in said


def test_running_pods_are_shown(kubectl: Kubectl, lab: Lab, ns: str) -> None:
    kubectl.apply(pod_body("p"))
    assert "condition met" in kubectl("wait", "--for=condition=Ready", "pod/p", f"--timeout={DEADLINE_S:.0f}s")
    wide = kubectl("get", "pods", "-o", "wide")
    assert all(text in wide for text in ("READY", "NODE", "1/1", "Running", "gpu-node-"))
    assert "NAMESPACE" in kubectl("get", "pods", "-A", "-l", "app=train")
    both = kubectl("get", "po,no")
    assert "pod/p" in both
    assert "node/gpu-node-0" in both
    described = kubectl("describe", "pod", "p")
    assert all(text in described for text in ("Node:", "Events:"))
    assert "CPU(cores)" in kubectl("top", "pods")
    kubectl("delete", "pod", "p", "--grace-period=1")
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", "p")


@pytest.mark.usefixtures("trainer")
def test_logs(kubectl: Kubectl) -> None:
    assert kubectl("logs", "trainer", "--tail=1").strip() == "step"
    with Lines(kubectl.command("logs", "-f", "trainer", "--tail=1")) as lines:
        lines.until(lambda seen: seen.count("step") >= 3)


@pytest.mark.usefixtures("trainer")
def test_exec_and_its_exit_code(kubectl: Kubectl) -> None:
    assert kubectl("exec", "trainer", "--", "sh", "-c", "echo hi").strip() == "hi"
    assert kubectl.run("exec", "trainer", "--", "sh", "-c", "exit 7").returncode == 7


@pytest.mark.usefixtures("trainer")
@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("no-such-program", "executable file not found in $PATH"),
        ("/no/such/program", "no such file or directory"),
        ("/tmp", "permission denied"),
    ],
)
def test_exec_of_what_cannot_be_started_is_an_error_without_exit_code(kubectl: Kubectl, program: str, why: str) -> None:
    missing = kubectl.run("exec", "trainer", "--", program)
    assert missing.returncode == 1
    assert "error executing command in container" in missing.stderr
    assert f'exec: "{program}": ' in missing.stderr
    assert why in missing.stderr


@pytest.mark.usefixtures("trainer")
def test_exec_reads_stdin_to_its_end(kubectl: Kubectl) -> None:
    assert kubectl("exec", "-i", "trainer", "--", "wc", "-c", given="12345").strip() == "5"


@pytest.mark.usefixtures("trainer")
def test_exec_with_a_terminal(kubectl: Kubectl) -> None:
    inner = " ".join(kubectl.command("exec", "-it", "trainer", "--", "test", "-t", "0"))
    done = subprocess.run(
        ["script", "-qec", inner, "/dev/null"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.usefixtures("trainer")
def test_cp_both_ways(kubectl: Kubectl, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_text("data")
    kubectl("cp", str(there), "trainer:copied")
    assert kubectl("exec", "trainer", "--", "cat", "copied") == "data"
    kubectl("cp", "trainer:copied", str(back))
    assert back.read_text() == "data"


def test_get_watch_shows_a_pods_life(kubectl: Kubectl, lab: Lab, ns: str) -> None:
    with Lines(kubectl.command("get", "pods", "--watch")) as lines:
        kubectl.apply(pod_body("p"))
        lines.until(lambda seen: any("Running" in line for line in seen))
        kubectl("delete", "pod", "p", "--grace-period=1", "--wait=false")
        lines.until(lambda seen: any("Terminating" in line for line in seen))
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", "p")


def test_scale_and_rollout_restart(kubectl: Kubectl) -> None:
    kubectl.apply(deployment())
    assert "READY" in kubectl("get", "deploy", "d")
    assert "scaled" in kubectl("scale", "deploy/d", "--replicas=0")
    assert "restarted" in kubectl("rollout", "restart", "deploy/d")


def test_drain_evicts_and_cordons(kubectl: Kubectl, lab: Lab, ns: str) -> None:
    kubectl.apply(pod_body("p", nodeName="gpu-node-3"))
    lab.wait_phase("p", "Running", ns)
    try:
        arguments = ["--force", "--ignore-daemonsets", "--grace-period=2", f"--timeout={DEADLINE_S:.0f}s"]
        said = kubectl("drain", "gpu-node-3", *arguments)
        assert "drained" in said
        assert "SchedulingDisabled" in kubectl("get", "node", "gpu-node-3")
        lab.wait_gone(f"api/v1/namespaces/{ns}/pods", "p")
    finally:
        kubectl("uncordon", "gpu-node-3")


@pytest.mark.usefixtures("trainer")
def test_delete_by_force(kubectl: Kubectl) -> None:
    assert "force deleted" in kubectl("delete", "pod", "trainer", "--force", "--grace-period=0")


@pytest.mark.usefixtures("trainer")
def test_wait_for_deletion(kubectl: Kubectl) -> None:
    kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/trainer", "--timeout=5s")
    kubectl("delete", "pod", "trainer", "--grace-period=1", "--wait=false")
    kubectl("wait", "--for=delete", "pod/trainer", f"--timeout={DEADLINE_S:.0f}s")


@pytest.mark.usefixtures("trainer")
def test_port_forward_is_not_offered(kubectl: Kubectl) -> None:
    """Pods are processes of this machine: their ports are on loopback already."""
    refused = kubectl.run("port-forward", "pod/trainer", "18999:80")
    assert refused.returncode != 0
    assert "could not find the requested resource" in refused.stderr
