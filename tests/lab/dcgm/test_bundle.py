"""DCGM's programs from a ConfigMap: they run anywhere where there is Python, without this package."""

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.lab.dcgm.bundle import STATE, WHERE, Bundle, archive
from chaos_gpu.lab.dcgm.engine import write_inventory
from chaos_gpu.lab.dcgm.manifests import AGENT, ENGINE, EXPORTER, dcgm_objects
from chaos_gpu.lab.dcgm.nodes import FOUND_BY_R3, inventory
from chaos_gpu.lab.kubelet.devices import gpus_of
from chaos_gpu.lab.platform.health import diagnosis_pod
from chaos_gpu.lab.platform.health_manifests import health_objects
from chaos_gpu.lab.platform.health_rules import Step, facts_of

Json = dict[str, Any]
BUNDLE = Bundle("registry.example/tools:1", {"defects": []})


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with the programs in bin/ and the engine's files in state/."""
    (tmp_path / "bin").mkdir()
    write_inventory(tmp_path / "state", inventory(gpus_of(0), 0))
    found = BUNDLE.config_map("any")
    for name, text in found["data"].items():
        path = tmp_path / "bin" / name
        path.write_text(text.replace(WHERE, str(tmp_path / "bin")).replace(STATE, str(tmp_path / "state")))
        path.chmod(0o555)
    for name, data in found["binaryData"].items():
        (tmp_path / "bin" / name).write_bytes(base64.b64decode(data))
    (tmp_path / "bin/python3").symlink_to(sys.executable)
    return tmp_path


def dcgmi(node: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [str(node / "bin/dcgmi"), *arguments]
    return subprocess.run(argv, env=environment(node), capture_output=True, text=True, timeout=30, check=False)


def environment(node: Path) -> dict[str, str]:
    return {"PATH": f"{node / 'bin'}:{os.environ.get('PATH', os.defpath)}"}


@pytest.fixture
def engine(node: Path) -> Iterator[subprocess.Popen[str]]:
    """An engine that runs, under a shell whose exec can name a process."""
    argv = ["bash", str(node / "bin/nv-hostengine")]
    with subprocess.Popen(argv, env=environment(node), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "Host Engine Listener Started\n"
        yield process
        process.kill()


def test_an_engine_is_found_by_its_name_and_asked_on_its_node(node: Path, engine: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 20
    while Path(f"/proc/{engine.pid}/cmdline").read_bytes().split(b"\0")[0] != b"nv-hostengine":
        assert time.monotonic() < end
        time.sleep(0.01)
    said = dcgmi(node, "discovery", "-l")
    assert (said.returncode, said.stderr) == (0, "")
    assert re.findall(r"GPU-[0-9a-f-]{36}", said.stdout) == [gpu.uuid for gpu in gpus_of(0)]


def test_without_an_engine_there_is_none_to_connect_to(node: Path) -> None:
    assert dcgmi(node, "discovery", "-l").returncode == 235


def test_a_new_engine_knows_nothing_of_the_last_ones_faults(node: Path, engine: subprocess.Popen[str]) -> None:
    faults = node / "state/faults.json"
    faults.write_text(json.dumps(FOUND_BY_R3))
    assert dcgmi(node, "diag", "-r", "3", "-j").returncode == 226
    engine.kill()
    engine.wait()
    argv = ["bash", str(node / "bin/nv-hostengine")]
    with subprocess.Popen(argv, env=environment(node), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        assert not faults.exists()
        process.kill()


def test_the_archive_holds_all_that_the_programs_import(tmp_path: Path) -> None:
    (tmp_path / "dcgm.zip").write_bytes(archive())
    for program in ("dcgmi", "exporter", "agent"):
        code = f"import sys, chaos_gpu.lab.dcgm.{program}; print(sys.modules['chaos_gpu'].__file__)"
        environment = {"PYTHONPATH": str(tmp_path / "dcgm.zip")}
        said = subprocess.check_output([sys.executable, "-SP", "-c", code], env=environment, text=True)
        assert said.startswith(str(tmp_path))
    assert archive() == archive()


def test_every_container_has_the_programs_and_the_engine_of_its_node() -> None:
    objects = dcgm_objects(engine=True, exporter=True, agent=True, bundle=BUNDLE)
    workloads = {each["metadata"]["name"]: each for each in objects if each["kind"] == "DaemonSet"}
    assert set(workloads) == {ENGINE, EXPORTER, AGENT}
    spaces = {each["metadata"]["namespace"] for each in objects if each["kind"] == "ConfigMap"}
    assert spaces == {each["metadata"]["namespace"] for each in workloads.values()}
    for workload in workloads.values():
        check(workload["spec"]["template"]["spec"])


def test_a_diagnosis_of_the_policy_has_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = next(each for each in health_objects(bundle=BUNDLE) if each["kind"] == "Deployment")
    container = policy["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == BUNDLE.image
    for entry in container["env"]:
        monkeypatch.setenv(entry["name"], entry["value"])
    facts = facts_of({"metadata": {"name": "gpu-node-0"}}, None)
    spec = diagnosis_pod(facts, Step("diagnose", 3), 0.0)["spec"]
    check(spec)
    assert [each["command"][:2] for each in spec["containers"]] == [["dcgmi", "diag"], ["dcgmi", "discovery"]]


def check(spec: Json) -> None:
    volumes = {each["name"]: each for each in spec["volumes"]}
    for container in spec["containers"]:
        assert container["image"] == BUNDLE.image
        where = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
        assert where[WHERE]["configMap"] == {"name": "dcgm-programs", "defaultMode": 0o555}
        assert where[STATE]["hostPath"]["path"] == STATE
