"""The lab starts, is found, ends; and nothing of it stays, however it ends."""

import json
import os
import select
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos_gpu.lab.defects import DEFECTS
from chaos_gpu.lab.sweep import MARK, carriers

from .conftest import DEADLINE_S, PROGRAM, Lab, chaos_gpu


@contextmanager
def gone(*pids: int) -> Iterator[None]:
    """Fail unless all these processes, which run now, have ended soon after the block."""
    handles = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
        end = time.monotonic() + DEADLINE_S
        for handle in handles:
            ended, _, _ = select.select([handle], [], [], max(0.0, end - time.monotonic()))
            assert ended, f"a process of the lab still runs: {pids}"
    finally:
        for handle in handles:
            os.close(handle)


def processes(lab: Lab) -> list[int]:
    """Return every process of the lab, with the stubborn ones of `start_stubborn`."""
    return [*carriers(MARK, lab.facts["mark"]), *forgetful_children(lab)]


def forgetful_children(lab: Lab) -> list[int]:
    pid_file = lab.root / "forgetful"
    return [int(pid_file.read_text())] if pid_file.exists() else []


def start_stubborn(lab: Lab) -> None:
    """Run a pod that ignores SIGTERM, with a child in another session and one without the lab's mark."""
    script = (
        "trap '' TERM; setsid sleep 1000 & "
        f"env -i setsid sh -c 'echo $$$$ > {lab.root}/forgetful; exec sleep 1001' & "
        f"while [ ! -s {lab.root}/forgetful ]; do sleep 0.01; done; echo up; while :; do sleep 1; done"
    )
    lab.run_pod("stubborn", "sh", "-c", script)
    lab.wait_phase("stubborn", "Running")
    with_log = lab.request_text  # the log ends only with the pod, so follow it just as far as the first line
    assert with_log(f"{lab.pod_path('stubborn')}/log?follow=1&limitBytes=3") == "up\n"


def test_down_ends_everything(start_lab):
    with start_lab() as lab:
        start_stubborn(lab)
        with gone(*processes(lab)):
            assert chaos_gpu("lab", "down", "--dir", str(lab.root)).returncode == 0
        assert not list(carriers(MARK, lab.facts["mark"]))


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        ("guardian", signal.SIGTERM),
        ("server", signal.SIGTERM),
        ("server", signal.SIGKILL),
        ("guardian", signal.SIGKILL),
    ],
)
def test_no_orphan_after(start_lab, victim, number):
    with start_lab() as lab:
        start_stubborn(lab)
        everything = processes(lab)
        if (victim, number) == ("guardian", signal.SIGKILL):
            # orphans without a mark fell to the guardian; with it gone, nobody is left to know them
            everything = list(carriers(MARK, lab.facts["mark"]))
        assert len(everything) >= 9
        with gone(*everything):
            os.kill(lab.facts[victim], number)
        for pid in forgetful_children(lab):
            end_if_there(pid)


def end_if_there(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_guardian_and_server_killed_at_once_leave_no_pod_and_the_next_start_ends_the_rest(start_lab):
    with start_lab() as lab:
        start_stubborn(lab)
        marked = list(carriers(MARK, lab.facts["mark"]))
        main_processes = [int(pod_main_pid(lab, name)) for name in pod_names(lab)]
        with gone(*main_processes):
            handle = os.pidfd_open(lab.facts["server"])
            os.kill(lab.facts["guardian"], signal.SIGKILL)
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)
        left = set(marked) & set(carriers(MARK, lab.facts["mark"]))
        assert left, "the child in its own session was expected to live until the next start"
        with gone(*left):
            assert chaos_gpu("lab", "up", "--dir", str(lab.root)).returncode == 0
        for pid in forgetful_children(lab):
            end_if_there(pid)


def pod_names(lab: Lab) -> list[tuple[str, str]]:
    items = lab.get("api/v1/pods")["items"]
    return [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items]


def pod_main_pid(lab: Lab, name: tuple[str, str]) -> str:
    pod = lab.get(lab.pod_path(name[1], name[0]))
    return str(pod["status"]["containerStatuses"][0]["containerID"].removeprefix("process://"))


def test_kubeconfig_and_secrets_are_private(lab):
    for name in ("kubeconfig", "lab.json", "platform.json", "server.log", "audit.jsonl"):
        path = lab.root / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, name


def test_second_lab_in_the_same_directory_is_refused(lab):
    again = chaos_gpu("lab", "up", "--dir", str(lab.root))
    assert again.returncode == 4
    assert f"a lab is running in {lab.root}" in again.stderr
    assert "lab down" in again.stderr
    assert lab.get("api/v1/nodes")["items"]


def test_a_directory_with_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    refused = chaos_gpu("lab", "up", "--dir", str(tmp_path))
    assert refused.returncode == 4
    assert "something else" in refused.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_port_in_use_is_said(lab, tmp_path):
    port = lab.url.split(":")[2].split("/")[0]
    refused = chaos_gpu("lab", "up", "--dir", str(tmp_path / "other"), "--port", port)
    assert refused.returncode == 4
    assert "did not start" in refused.stderr
    assert "in use" in refused.stderr


def test_down_without_a_lab_is_no_error(tmp_path):
    done = chaos_gpu("lab", "down", "--dir", str(tmp_path))
    assert (done.returncode, "no lab was running" in done.stdout) == (0, True)


def test_status_shows_what_is_there(lab):
    shown = json.loads(chaos_gpu("lab", "status", "--dir", str(lab.root), "--json").stdout)
    assert [node["name"] for node in shown["nodes"]] == [f"gpu-node-{n}" for n in range(4)]
    assert {node["gpus"] for node in shown["nodes"]} == {8}
    agents = [pod for pod in shown["pods"] if pod["name"].startswith("gpu-health-agent-")]
    assert sorted(pod["node"] for pod in agents) == [node["name"] for node in shown["nodes"]]
    text = chaos_gpu("lab", "status", "--dir", str(lab.root))
    assert "gpu-node-3  8 GPUs, schedulable" in text.stdout


def test_status_without_a_lab(tmp_path):
    done = chaos_gpu("lab", "status", "--dir", str(tmp_path))
    assert done.returncode == 4
    assert "no lab is running" in done.stderr


def test_every_lab_has_its_own_secret(lab, start_lab):
    with start_lab() as other:
        assert other.url.rpartition("/")[2] != lab.url.rpartition("/")[2]


@pytest.mark.parametrize(
    ("option", "name", "known"), [("--defect", "detector-lies", "detector-slow"), ("--without", "hope", "detector")]
)
@pytest.mark.parametrize("command", ["up", "run"])
def test_unknown_defects_and_components_are_refused_with_the_list(tmp_path, command, option, name, known):
    rest = ["--", "true"] if command == "run" else []
    refused = chaos_gpu("lab", command, option, name, *rest, env={"CHAOS_GPU_LAB_DIR": str(tmp_path)})
    assert refused.returncode == 4
    assert name in refused.stderr
    assert known in refused.stderr
    assert not list(tmp_path.iterdir())


def test_defects_lists_all_with_one_line_each():
    facts = json.loads(chaos_gpu("lab", "defects", "--json").stdout)
    text = chaos_gpu("lab", "defects").stdout.splitlines()
    assert len(facts["defects"]) == len(DEFECTS)
    for defect in facts["defects"]:
        assert defect["changes"]
        assert any(line.startswith(defect["name"]) for line in text)


@pytest.mark.parametrize("command", [[], ["up"], ["down"], ["status"], ["run"], ["defects"]])
def test_help(command):
    shown = chaos_gpu("lab", *command, "--help")
    assert shown.returncode == 0
    assert "Usage" in shown.stdout


# lab run


def run_in_lab(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return chaos_gpu("lab", "run", "--no-install", *arguments, env=env)


def test_run_passes_environment_and_exit_code():
    done = run_in_lab("--", "sh", "-c", "env; exit 7")
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    assert done.returncode == 7
    assert environment["CHAOS_GPU_CONTEXT"] == environment["CHAOS_GPU_ENVIRONMENT"] == "lab"
    assert environment["CHAOS_GPU_CORDON_S"] == environment["CHAOS_GPU_CONDITION_S"] == "3"
    assert environment["CHAOS_GPU_UNCORDON_S"] == "3"
    assert environment["CHAOS_GPU_HOLD_S"] == "0.5"
    assert not Path(environment["KUBECONFIG"]).exists()


def test_run_with_keep_leaves_the_files():
    done = run_in_lab("--keep", "--", "true")
    root = Path(done.stderr.strip().rpartition(" ")[2])
    try:
        assert (root / "audit.jsonl").exists()
    finally:
        subprocess.run(["rm", "-r", str(root)], check=True)


def test_run_leaves_out_the_detector():
    done = run_in_lab("--without", "detector", "--", *PROGRAM, "lab", "status", "--json")
    names = [pod["name"] for pod in json.loads(done.stdout)["pods"]]
    assert [name for name in names if name.startswith("gpu-health-agent-")] == []


@pytest.mark.parametrize(
    ("command", "code"), [(["sh", "-c", "kill -KILL $$"], 137), (["/no/such/program"], 127), (["/"], 126)]
)
def test_run_exit_codes(command, code):
    assert run_in_lab("--", *command).returncode == code


def test_run_installs_and_opts_in():
    get = ["kubectl", "get", "ns", "chaos-gpu", "-o", "jsonpath={.metadata.annotations}"]
    done = chaos_gpu("lab", "run", "--", *get)
    assert done.returncode == 0, done.stderr
    annotations = json.loads(done.stdout)
    assert (annotations["chaos-gpu/enabled"], annotations["chaos-gpu/environment"]) == ("true", "lab")


@contextmanager
def lab_run(*command: str) -> Iterator[tuple["subprocess.Popen[str]", list[int], Path]]:
    """Start `lab run`; yield it, every process of its lab and of COMMAND, and the lab's directory."""
    script = 'echo "$CHAOS_GPU_LAB_DIR"; exec "$@"'
    argv = [*PROGRAM, "lab", "run", "--no-install", "--", "sh", "-c", script, "sh", *command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            root = Path(process.stdout.readline().strip())
            facts = json.loads((root / "lab.json").read_text())
            yield process, list(carriers(MARK, facts["mark"])), root
        finally:
            process.kill()


def test_run_killed_leaves_nothing():
    with lab_run("sleep", "1000") as (process, everything, root):
        assert len(everything) >= 7
        with gone(*everything):
            process.kill()
        assert not root.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_run_passes_signals_on(number):
    name = signal.Signals(number).name.removeprefix("SIG")
    script = f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.05; done"
    with lab_run("sh", "-c", script) as (process, everything, root):
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        with gone(*everything):
            process.send_signal(number)
            assert process.stdout.read() == "got\n"
            assert process.wait(DEADLINE_S) == 9
        assert not root.exists()


def test_run_command_dies_by_signal():
    with lab_run("sleep", "1000") as (process, _everything, _root):
        process.terminate()
        assert process.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_run_ends_what_command_leaves_behind():
    with lab_run("sh", "-c", "setsid sleep 1000 & echo ready; read wait < /dev/null; exit 0") as (process, _, root):
        assert process.stdout
        assert process.wait(DEADLINE_S) == 0
    assert not root.exists()
