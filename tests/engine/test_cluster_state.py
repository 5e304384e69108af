"""What stands on the cluster decides whether a run may begin: opt-in, nodes, their work, detectors, remediators."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.site import Json, Site, activity, experiment, inject, over, unchanged
from tests.engine.test_heart import plan
from tests.engine.test_refusals import check_refused

NODE = "gpu-node-1"
ON_NODE = {"CHAOS_GPU_NODE": NODE}
DAEMONSET = "apis/apps/v1/namespaces/gpu-health/daemonsets/gpu-health-agent"
MERGE = "application/merge-patch+json"


@contextmanager
def patched(site: Site, path: str, patch: Json, back: Json) -> Iterator[None]:
    """Change an object for a while."""
    site.merge(path, patch)
    try:
        yield
    finally:
        site.merge(path, back)


@contextmanager
def made(site: Site, collection: str, body: Json) -> Iterator[None]:
    """Make an object for a while."""
    site.lab.request("POST", collection, body)
    try:
        yield
    finally:
        name = body["metadata"]["name"]
        site.lab.request("DELETE", f"{collection}/{name}?gracePeriodSeconds=0")
        site.lab.wait_gone(collection, name)


def note(name: str, value: str | None) -> Json:
    return {"metadata": {"annotations": {name: value}}}


def label(name: str, value: str | None) -> Json:
    return {"metadata": {"labels": {name: value}}}


# --- opt-in ----------------------------------------------------------------------------------------------------------

NAMESPACE = "api/v1/namespaces/chaos-gpu"


@pytest.mark.parametrize("value", ["false", "yes", "True", None])
def test_a_cluster_that_opted_out(site: Site, value: str | None) -> None:
    with patched(site, NAMESPACE, note("chaos-gpu/enabled", value), note("chaos-gpu/enabled", "true")), unchanged(site):
        check_refused(site.run(experiment()), "has opted out")


def test_a_cluster_that_was_never_opened(site: Site) -> None:
    """Last of what is uninstalled is the namespace; afterwards it is opened again."""
    code, text = site.cli("uninstall")
    assert code == 0, text
    site.lab.wait_gone("api/v1/namespaces", "chaos-gpu")
    with unchanged(site):
        check_refused(site.run(experiment()), "it has no namespace chaos-gpu")
        code, text = site.cli("doctor")
        assert (code, "not opted in" in text) == (4, True), text
    assert site.cli("install", "--dry-run")[0] == 0
    assert "chaos-gpu" not in [each["metadata"]["name"] for each in site.items("api/v1/namespaces")]
    assert site.cli("install")[0] == 0


def test_what_install_prints_is_what_it_makes(site: Site, tmp_path: Path) -> None:
    code, text = site.cli("install", "--dry-run")
    assert code == 0, text
    file = tmp_path / "manifests.yaml"
    file.write_text(text)
    kubectl = Path(sys.executable).with_name("kubectl")
    argv = [str(kubectl), "--kubeconfig", str(site.lab.kubeconfig), "apply", "--server-side", "--force-conflicts", "-f"]
    done = subprocess.run([*argv, str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert plan(site, experiment())[0] == 0


# --- nodes -----------------------------------------------------------------------------------------------------------

UNFIT = {
    "cordoned": ({"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}, "cordoned already"),
    "protected": (label("chaos-gpu/protected", "true"), label("chaos-gpu/protected", None), "opted out"),
    "unmanaged": (
        label("k8saas.nvidia.com/ManagedByNVSentinel", "false"),
        label("k8saas.nvidia.com/ManagedByNVSentinel", None),
        "opted out",
    ),
    "control plane": (
        label("node-role.kubernetes.io/control-plane", ""),
        label("node-role.kubernetes.io/control-plane", None),
        "control-plane",
    ),
}


@pytest.mark.parametrize(("patch", "back", "says"), UNFIT.values(), ids=UNFIT)
def test_a_node_that_is_not_fit(site: Site, patch: Json, back: Json, says: str) -> None:
    with patched(site, f"api/v1/nodes/{NODE}", patch, back):
        with unchanged(site):
            check_refused(site.run(experiment(), **ON_NODE), f"{NODE}.*{says}")
        code, text = plan(site, experiment(), CHAOS_GPU_SEED="any")
        assert code == 0, text
        assert NODE not in text, "without a node named, another one is chosen"


def test_a_node_that_is_none_of_the_gpu_nodes(site: Site) -> None:
    with unchanged(site):
        ended = site.run(experiment(), **ON_NODE, CHAOS_GPU_SELECTOR="kubernetes.io/hostname=gpu-node-0")
    check_refused(ended, f"node {NODE} does not match")


def test_no_node_is_fit(site: Site) -> None:
    with ExitStack() as cordons:
        for number in range(4):
            cordon = ({"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}})
            cordons.enter_context(patched(site, f"api/v1/nodes/gpu-node-{number}", *cordon))
        with unchanged(site):
            check_refused(site.run(experiment()), "none of 4 GPU nodes is fit")


def test_plan_takes_variables(site: Site) -> None:
    file = site.place() / "experiment.json"
    file.write_text(json.dumps(experiment()))
    code, text = site.cli("plan", str(file), "--var", f"node={NODE}")
    assert (code, NODE in text) == (0, True), text
    code, text = site.cli("plan", str(file), "--var", "node=nowhere")
    assert (code, "no node 'nowhere'" in text) == (4, True), text
    assert site.cli("plan", str(file), "--var", "nonsense")[0] == 4


# --- work on the node ------------------------------------------------------------------------------------------------


def pod(name: str, gpus: int = 1, **metadata: Any) -> Json:
    resources = {"requests": {"nvidia.com/gpu": str(gpus)}, "limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "busybox", "command": ["sleep", "600"]}
    container |= {"resources": resources} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0},
    }


PODS = "api/v1/namespaces/default/pods"


def test_foreign_work(site: Site) -> None:
    with made(site, PODS, pod("train-0", 2)):
        with unchanged(site):
            check_refused(
                site.run(experiment(), **ON_NODE), r"default/train-0 \(2 GPU\), which is not part of this run"
            )
        assert plan(site, experiment(allow_foreign_work=True), **ON_NODE)[0] == 0
        code, text = plan(site, experiment())
        assert (code, NODE in text) == (0, False), text


OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "u", "controller": True}
HARMLESS = {
    "allowed": pod("train-0", labels={"chaos-gpu/target": "allow"}),
    "ours": pod("train-0", labels={"chaos-gpu/run": "x"}),
    "a daemon": pod("exporter-x", ownerReferences=[OWNER]),
    "without a GPU": pod("web", gpus=0),
}


@pytest.mark.parametrize("body", HARMLESS.values(), ids=HARMLESS)
def test_work_that_is_not_foreign(site: Site, body: Json) -> None:
    if "ownerReferences" in body["metadata"]:
        body["metadata"]["ownerReferences"][0]["uid"] = site.lab.get(DAEMONSET)["metadata"]["uid"]
    with made(site, PODS, body):
        code, text = plan(site, experiment(), **ON_NODE)
        assert code == 0, text


def test_work_that_is_done(site: Site) -> None:
    body = pod("done-0")
    body["spec"]["containers"][0]["command"] = ["true"]
    body["spec"]["restartPolicy"] = "Never"
    with made(site, PODS, body):
        site.lab.wait_phase("done-0", "Succeeded")
        code, text = plan(site, experiment(), **ON_NODE)
        assert code == 0, text


# --- who watches -----------------------------------------------------------------------------------------------------


def workload(kind: str, name: str, namespace: str = "default", **metadata: Any) -> tuple[str, Json]:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    template["spec"]["nodeSelector"] = {"nowhere": "true"}
    spec: Json = {"selector": {"matchLabels": labels}, "template": template}
    if kind in ("Deployment", "StatefulSet"):
        spec |= {"replicas": 0}
    if kind == "StatefulSet":
        spec |= {"serviceName": name}
    version = "apps/v1"
    if kind == "CronJob":
        template["spec"]["restartPolicy"] = "Never"
        version, spec = "batch/v1", {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": template}}}
    meta = {"name": name, "namespace": namespace, **metadata}
    body = {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}
    return f"apis/{version}/namespaces/{namespace}/{kind.lower()}s", body


REMEDIATORS = {
    "NVSentinel's janitor": (workload("Deployment", "nvsentinel-janitor"), "reset, reboot, terminate"),
    "NVSentinel's drainer": (workload("Deployment", "node-drainer"), "drain"),
    "EKS": (workload("DaemonSet", "eks-node-monitoring-agent"), "reboot, terminate"),
    "karpenter": (workload("Deployment", "karpenter"), "terminate"),
    **{
        f"a {kind} that says so": (
            workload(kind, "home-made", labels={"chaos-gpu/remediator": "cordon.reboot"}),
            "reboot",
        )
        for kind in ("Deployment", "StatefulSet", "DaemonSet", "CronJob")
    },
    "a known name, run by the clock": (workload("CronJob", "gpu-reset-nightly"), "reset"),
}


@pytest.mark.parametrize(("there", "may"), REMEDIATORS.values(), ids=REMEDIATORS)
def test_a_remediator_that_was_not_allowed(site: Site, there: tuple[str, Json], may: str) -> None:
    with made(site, *there):
        with unchanged(site):
            check_refused(site.run(experiment()), f"{there[1]['metadata']['name']} may {may} a node")
        code, text = plan(site, experiment(allow_remediation=["cordon", *may.split(", ")]))
        assert code == 0, text


PROFILES = {"no JSON": "{half", "a list": "[]", "unknown": '{"speed": 3}', "wrong type": '{"conditions": "X"}'}


@pytest.mark.parametrize("text", PROFILES.values(), ids=PROFILES)
def test_a_detector_profile_that_cannot_be_read(site: Site, text: str) -> None:
    path, body = workload(
        "DaemonSet",
        "home-made",
        labels={"chaos-gpu/detector": "home-made"},
        annotations={"chaos-gpu/detector-profile": text},
    )
    with made(site, path, body), unchanged(site):
        check_refused(site.run(experiment()), "detector home-made: its chaos-gpu/detector-profile annotation")


def test_raw_119_where_it_may_be(site: Site) -> None:
    code, text = plan(site, experiment(inject("xid-119", 119), *over("xid-119"), allow_codes=[119]))
    assert code == 0, text


DEAF = {"transport": "kmsg"}
PROFILE = "chaos-gpu/detector-profile"


def test_a_detector_that_tells_nothing_is_not_enough(site: Site) -> None:
    """One that only reads the log, as gpud does: a fatal record would cost a node, and could not be judged."""
    whole = site.lab.get(DAEMONSET)["metadata"]["annotations"][PROFILE]
    detected = activity("probe", "seen", "chaos_gpu.probes.device", "xid_detected", fault="xid-48")
    fatal = experiment(inject("xid-48", 48), detected, *over("xid-48"), criteria=["DEV-02"])
    with patched(site, DAEMONSET, note(PROFILE, json.dumps(DEAF)), note(PROFILE, whole)), unchanged(site):
        ended = site.run(fatal)
        code, text = site.cli("doctor", "--json")
    assert ended.result.exit_code == 2, ended.text
    assert ended.guard["refused"] is None
    why = "gpu-health-agent: no node condition is known that could name the record"
    assert why in json.dumps(ended.journal)
    found = json.loads(text)["criteria"]
    assert (code, found["DEV-02"]) == (2, why)
    assert all("could say why a node was cordoned" in found[each] for each in ("DEV-06", "DEV-07"))


# --- exit codes of whole runs ----------------------------------------------------------------------------------------


def test_without_a_detector_nothing_is_injected_and_nothing_concluded(site: Site) -> None:
    """A missing precondition is no refusal: the hypothesis is not met (exit 2)."""
    kept = activity("probe", "kept", "chaos_gpu.probes.device", "node_kept", fault="xid-13")
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"nowhere": "true"}}}}}
    back = {"spec": {"template": {"spec": {"nodeSelector": {"nowhere": None}}}}}
    with patched(site, DAEMONSET, selector, back):
        for each in site.items("api/v1/namespaces/gpu-health/pods"):
            site.lab.wait_gone("api/v1/namespaces/gpu-health/pods", each["metadata"]["name"])
        with unchanged(site):
            ended = site.run(experiment(inject(), kept, *over(), criteria=["DEV-06"]))
            code, text = site.cli("doctor")
    assert ended.result.exit_code == 2, ended.text
    assert ended.guard["refused"] is None
    assert re.search("no detector reads the kernel log", json.dumps(ended.journal))
    assert (code, "cannot be judged" in text) == (2, True), text
    site.lab.wait(
        "apis/apps/v1/namespaces/gpu-health/daemonsets",
        "gpu-health-agent",
        lambda found: found["status"].get("numberReady") == 4,
    )
