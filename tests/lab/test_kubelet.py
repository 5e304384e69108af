"""The kubelet runs pods as a real one does, seen through the API only."""

import base64
import contextlib
import json
import os
import re
import select
import sys
import urllib.request
from pathlib import Path

import pytest

from .conftest import ApiError, Lab

PODS = "api/v1/namespaces/default/pods"
UNTIL_TERM = "trap 'echo got TERM; exit 0' TERM; echo up; while :; do sleep 0.02; done"


@pytest.fixture
def name(request):
    """A pod name of the test's own."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")


@pytest.fixture
def pod(lab, name):
    """Run a pod, and remove it afterwards."""
    made = []

    def run(*command, name=name, **spec):
        made.append(name)
        return lab.run_pod(name, *command, **spec)

    yield run
    for each in made:
        with contextlib.suppress(ApiError):  # gone already
            lab.request("DELETE", lab.pod_path(each), {"gracePeriodSeconds": 0})


def condition(pod, kind):
    return next(c for c in pod["status"]["conditions"] if c["type"] == kind)


def main_container(pod):
    return next(c for c in pod["status"]["containerStatuses"] if c["name"] == "main")


def create(lab: Lab, plural: str, body: dict) -> None:
    lab.request("POST", f"api/v1/namespaces/default/{plural}", body)


# phases, exit codes, restarts


@pytest.mark.parametrize(
    ("script", "phase", "code", "reason"),
    [
        ("exit 0", "Succeeded", 0, "Completed"),
        ("exit 5", "Failed", 5, "Error"),
        ("kill -KILL $$$$", "Failed", 137, "Error"),
        ("kill -TERM $$$$", "Failed", 143, "Error"),
    ],
)
def test_end(lab, pod, name, script, phase, code, reason):
    pod("sh", "-c", script)
    ended = lab.wait_phase(name, phase)
    state = main_container(ended)["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (code, reason)
    assert state["startedAt"] <= state["finishedAt"]
    assert condition(ended, "Ready")["status"] == condition(ended, "ContainersReady")["status"] == "False"
    assert condition(ended, "Ready")["reason"] == ("PodCompleted" if phase == "Succeeded" else "PodFailed")


def test_running(lab, pod, name):
    pod("sleep", "1000")
    running = lab.wait_phase(name, "Running")
    assert {c["type"] for c in running["status"]["conditions"] if c["status"] == "True"} == {
        "PodScheduled",
        "Initialized",
        "ContainersReady",
        "Ready",
        "PodReadyToStartContainers",
    }
    container = main_container(running)
    assert (container["ready"], container["restartCount"]) == (True, 0)
    assert container["state"]["running"]["startedAt"]
    assert running["status"]["startTime"]
    assert running["status"]["podIP"].startswith("127.")
    assert running["status"]["hostIP"].startswith("127.")


def test_two_pods_have_different_addresses(lab, pod, name):
    for each in (name, name + "-2"):
        pod("sleep", "1000", name=each)
    first, second = (lab.wait_phase(each, "Running")["status"]["podIP"] for each in (name, name + "-2"))
    assert first != second


def test_labs_beside_each_other_share_no_address(lab, start_lab):
    """A pod that listens would keep the other lab's from it, and a probe would ask the wrong one."""

    def addresses(of):
        return {pod["status"]["podIP"] for pod in of.request("GET", "api/v1/pods")["items"]}

    with start_lab("--only", "dcgm-engine", "--only", "dcgm-exporter") as one:
        assert addresses(one)
        assert not addresses(one) & addresses(lab)


def test_restart_always_counts_and_backs_off(lab, pod, name):
    pod("sh", "-c", "echo run; exit 1", restartPolicy="Always")
    waiting = lab.wait(PODS, name, lambda p: waits_after(p, restarts=2))
    container = main_container(waiting)
    assert waiting["status"]["phase"] == "Running"
    assert container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert lab.logs(name, query="previous=true") == "run\n"


def test_one_start_that_has_ended_is_kept(lab, pod, name, tmp_path):
    """As a kubelet does: the log of the start before is there until the present one has ended, too."""
    mark, go = tmp_path / "mark", tmp_path / "go"
    pod("sh", "-c", f"[ -e {mark} ] || {{ touch {mark}; echo first; exit 3; }}; echo second; "
        f"until [ -e {go} ]; do sleep 0.05; done", restartPolicy="OnFailure")  # fmt: skip
    again = main_container(lab.wait(PODS, name, runs_again))
    assert again["lastState"]["terminated"]["exitCode"] == 3
    assert lab.logs(name, query="previous=true") == "first\n"
    go.touch()
    over = main_container(lab.wait(PODS, name, lambda p: p["status"]["phase"] == "Succeeded"))
    assert over["lastState"] == {}
    assert lab.logs(name) == "second\n"
    with pytest.raises(ApiError) as refused:
        lab.logs(name, query="previous=true")
    assert refused.value.status == 400


def runs_again(pod):
    status = (pod["status"].get("containerStatuses") or [{}])[0]
    return status.get("restartCount", 0) and "running" in status["state"]


def waits_after(pod, restarts):
    status = (pod["status"].get("containerStatuses") or [{}])[0]
    return status.get("restartCount", 0) >= restarts and "waiting" in status["state"]


def test_restart_on_failure_stops_at_success(lab, pod, name):
    script = "if [ -e done ]; then exit 0; fi; touch done; exit 1"
    pod("sh", "-c", script, restartPolicy="OnFailure")
    assert main_container(lab.wait_phase(name, "Succeeded"))["restartCount"] == 1


def test_program_that_does_not_exist(lab, pod, name):
    pod("/no/such/program")
    state = main_container(lab.wait_phase(name, "Failed"))["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert "/no/such/program" in state["message"]


def test_init_containers_run_one_by_one_before_the_others(lab, pod, name):
    shared = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
    script = 'sleep 0.1; echo {} >> "$0"'
    inits = [
        {
            "name": f"init-{n}",
            "image": "x",
            "command": ["sh", "-c", script.format(f"init-{n}"), "/shared/order"],
            **shared,
        }
        for n in (1, 2)
    ]
    pod("cat", "/shared/order", container=shared, volumes=[{"name": "shared", "emptyDir": {}}], initContainers=inits)
    pending = lab.wait(PODS, name, lambda p: p["status"].get("initContainerStatuses"))
    assert pending["status"]["phase"] == "Pending"
    assert condition(pending, "Initialized")["status"] == "False"
    done = lab.wait_phase(name, "Succeeded")
    assert lab.logs(name) == "init-1\ninit-2\n"
    assert [c["state"]["terminated"]["exitCode"] for c in done["status"]["initContainerStatuses"]] == [0, 0]


def test_failing_init_container_fails_the_pod(lab, pod, name):
    pod("true", initContainers=[{"name": "init", "image": "x", "command": ["sh", "-c", "exit 4"]}])
    failed = lab.wait_phase(name, "Failed")
    assert failed["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert "waiting" in main_container(failed)["state"]


def test_several_containers_have_their_own_logs_and_codes(lab, name):
    containers = [
        {"name": each, "image": "x", "command": ["sh", "-c", f"echo {each}; exit {code}"]}
        for each, code in (("main", 0), ("other", 3))
    ]
    body = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": containers}}
    create(lab, "pods", body)
    failed = lab.wait_phase(name, "Failed")
    codes = {c["name"]: c["state"]["terminated"]["exitCode"] for c in failed["status"]["containerStatuses"]}
    assert codes == {"main": 0, "other": 3}
    assert lab.logs(name, query="container=other") == "other\n"
    lab.request("DELETE", lab.pod_path(name))


def test_python3_is_the_labs_own(lab, pod, name):
    pod("sh", "-c", "python3 -c 'import sys; print(sys.version_info[:2])'")
    lab.wait_phase(name, "Succeeded")
    version = sys.version_info
    assert lab.logs(name) == f"({version[0]}, {version[1]})\n"


# the end of a pod


def test_delete_sends_sigterm_and_reports_the_end_before_the_object_goes(lab, pod, name):
    pod("sh", "-c", UNTIL_TERM)
    lab.wait_phase(name, "Running")
    assert lab.request_text(f"{lab.pod_path(name)}/log?follow=1&limitBytes=3") == "up\n"
    events = lab.watch(PODS)
    next(event for event in events if event[1]["metadata"]["name"] == name)
    deleted = lab.request("DELETE", lab.pod_path(name), {"gracePeriodSeconds": 20})
    assert deleted["metadata"]["deletionTimestamp"]
    seen = []
    for kind, obj in events:
        if obj["metadata"]["name"] == name:
            seen.append((kind, main_container(obj)["state"].get("terminated", {}).get("exitCode")))
            if kind == "DELETED":
                break
    assert seen[0] == ("MODIFIED", None)
    assert ("MODIFIED", 0) in seen
    assert seen[-1][0] == "DELETED"


def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(lab, pod, name):
    pod("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.02; done")
    lab.wait_phase(name, "Running")
    lab.request_text(f"{lab.pod_path(name)}/log?follow=1&limitBytes=3")
    events = lab.watch(PODS)
    next(event for event in events if event[1]["metadata"]["name"] == name)
    lab.request("DELETE", lab.pod_path(name), {"gracePeriodSeconds": 1})
    mine = [obj for kind, obj in until_gone(events, name) if kind != "DELETED"]
    assert main_container(mine[-1])["state"]["terminated"]["exitCode"] == 137


def until_gone(events, name):
    for kind, obj in events:
        if obj["metadata"]["name"] == name:
            yield kind, obj
            if kind == "DELETED":
                return


def test_who_deletes_it_again_may_leave_it_less_time(lab, pod, name):
    pod("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.02; done", terminationGracePeriodSeconds=3600)
    lab.wait_phase(name, "Running")
    lab.request_text(f"{lab.pod_path(name)}/log?follow=1&limitBytes=3")
    lab.request("DELETE", lab.pod_path(name))
    lab.request("DELETE", lab.pod_path(name), {"gracePeriodSeconds": 1})
    lab.wait_gone(PODS, name)


def test_forced_deletion_removes_object_and_processes_at_once(lab, pod, name):
    created = pod("sh", "-c", "trap '' TERM; setsid sleep 1234 & while :; do sleep 0.02; done")
    running = lab.wait_phase(name, "Running")
    handle = os.pidfd_open(int(main_container(running)["containerID"].removeprefix("process://")))
    lab.request("DELETE", lab.pod_path(name), {"gracePeriodSeconds": 0})
    lab.wait_gone(PODS, name)
    assert select.select([handle], [], [], 10)[0]
    os.close(handle)
    assert created["metadata"]["uid"]


def test_active_deadline(lab, pod, name):
    pod("sh", "-c", UNTIL_TERM, activeDeadlineSeconds=1, terminationGracePeriodSeconds=5)
    failed = lab.wait_phase(name, "Failed")
    assert failed["status"]["reason"] == "DeadlineExceeded"
    assert main_container(failed)["state"]["terminated"]["exitCode"] == 0
    assert "got TERM" in lab.logs(name)


def test_what_a_container_started_ends_with_it(lab, pod, name):
    pod("sh", "-c", "sleep 1000 & echo $!; exit 0")
    lab.wait_phase(name, "Succeeded")
    child = int(lab.logs(name))
    assert not is_alive(child)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


# environment and volumes


def test_environment(lab, pod, name):
    env = [
        {"name": "PLAIN", "value": "a $(NOT_THERE) $$(PLAIN)"},
        {"name": "BUILT", "value": "<$(PLAIN)>"},
        *(
            {"name": path.replace(".", "_"), "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for path in ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName")
        ),
        {"name": "NOTE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['a/note']"}}},
    ]
    created = pod("env", container={"env": env}, metadata={"annotations": {"a/note": 'x "y" é'}}, nodeName="gpu-node-2")
    lab.wait_phase(name, "Succeeded")
    seen = dict(line.split("=", 1) for line in lab.logs(name).splitlines())
    assert seen["PLAIN"] == "a $(NOT_THERE) $(PLAIN)"
    assert seen["BUILT"] == "<a $(NOT_THERE) $(PLAIN)>"
    assert (seen["metadata_name"], seen["metadata_namespace"]) == (name, "default")
    assert seen["metadata_uid"] == created["metadata"]["uid"]
    assert seen["spec_nodeName"] == seen["LAB_NODE"] == "gpu-node-2"
    assert seen["NOTE"] == 'x "y" é'
    node = lab.root / "nodes" / "gpu-node-2"
    assert seen["KMSG_FILE_PATH"] == str(node / "kmsg")
    assert seen["KMSG_WRITE_PATH"] == str(node / "kmsg.in")
    assert seen["NVIDIA_PROC_PATH"] == str(node / "driver")
    assert seen["KUBERNETES_API_URL"] == lab.facts["pod_url"]
    assert seen["PATH"].startswith(str(lab.root / "bin"))
    assert "NVIDIA_VISIBLE_DEVICES" not in seen
    assert not {variable for variable in seen if variable.startswith(("CHAOS_GPU_C", "KUBECONFIG", "PYTEST"))}


def test_configuration_in_environment_and_volumes(lab, pod, name):
    create(lab, "configmaps", {"metadata": {"name": name}, "data": {"k": "from map", "other": "o"}})
    secret = {"metadata": {"name": name}, "data": {"s": base64.b64encode(b"\x00\xffbytes").decode(), "t": "dGV4dA=="}}
    create(lab, "secrets", secret)
    env = [
        {"name": "K", "valueFrom": {"configMapKeyRef": {"name": name, "key": "k"}}},
        {"name": "T", "valueFrom": {"secretKeyRef": {"name": name, "key": "t"}}},
        {"name": "MISSING", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "t", "optional": True}}},
        {"name": "WHERE", "value": "/etc/all/map"},
    ]
    sources = [
        {"configMap": {"name": name, "items": [{"key": "k", "path": "map/renamed"}]}},
        {"secret": {"name": name, "items": [{"key": "s", "path": "secret"}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    pod(
        "sh",
        "-c",
        'echo "$K,$T,${MISSING-unset}"; cat "$WHERE/renamed"; echo; od -An -tx1 < "$0"; cat "$1"; ls "$2"',
        "/etc/all/secret",
        "/etc/all/name",
        "/etc/plain",
        container={
            "env": env,
            "volumeMounts": [{"name": "all", "mountPath": "/etc/all"}, {"name": "plain", "mountPath": "/etc/plain"}],
        },
        volumes=[
            {"name": "all", "projected": {"sources": sources}},
            {"name": "plain", "configMap": {"name": name}},
        ],
    )
    lab.wait_phase(name, "Succeeded")
    assert lab.logs(name) == f"from map,text,unset\nfrom map\n 00 ff 62 79 74 65 73\n{name}k\nother\n"


def test_annotation_arrives_in_exact_bytes_and_is_updated(lab, pod, name):
    payload = "#!/usr/bin/python3\nprint('é \\\\ \" $(HOME) \t')\r\n\u2028end without newline"
    items = [{"path": "payload.py", "fieldRef": {"fieldPath": "metadata.annotations['p']"}}]
    script = 'cat "$0"; while [ "$(cat "$0")" != changed ]; do sleep 0.02; done'
    pod(
        "sh",
        "-c",
        script,
        "/payload/payload.py",
        container={"volumeMounts": [{"name": "v", "mountPath": "/payload/"}]},
        volumes=[{"name": "v", "downwardAPI": {"items": items}}],
        metadata={"annotations": {"p": payload}},
    )
    lab.wait_phase(name, "Running")
    change = {"metadata": {"annotations": {"p": "changed"}}}
    lab.request("PATCH", lab.pod_path(name), change, "application/merge-patch+json")
    lab.wait_phase(name, "Succeeded")
    with urllib.request.urlopen(f"{lab.url}/{lab.pod_path(name)}/log") as answer:
        assert answer.read() == payload.encode()


def test_pod_waits_for_a_config_map_that_comes_later(lab, pod, name):
    pod(
        "cat",
        "/c/k",
        container={"volumeMounts": [{"name": "c", "mountPath": "/c"}]},
        volumes=[{"name": "c", "configMap": {"name": name}}],
    )
    waiting = lab.wait(PODS, name, lambda p: p["status"].get("containerStatuses"))
    assert waiting["status"]["phase"] == "Pending"
    assert name in main_container(waiting)["state"]["waiting"]["message"]
    create(lab, "configmaps", {"metadata": {"name": name}, "data": {"k": "late"}})
    lab.wait_phase(name, "Succeeded")
    assert lab.logs(name) == "late"


def test_service_account_token_opens_the_api_with_its_rights_only(lab, pod, name):
    script = """
import os, urllib.request, urllib.error
root = os.environ["SERVICEACCOUNT_DIR"]
print(open(root + "/namespace").read())
def ask(token, path):
    request = urllib.request.Request(os.environ["KUBERNETES_API_URL"] + path)
    if token: request.add_header("Authorization", "Bearer " + token)
    try: print(urllib.request.urlopen(request).status)
    except urllib.error.HTTPError as e: print(e.code)
token = open(root + "/token").read()
ask("", "/api/v1/nodes"); ask("wrong", "/api/v1/nodes"); ask(token, "/api/v1/nodes"); ask(token, "/api")
"""
    pod("python3", "-c", script.replace("$", "$$"))
    lab.wait_phase(name, "Succeeded")
    assert lab.logs(name).split() == ["default", "401", "401", "403", "200"]


def test_volume_type_that_is_not_modelled_is_said(lab, pod, name):
    pod(
        "true",
        container={"volumeMounts": [{"name": "n", "mountPath": "/n"}]},
        volumes=[{"name": "n", "nfs": {"server": "s", "path": "/"}}],
    )
    waiting = lab.wait(PODS, name, lambda p: p["status"].get("containerStatuses"))
    assert "nfs is not modelled" in main_container(waiting)["state"]["waiting"]["message"]


# GPUs


def gpu_limits(count):
    return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}


def test_gpus_are_given_out_once(lab, pod, name):
    on_node = {"nodeSelector": {"kubernetes.io/hostname": "gpu-node-3"}}
    script = 'echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 1000'
    for number in (1, 2):
        pod("sh", "-c", script, name=f"{name}-{number}", container=gpu_limits(4), **on_node)
    for number in (1, 2):
        lab.wait_phase(f"{name}-{number}", "Running")
    pod("sh", "-c", script, name=f"{name}-3", container=gpu_limits(1), **on_node)
    held = lab.wait(PODS, f"{name}-3", lambda p: p["status"].get("conditions"))
    unscheduled = condition(held, "PodScheduled")
    assert (unscheduled["status"], unscheduled["reason"]) == ("False", "Unschedulable")
    assert "1 Insufficient nvidia.com/gpu" in unscheduled["message"]
    uuids = [
        lab.request_text(f"{lab.pod_path(f'{name}-{n}')}/log?follow=1&limitBytes=163").strip().split(",")
        for n in (1, 2)
    ]
    every = {lab.gpu("gpu-node-3", n)[1] for n in range(8)}
    assert set(uuids[0]) | set(uuids[1]) == every
    assert not set(uuids[0]) & set(uuids[1])
    lab.request("DELETE", lab.pod_path(f"{name}-1"), {"gracePeriodSeconds": 5})
    lab.wait_phase(f"{name}-3", "Running")


def test_a_pod_forced_onto_a_full_node_is_rejected(lab, pod, name):
    pod("sleep", "1000", container=gpu_limits(8), nodeName="gpu-node-1")
    lab.wait_phase(name, "Running")
    pod("sleep", "1000", name=f"{name}-2", container=gpu_limits(1), nodeName="gpu-node-1")
    failed = lab.wait_phase(f"{name}-2", "Failed")
    assert failed["status"]["reason"] == "UnexpectedAdmissionError"


# logs


def test_log_queries(lab, pod, name):
    pod("sh", "-c", "for n in 1 2 3 4 5; do echo line $n; done; echo err >&2; printf tail")
    lab.wait_phase(name, "Succeeded")
    full = lab.logs(name)
    assert full.startswith("line 1\nline 2\n")
    assert sorted(full.splitlines()) == sorted([*(f"line {n}" for n in range(1, 6)), "err", "tail"])
    assert not full.endswith("\n")
    assert lab.logs(name, query="tailLines=1") == "tail"
    assert lab.logs(name, query="tailLines=0") == ""
    assert lab.logs(name, query="limitBytes=9") == "line 1\nli"
    assert lab.logs(name, query="sinceSeconds=3600") == full
    stamped = lab.logs(name, query="timestamps=true&tailLines=1")
    assert stamped.endswith("Z tail")


def test_follow_ends_with_the_container(lab, pod, name):
    pod("sh", "-c", "for n in 1 2 3; do echo $n; sleep 0.1; done")
    lab.wait(PODS, name, lambda p: p["status"]["phase"] in ("Running", "Succeeded"))
    assert lab.logs(name, query="follow=true") == "1\n2\n3\n"


def test_no_log_yet(lab, pod, name):
    pod("true", nodeSelector={"no": "where"})
    with pytest.raises(ApiError) as refused:
        lab.logs(name)
    assert refused.value.status == 400


def test_readiness_probe_decides_about_ready(lab, pod, name):
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1, "failureThreshold": 1}
    pod("sh", "-c", "echo up; sleep 0.3; touch ready; exec sleep 1000", container={"readinessProbe": probe})
    unready = lab.wait_phase(name, "Running")
    assert condition(unready, "Ready")["status"] == "False"
    assert condition(unready, "Ready")["reason"] == "ContainersNotReady"
    lab.wait(PODS, name, lambda p: condition(p, "Ready")["status"] == "True")


def test_events_tell_the_story(lab, pod, name):
    pod("sleep", "1000")
    lab.wait_phase(name, "Running")
    seen = set()
    for _kind, event in lab.watch("api/v1/namespaces/default/events"):
        if event["involvedObject"]["name"] == name:
            seen.add(event["reason"])
        if {"Scheduled", "Started"} <= seen:
            return
    raise AssertionError(json.dumps(sorted(seen)))
