"""Least rights and Pod Security, as the real API server enforces them."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.faults.pods import node_pod, payload_pod, reverter_job, run_labels
from chaos_gpu.faults.rights import ASKING, ENGINE, REVERTER_RIGHTS, Right
from chaos_gpu.faults.settings import Settings
from tests.cluster.images import TOOLS
from tests.cluster.kubectl import Kubectl
from tests.cluster.layout import NODES
from tests.cluster.product import OURS, Site, write_token_kubeconfig

pytestmark = pytest.mark.cluster

SETTINGS = Settings(image=TOOLS)
LEVELS = ("baseline", "restricted")
DENIED_TO_REVERTER = (
    ("get", "secrets", "--all-namespaces"),
    ("get", "secrets", f"--namespace={OURS}"),
    ("get", "configmaps", "--namespace=kube-system"),
    ("get", "pods", "--namespace=gpu-health"),
    ("get", "jobs.batch", f"--namespace={OURS}"),
    ("get", "events", "--all-namespaces"),
    ("delete", "node", NODES[0]),
    ("delete", "namespace", OURS),
    ("create", "serviceaccount", "mine", f"--namespace={OURS}"),
    ("create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--user=mine"),
    ("create", "configmap", "mine", "--namespace=default"),
    ("create", "secret", "generic", "mine", f"--namespace={OURS}"),
    ("delete", "daemonset", "gpu-health-agent", "--namespace=gpu-health"),
)


@pytest.fixture(scope="module")
def reverter(installed: Site, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    path = tmp_path_factory.mktemp("reverter") / "kubeconfig"
    write_token_kubeconfig(installed.cluster, path, OURS, "chaos-gpu-reverter")
    return Kubectl(installed.cluster.programs.bin / "kubectl", path)


@pytest.mark.parametrize("arguments", DENIED_TO_REVERTER, ids=" ".join)
def test_the_reverter_is_refused_what_it_does_not_need(reverter: Kubectl, arguments: tuple[str, ...]) -> None:
    done = reverter.try_run(*arguments)
    assert done.returncode != 0
    assert "forbidden" in done.stderr.lower(), done.stderr


@pytest.mark.parametrize(
    ("account", "rights"), [("chaos-gpu-reverter", REVERTER_RIGHTS), ("chaos-gpu-runner", (*ENGINE, *ASKING))]
)
@pytest.mark.parametrize("namespace", [OURS, "kube-system"])
def test_an_account_may_exactly_what_is_declared(
    installed: Site, tmp_path: Path, account: str, rights: tuple[Right, ...], namespace: str
) -> None:
    write_token_kubeconfig(installed.cluster, tmp_path / "kubeconfig", OURS, account)
    kubectl = Kubectl(installed.cluster.programs.bin / "kubectl", tmp_path / "kubeconfig")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    asked = ("create", "--validate=false", "--filename=-", "--output=json")
    answer = json.loads(kubectl.run(*asked, text=json.dumps(review)))
    declared = granted({"verbs": right.verbs, "apiGroups": [right.group], "resources": [right.resource]}
                       for right in rights if namespace == OURS or not right.namespaced)  # fmt: skip
    given = granted(rule for rule in answer["status"]["resourceRules"])
    assert {each for each in given if not each[1].startswith("selfsubject")} == declared


def test_the_injector_account_may_nothing(installed: Site, tmp_path: Path) -> None:
    write_token_kubeconfig(installed.cluster, tmp_path / "kubeconfig", OURS, "chaos-gpu-injector")
    kubectl = Kubectl(installed.cluster.programs.bin / "kubectl", tmp_path / "kubeconfig")
    for kind in ("pods", "configmaps", "nodes"):
        assert "Forbidden" in kubectl.try_run("get", kind, f"--namespace={OURS}").stderr


@pytest.fixture(scope="module", autouse=True)
def namespaces(installed: Site) -> Iterator[None]:
    """A namespace of each level of Pod Security."""
    for level in LEVELS:
        meta = {"name": f"security-{level}", "labels": {"pod-security.kubernetes.io/enforce": level}}
        installed.kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": meta}])
        account = ["--for=create", "serviceaccount/default", "--timeout=30s"]
        installed.kubectl.run("wait", f"--namespace=security-{level}", *account)
    yield
    installed.kubectl.run("delete", "namespace", *(f"security-{level}" for level in LEVELS))


@pytest.mark.parametrize("level", LEVELS)
def test_the_reverter_pod_survives_pod_security(installed: Site, level: str) -> None:
    template = reverter_job(SETTINGS, "review", list(NODES[:1]), {})["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] |= {"name": "review", "namespace": f"security-{level}"}
    pod["spec"].pop("serviceAccountName")
    assert refusal(installed.kubectl, level, pod) == ""


def test_the_injector_needs_privileged_and_says_why(installed: Site) -> None:
    pod = node_pod(SETTINGS, "review", NODES[0], run_labels("review", "injector"), "kmsg", {})
    pod["metadata"]["namespace"] = "security-baseline"
    pod["spec"].pop("serviceAccountName")
    said = refusal(installed.kubectl, "baseline", pod)
    assert "violates PodSecurity" in said
    assert "privileged" in said
    assert "hostPath" in said


def test_a_payload_pod_without_a_node_is_restricted(installed: Site) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **payload_pod(SETTINGS, "kmsg", {})}
    pod["metadata"] |= {"name": "review", "namespace": "security-restricted"}
    assert refusal(installed.kubectl, "restricted", pod) == ""


def refusal(kubectl: Kubectl, level: str, pod: dict[str, Any]) -> str:
    """Ask a namespace of that level, by a dry run, whether it would take a pod; "" if it would."""
    done = kubectl.try_run("create", "--dry-run=server", "--filename=-", text=json.dumps(pod))
    return done.stderr if done.returncode else ""


def granted(rules: Iterable[dict[str, Any]]) -> set[tuple[str, str, str]]:
    """Flatten rules to (group, resource, verb)."""
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
