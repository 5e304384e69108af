"""The reader on what the real libraries write. CHAOS_GPU_TORCH_PYTHON names a Python that has them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect

pytestmark = pytest.mark.torch

PYTHON = os.environ.get("CHAOS_GPU_TORCH_PYTHON", sys.executable)
SCRIPT = Path(__file__).with_name("real_writers.py")
FORMS = {"zip.pt": "torch-zip", "legacy.pt": "torch-legacy", "unchecked.pt": "torch-zip", "dcp": "dcp", "async": "dcp"}
ALL = ["model", "optimizer", "scheduler", "rng", "data", "scaler"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    probe = subprocess.run([PYTHON, "-c", "import torch, safetensors, numpy"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("no torch here; CHAOS_GPU_TORCH_PYTHON may name a Python that has it")
    root = tmp_path_factory.mktemp("real")
    subprocess.run([PYTHON, str(SCRIPT), str(root)], check=True, capture_output=True, timeout=250)
    return root


@pytest.mark.parametrize("name", FORMS)
def test_whole_and_equal_in_every_form(name: str, written: Path) -> None:
    answer = inspect(str(written / name), str(written / "zip.pt"))
    assert (answer["format"], answer["complete"], answer["step"]) == (FORMS[name], "yes", 1)
    assert answer["components"] == [each for each in ALL if each != "scaler" or "scaler" in answer["components"]]
    assert answer["differs"] == []


@pytest.mark.parametrize("name", ["later.pt", "dcp-later"])
def test_one_more_step_differs_in_every_part_that_it_changes(name: str, written: Path) -> None:
    answer = inspect(str(written / name), str(written / "zip.pt"))
    parts = {each.split(".")[0] for each in answer["differs"]}
    assert {"model", "optimizer", "scheduler", "rng", "data", "step"} <= parts


def test_safetensors_hold_the_same_weights(written: Path) -> None:
    weights = inspect(str(written / "model.safetensors"))["state_crcs"]
    assert weights.items() <= inspect(str(written / "zip.pt"))["state_crcs"].items()


@pytest.mark.parametrize("share", [0.3, 0.8, 0.99])
@pytest.mark.parametrize("name", ["zip.pt", "legacy.pt"])
def test_a_cut_is_found(name: str, share: float, written: Path, tmp_path: Path) -> None:
    data = (written / name).read_bytes()
    (tmp_path / name).write_bytes(data[: int(len(data) * share)])
    assert inspect(str(tmp_path / name))["complete"] == "no"


@pytest.mark.parametrize("harm", [".metadata", "__0_0.distcp"])
def test_a_missing_file_is_found(harm: str, written: Path, tmp_path: Path) -> None:
    shutil.copytree(written / "dcp", tmp_path / "dcp")
    (tmp_path / "dcp" / harm).unlink()
    assert inspect(str(tmp_path / "dcp"))["complete"] == "no"


FRAMEWORKS = {
    "transformers": ("hf-trainer", "checkpoint-4", "optimizer.pt", {"rng", "data"}),
    "accelerate": ("accelerate", "checkpoint_1", "optimizer.bin", {"rng"}),
    "lightning": ("lightning", "epoch=0-step=4.ckpt", "", {"data"}),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_a_framework_saves_is_whole_and_a_cut_is_found(name: str, tmp_path: Path) -> None:
    form, newest, part, more = FRAMEWORKS[name]
    probe = subprocess.run([PYTHON, "-c", f"import torch, {name}"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no {name} here; CHAOS_GPU_TORCH_PYTHON may name a Python that has it")
    script = SCRIPT.with_name("real_frameworks.py")
    subprocess.run([PYTHON, str(script), name, str(tmp_path)], check=True, capture_output=True, timeout=250)
    path = next(tmp_path.rglob(newest))
    answer = inspect(str(path))
    assert (answer["format"], answer["complete"], answer["torn_reason"]) == (form, "yes", "")
    assert set(answer["components"]) == {"model", "optimizer", "scheduler"} | more
    store = inspect(str(path.parent))
    assert {member["complete"] for member in store["members"]} == {"yes"}
    torn = path / part if part else path
    torn.write_bytes(torn.read_bytes()[:-100])
    assert inspect(str(path))["complete"] == "no"
    assert inspect(str(path.parent))["newest_complete"] != newest
