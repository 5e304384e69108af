"""Scheduler, Job, DaemonSet, Deployment and the small controllers, through the API."""

import contextlib
import re

import pytest

from .conftest import ApiError, Lab, chaos_gpu

NODES = "api/v1/nodes"
MERGE = "application/merge-patch+json"
IDLE = ["sleep", "1000"]


@pytest.fixture
def ns(lab, request):
    """Make a namespace of the test's own, with everything in it gone afterwards."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:60].strip("-")
    lab.request("POST", "api/v1/namespaces", {"metadata": {"name": name}})
    lab.wait(f"api/v1/namespaces/{name}/serviceaccounts", "default", lambda _: True)
    yield name
    with contextlib.suppress(ApiError):
        lab.request("DELETE", f"api/v1/namespaces/{name}")
        for pod in pods_of(lab, name):
            lab.request("DELETE", lab.pod_path(pod["metadata"]["name"], name), {"gracePeriodSeconds": 0})
    lab.wait_gone("api/v1/namespaces", name)


def pods_of(lab: Lab, ns: str) -> list[dict]:
    return lab.get(f"api/v1/namespaces/{ns}/pods")["items"]


def template(*command: str, labels: dict | None = None, **spec) -> dict:
    containers = [{"name": "main", "image": "x", "command": list(command)}]
    return {"metadata": {"labels": labels or {}}, "spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def create(lab: Lab, ns: str, group: str, plural: str, name: str, spec: dict) -> dict:
    return lab.request("POST", f"{group}/namespaces/{ns}/{plural}", {"metadata": {"name": name}, "spec": spec})


def condition(obj: dict, kind: str) -> dict:
    return next((c for c in obj.get("status", {}).get("conditions") or [] if c["type"] == kind), {"status": "absent"})


@contextlib.contextmanager
def cordoned(lab: Lab, *nodes: str):
    for node in nodes:
        lab.request("PATCH", f"{NODES}/{node}", {"spec": {"unschedulable": True}}, MERGE)
    try:
        yield
    finally:
        for node in nodes:
            lab.request("PATCH", f"{NODES}/{node}", {"spec": {"unschedulable": None}}, MERGE)


# scheduler


def affinity(operator: str, *values: str, key: str = "kubernetes.io/hostname") -> dict:
    expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"nodeSelector": {"kubernetes.io/hostname": "gpu-node-2"}}, {"gpu-node-2"}),
        (affinity("In", "gpu-node-1", "gpu-node-3"), {"gpu-node-1", "gpu-node-3"}),
        (affinity("NotIn", "gpu-node-0", "gpu-node-1", "gpu-node-2"), {"gpu-node-3"}),
        (affinity("Exists", key="nvidia.com/gpu.present"), {f"gpu-node-{n}" for n in range(4)}),
    ],
)
def test_pod_goes_where_it_may(lab, ns, spec, allowed):
    lab.run_pod("p", *IDLE, namespace=ns, **spec)
    assert lab.wait_phase("p", "Running", ns)["spec"]["nodeName"] in allowed


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"nodeSelector": {"no": "such"}}, "4 node(s) didn't match Pod's node affinity/selector"),
        (affinity("DoesNotExist", key="nvidia.com/gpu.present"), "4 node(s) didn't match Pod's node affinity/selector"),
    ],
)
def test_pod_that_fits_nowhere_says_why_and_is_bound_once_it_does(lab, ns, spec, why):
    lab.run_pod("p", *IDLE, namespace=ns, **spec)
    pod = lab.wait(f"api/v1/namespaces/{ns}/pods", "p", lambda p: condition(p, "PodScheduled")["status"] == "False")
    assert condition(pod, "PodScheduled")["reason"] == "Unschedulable"
    assert f"0/4 nodes are available: {why}." in condition(pod, "PodScheduled")["message"]
    assert pod["status"]["phase"] == "Pending"
    if "nodeSelector" in spec:
        lab.request("PATCH", f"{NODES}/gpu-node-1", {"metadata": {"labels": spec["nodeSelector"]}}, MERGE)
        try:
            assert lab.wait_phase("p", "Running", ns)["spec"]["nodeName"] == "gpu-node-1"
        finally:
            lab.request("PATCH", f"{NODES}/gpu-node-1", {"metadata": {"labels": {"no": None}}}, MERGE)


def test_cordon_keeps_pods_away_but_not_those_that_tolerate_it(lab, ns):
    others = ["gpu-node-1", "gpu-node-2", "gpu-node-3"]
    selector = {"nodeSelector": {"kubernetes.io/hostname": "gpu-node-0"}}
    with cordoned(lab, "gpu-node-0"):
        lab.run_pod("plain", *IDLE, namespace=ns, **selector)
        pods = f"api/v1/namespaces/{ns}/pods"
        held = lab.wait(pods, "plain", lambda p: condition(p, "PodScheduled")["status"] == "False")
        assert "1 node(s) were unschedulable" in condition(held, "PodScheduled")["message"]
        assert f"{len(others)} node(s) didn't match" in condition(held, "PodScheduled")["message"]
        lab.run_pod("tolerant", *IDLE, namespace=ns, tolerations=[{"operator": "Exists"}], **selector)
        lab.wait_phase("tolerant", "Running", ns)
        lab.run_pod("pinned", *IDLE, namespace=ns, nodeName="gpu-node-0")
        lab.wait_phase("pinned", "Running", ns)
        node = lab.wait(NODES, "gpu-node-0", lambda n: n["spec"].get("taints"))
        assert [t["key"] for t in node["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
    lab.wait_phase("plain", "Running", ns)
    lab.wait(NODES, "gpu-node-0", lambda n: not n["spec"].get("taints"))


def test_taints(lab, ns):
    taint = {"key": "xid", "value": "79", "effect": "NoSchedule"}
    lab.request("PATCH", f"{NODES}/gpu-node-0", {"spec": {"taints": [taint]}}, MERGE)
    try:
        selector = {"nodeSelector": {"kubernetes.io/hostname": "gpu-node-0"}}
        lab.run_pod("plain", *IDLE, namespace=ns, **selector)
        pods = f"api/v1/namespaces/{ns}/pods"
        held = lab.wait(pods, "plain", lambda p: condition(p, "PodScheduled")["status"] == "False")
        assert "untolerated taint(s) {xid: 79}" in condition(held, "PodScheduled")["message"]
        tolerations = [{"key": "xid", "operator": "Equal", "value": "79", "effect": "NoSchedule"}]
        lab.run_pod("tolerant", *IDLE, namespace=ns, tolerations=tolerations, **selector)
        lab.wait_phase("tolerant", "Running", ns)
    finally:
        lab.request("PATCH", f"{NODES}/gpu-node-0", {"spec": {"taints": None}}, MERGE)


def test_scheduling_gate_holds_a_pod(lab, ns):
    lab.run_pod("gated", *IDLE, namespace=ns, schedulingGates=[{"name": "wait"}])
    lab.run_pod("other", *IDLE, namespace=ns)
    lab.wait_phase("other", "Running", ns)
    assert "nodeName" not in lab.get(lab.pod_path("gated", ns))["spec"]
    lab.request("PATCH", lab.pod_path("gated", ns), {"spec": {"schedulingGates": None}}, MERGE)
    lab.wait_phase("gated", "Running", ns)


# jobs


def job(lab: Lab, ns: str, script: str, **spec) -> str:
    jobs = f"apis/batch/v1/namespaces/{ns}/jobs"
    body = {"template": template("sh", "-c", script, **spec.pop("pod", {})), **spec}
    create(lab, ns, "apis/batch/v1", "jobs", "job", body)
    return jobs


def ended(kind: str):
    return lambda obj: condition(obj, kind)["status"] == "True"


def test_job_completes(lab, ns):
    done = lab.wait(job(lab, ns, "exit 0"), "job", ended("Complete"))
    status = done["status"]
    assert (status["succeeded"], status.get("failed", 0), status.get("active", 0)) == (1, 0, 0)
    assert status["startTime"] <= status["completionTime"]
    assert condition(done, "Complete")["reason"] == "CompletionsReached"
    (pod,) = pods_of(lab, ns)
    assert pod["metadata"]["ownerReferences"][0]["uid"] == done["metadata"]["uid"]
    assert pod["metadata"]["labels"]["job-name"] == "job"


def test_job_gives_up_after_its_backoff_limit(lab, ns):
    failed = lab.wait(job(lab, ns, "exit 1", backoffLimit=1), "job", ended("Failed"))
    assert condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
    assert failed["status"]["failed"] == len(pods_of(lab, ns)) == 2


def test_job_gives_up_at_once_on_an_exit_code_of_its_policy(lab, ns):
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [4]}}
    failed = lab.wait(job(lab, ns, "exit 4", podFailurePolicy={"rules": [rule]}), "job", ended("Failed"))
    assert condition(failed, "Failed")["reason"] == "PodFailurePolicy"
    assert failed["status"]["failed"] == len(pods_of(lab, ns)) == 1


def test_job_tries_again_on_an_exit_code_that_its_policy_does_not_name(lab, ns):
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [4]}}
    jobs = job(lab, ns, "exit 1", podFailurePolicy={"rules": [rule]}, backoffLimit=1)
    assert condition(lab.wait(jobs, "job", ended("Failed")), "Failed")["reason"] == "BackoffLimitExceeded"


def test_job_runs_several(lab, ns):
    done = lab.wait(job(lab, ns, "exit 0", completions=3, parallelism=2), "job", ended("Complete"))
    assert done["status"]["succeeded"] == len(pods_of(lab, ns)) == 3


def test_job_replaces_a_lost_pod(lab, ns):
    jobs = job(lab, ns, "exec sleep 1000")
    lab.wait(jobs, "job", lambda j: j.get("status", {}).get("ready") == 1)
    (first,) = pods_of(lab, ns)
    lab.request("DELETE", lab.pod_path(first["metadata"]["name"], ns), {"gracePeriodSeconds": 0})
    pods = f"api/v1/namespaces/{ns}/pods"
    for _kind, pod in lab.watch(pods):
        if pod["metadata"]["uid"] != first["metadata"]["uid"] and pod["status"]["phase"] == "Running":
            return
    raise AssertionError("no second pod")


@pytest.mark.parametrize(("policy", "together"), [({}, True), ({"podReplacementPolicy": "Failed"}, False)])
def test_job_replaces_a_pod_that_is_still_ending_unless_told_to_wait(lab, ns, policy, together):
    ending = "trap 'sleep 0.5; exit 1' TERM; echo up; while :; do sleep 0.05; done"
    jobs = job(lab, ns, ending, pod={"restartPolicy": "Never"}, **policy)
    lab.wait(jobs, "job", lambda j: j.get("status", {}).get("ready") == 1)
    (first,) = pods_of(lab, ns)
    uid, over = first["metadata"]["uid"], False
    lab.request("DELETE", lab.pod_path(first["metadata"]["name"], ns), {})
    for kind, pod in lab.watch(f"api/v1/namespaces/{ns}/pods"):
        if pod["metadata"]["uid"] == uid:
            over = kind == "DELETED" or pod["status"].get("phase") == "Failed"
        else:
            assert over is not together
            return
    raise AssertionError("no second pod")


def test_job_deadline(lab, ns):
    jobs = job(lab, ns, "exec sleep 1000", activeDeadlineSeconds=1)
    failed = lab.wait(jobs, "job", ended("Failed"))
    assert condition(failed, "Failed")["reason"] == "DeadlineExceeded"
    name = (pods_of(lab, ns) or [{"metadata": {"name": ""}}])[0]["metadata"]["name"]
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", name)


def test_job_is_removed_after_its_ttl_with_its_pods(lab, ns):
    jobs = job(lab, ns, "exit 0", ttlSecondsAfterFinished=0)
    lab.wait_gone(jobs, "job")
    for pod in pods_of(lab, ns):
        lab.wait_gone(f"api/v1/namespaces/{ns}/pods", pod["metadata"]["name"])


def test_suspended_job_has_no_pods_until_resumed(lab, ns):
    jobs = job(lab, ns, "exit 0", suspend=True)
    lab.wait(jobs, "job", ended("Suspended"))
    assert pods_of(lab, ns) == []
    lab.request("PATCH", f"{jobs}/job", {"spec": {"suspend": False}}, MERGE)
    done = lab.wait(jobs, "job", ended("Complete"))
    assert condition(done, "Suspended")["status"] == "False"


def test_job_deletion_ends_its_pods(lab, ns):
    jobs = job(lab, ns, "exec sleep 1000")
    lab.wait(jobs, "job", lambda j: j.get("status", {}).get("ready") == 1)
    (pod,) = pods_of(lab, ns)
    lab.request("DELETE", f"{jobs}/job", {"propagationPolicy": "Background"})
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", pod["metadata"]["name"])


def test_reverter_runs_away_from_its_target(lab, ns):
    """A Job as the fault engine makes it: tolerates everything, but may not be on the target."""
    spec = {**affinity("NotIn", "gpu-node-0", "gpu-node-1"), "tolerations": [{"operator": "Exists"}]}
    with cordoned(lab, "gpu-node-2", "gpu-node-3"):
        jobs = job(lab, ns, "exec sleep 1000", pod=spec)
        lab.wait(jobs, "job", lambda j: j.get("status", {}).get("ready") == 1)
    (pod,) = pods_of(lab, ns)
    assert pod["spec"]["nodeName"] in ("gpu-node-2", "gpu-node-3")


# daemon sets and deployments


def test_daemon_set_runs_everywhere_it_may_and_is_updated_one_by_one(lab, ns):
    sets = f"apis/apps/v1/namespaces/{ns}/daemonsets"
    labels = {"app": "d"}
    body = {"selector": {"matchLabels": labels}, "template": template(*IDLE, labels=labels)}
    body["template"]["spec"] |= {"restartPolicy": "Always", "terminationGracePeriodSeconds": 0}
    with cordoned(lab, "gpu-node-1"):
        create(lab, ns, "apis/apps/v1", "daemonsets", "d", body)
        ready = lab.wait(sets, "d", lambda d: d.get("status", {}).get("numberReady") == 4)
    assert ready["status"]["desiredNumberScheduled"] == ready["status"]["updatedNumberScheduled"] == 4
    before = {pod["metadata"]["uid"] for pod in pods_of(lab, ns)}
    change = {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
    lab.request("PATCH", f"{sets}/d", change, MERGE)
    least = 4
    for _kind, daemons in lab.watch(sets):
        status = daemons["status"]
        least = min(least, status["numberReady"])
        current = status["observedGeneration"] == daemons["metadata"]["generation"]
        if current and status["updatedNumberScheduled"] == status["numberReady"] == 4:
            break
    assert least == 3
    assert not before & {pod["metadata"]["uid"] for pod in pods_of(lab, ns)}


def test_daemon_set_follows_its_node_selector(lab, ns):
    sets = f"apis/apps/v1/namespaces/{ns}/daemonsets"
    labels = {"app": "d"}
    pod = template(*IDLE, labels=labels, nodeSelector={"pool": "a"})
    pod["spec"]["restartPolicy"] = "Always"
    create(lab, ns, "apis/apps/v1", "daemonsets", "d", {"selector": {"matchLabels": labels}, "template": pod})
    lab.wait(sets, "d", lambda d: d.get("status", {}).get("desiredNumberScheduled") == 0)
    lab.request("PATCH", f"{NODES}/gpu-node-2", {"metadata": {"labels": {"pool": "a"}}}, MERGE)
    try:
        lab.wait(sets, "d", lambda d: d["status"]["numberReady"] == d["status"]["desiredNumberScheduled"] == 1)
        assert [pod["spec"]["nodeName"] for pod in pods_of(lab, ns)] == ["gpu-node-2"]
    finally:
        lab.request("PATCH", f"{NODES}/gpu-node-2", {"metadata": {"labels": {"pool": None}}}, MERGE)
    lab.wait(sets, "d", lambda d: d["status"]["numberMisscheduled"] == d["status"]["desiredNumberScheduled"] == 0)


def test_deployment_scales_and_rolls(lab, ns):
    deployments = f"apis/apps/v1/namespaces/{ns}/deployments"
    labels = {"app": "w"}
    pod = template(*IDLE, labels=labels, terminationGracePeriodSeconds=0)
    pod["spec"]["restartPolicy"] = "Always"
    body = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
    create(lab, ns, "apis/apps/v1", "deployments", "w", body)

    def settled(replicas):
        return lambda d: (
            d.get("status", {}).get("observedGeneration") == d["metadata"]["generation"]
            and d["status"]["replicas"] == d["status"]["updatedReplicas"] == d["status"]["readyReplicas"] == replicas
        )

    lab.wait(deployments, "w", settled(2))
    lab.request("PATCH", f"{deployments}/w/scale", {"spec": {"replicas": 3}}, MERGE)
    lab.wait(deployments, "w", settled(3))
    before = {pod["metadata"]["uid"] for pod in pods_of(lab, ns)}
    change = {"spec": {"template": {"metadata": {"annotations": {"v": "2"}}}}}
    lab.request("PATCH", f"{deployments}/w", change, MERGE)
    done = lab.wait(deployments, "w", settled(3))
    assert condition(done, "Available")["status"] == "True"
    running = {p["metadata"]["uid"] for p in pods_of(lab, ns) if not p["metadata"].get("deletionTimestamp")}
    assert len(running) == 3
    assert not before & running


# the small ones


def test_disruption_budget_counts(lab, ns):
    labels = {"metadata": {"labels": {"app": "b"}}}
    lab.run_pod("one", *IDLE, namespace=ns, **labels)
    lab.run_pod("two", *IDLE, namespace=ns, **labels)
    for name in ("one", "two"):
        lab.wait_phase(name, "Running", ns)
    budgets = f"apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "b"}}}
    create(lab, ns, "apis/policy/v1", "poddisruptionbudgets", "b", spec)
    lab.wait(budgets, "b", lambda b: b.get("status", {}).get("disruptionsAllowed") == 1)
    eviction = {"metadata": {"name": "one"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    lab.request("POST", f"{lab.pod_path('one', ns)}/eviction", eviction)
    after = lab.wait(budgets, "b", lambda b: b["status"]["expectedPods"] == 1 and not b["status"]["disruptionsAllowed"])
    assert after["status"]["currentHealthy"] == after["status"]["desiredHealthy"] == 1
    with pytest.raises(ApiError) as refused:
        lab.request("POST", f"{lab.pod_path('two', ns)}/eviction", {"metadata": {"name": "two"}})
    assert refused.value.status == 429


def test_owner_takes_its_dependents_along(lab, ns):
    maps = f"api/v1/namespaces/{ns}/configmaps"
    owner = lab.request("POST", maps, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    lab.run_pod("owned", *IDLE, namespace=ns, metadata={"ownerReferences": [reference]})
    lab.wait_phase("owned", "Running", ns)
    lab.request("DELETE", f"{maps}/owner")
    lab.wait_gone(f"api/v1/namespaces/{ns}/pods", "owned")


def test_deleting_a_namespace_ends_its_pods(lab, ns):
    lab.run_pod("inside", *IDLE, namespace=ns, terminationGracePeriodSeconds=1)
    lab.wait_phase("inside", "Running", ns)
    lab.request("DELETE", f"api/v1/namespaces/{ns}")
    lab.wait_gone("api/v1/namespaces", ns)
    assert pods_of(lab, ns) == []


def test_nothing_is_left_when_the_controllers_are_done(lab):
    shown = chaos_gpu("lab", "status", "--dir", str(lab.root)).stdout
    assert "cordoned" not in shown
    assert not (lab.root / "server.log").read_text()
