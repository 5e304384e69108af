"""What a manifest may not be: endless, hostile, or other than what the guard has agreed to."""

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos_gpu.errors import UsageError
from chaos_gpu.faults.manifest import gpus_of, load
from chaos_gpu.faults.training import trainings

Json = dict[str, Any]
HEAD = """
apiVersion: batch/v1
kind: Job
metadata: {name: x, annotations: {chaos-gpu/store: /c}}
spec:
  template:
    spec: {containers: [{name: a, image: b}]}
"""
TENFOLD = "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
GPU = {"resources": {"limits": {"nvidia.com/gpu": 8}}}


def job(**pod: Any) -> Json:
    made: Json = yaml.safe_load(HEAD)
    made["spec"]["template"]["spec"] |= pod
    return made


def written(path: Path, *documents: Json | str) -> str:
    text = "\n---\n".join(each if isinstance(each, str) else yaml.safe_dump(each) for each in documents)
    path.write_text(text)
    return str(path)


def annotated(value: str) -> str:
    return HEAD.replace("template:", f"template:\n    metadata: {{annotations: {{d: {value}}}}}")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero", str(tmp_path)):
        with pytest.raises(UsageError, match="cannot be read"):
            load(path)


def test_a_file_without_an_end_is_not_read_to_it(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UsageError, match="more than 4194304 bytes"):
        load(str(tmp_path / "a"))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        HEAD + "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + TENFOLD,
        annotated("&a {self: *a}"),
        "a: &a {<<: *a}",
        "[" * 20000 + "]" * 20000,
        "{a: " * 3000 + "1" + "}" * 3000,
        "kind: [Job]",
    ],
    ids=["bomb", "endless", "merged", "deep list", "deep mapping", "kind"],
)
def test_hostile_yaml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        load(written(tmp_path / "a", text))


@pytest.mark.parametrize("value", ["2026-01-01", "!!binary aGVsbG8=", "!!set {a, b}", ".nan", "9" * 5000])
def test_what_cannot_be_sent_is_refused_before_anything_is_made(tmp_path: Path, value: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(written(tmp_path / "a", annotated(value)))
    load(written(tmp_path / "a", annotated("2026")))


def test_the_target_is_the_guard_s(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names a node"):
        load(written(tmp_path / "a", job(nodeName="gpu-node-3")))


@pytest.mark.parametrize("name", ["CHAOS_GPU_TRAINING", "CHAOS_GPU_STORE", "CHAOS_GPU_POD"])
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_what_the_run_sets_the_manifest_may_not(tmp_path: Path, name: str, containers: str) -> None:
    taken = {"name": "b", "env": [{"name": name, "value": "other"}]}
    made = job()
    pod = made["spec"]["template"]["spec"]
    pod[containers] = [*pod.get(containers, []), taken]
    with pytest.raises(UsageError, match=f"sets {name}"):
        load(written(tmp_path / "a", made))


@pytest.mark.parametrize(
    ("pod", "gpus"),
    [
        ({"initContainers": [{"name": "i", **GPU}]}, 8),
        ({"initContainers": [{"name": "i", **GPU}], "containers": [{"name": "a", **GPU}]}, 8),
        (
            {"initContainers": [{"name": "i", "restartPolicy": "Always", **GPU}], "containers": [{"name": "a", **GPU}]},
            16,
        ),
        (GPU, 8),
    ],
    ids=["before", "one after the other", "beside", "of the pod"],
)
def test_every_gpu_counts(pod: Json, gpus: int) -> None:
    assert gpus_of(job(**pod)) == gpus


@pytest.mark.parametrize("count", [-7, 1.5, True, "1k", "", None])
def test_a_count_is_a_whole_number(tmp_path: Path, count: Any) -> None:
    limited = {"name": "a", "resources": {"limits": {"nvidia.com/gpu": count}}}
    several, patient = job(), job(terminationGracePeriodSeconds=count)
    several["spec"]["parallelism"] = count
    for made in (job(containers=[limited]), several, patient):
        with pytest.raises(UsageError, match="no whole number"):
            load(written(tmp_path / "a", made))


def test_what_would_outlive_or_vanish_is_left_out(tmp_path: Path) -> None:
    """Kubernetes copies a template's finalizers into its pods, which then never go."""
    made = job()
    made["metadata"]["finalizers"] = ["example.com/hold"]
    made["spec"]["template"]["metadata"] = {"finalizers": ["example.com/hold"], "labels": {"a": "b"}}
    made["spec"]["ttlSecondsAfterFinished"] = 0
    for each in trainings(written(tmp_path / "a", copy.deepcopy(made)), "r1", "kill", "gpu-node-1"):
        assert "finalizers" not in str(each)
        assert each["spec"]["template"]["metadata"]["labels"]["a"] == "b"
        assert "ttlSecondsAfterFinished" not in each["spec"]
