"""Each format: whole, step and components; what a cut, a flipped bit, a missing file comes to."""

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError
from chaos_gpu.payloads.checkpoint_parts import component_of
from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import age, noise, safetensors, torch_legacy, torch_zip, train_state

FULL = ["model", "optimizer", "scheduler", "rng", "data", "scaler"]
LAYOUTS: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "torch-zip": (lambda root: torch_zip(root / "step_100.pt", train_state(100)), FULL),
    "lightning": (
        lambda root: torch_zip(root / "step=100.ckpt", lay.lightning_state(100)),
        ["model", "optimizer", "scheduler", "data", "scaler"],
    ),
    "hf-trainer": (lambda root: lay.hf_trainer(root, 100), FULL),
    "accelerate": (lambda root: lay.accelerate(root, 3, 100), FULL),
    "torchtitan": (lambda root: lay.torchtitan(root, 100), ["model", "optimizer", "scheduler", "data"]),
    "megatron": (lambda root: lay.megatron(root, 100), ["model", "optimizer", "scheduler", "rng", "data"]),
    "deepspeed": (lambda root: lay.deepspeed(root, 100), ["model", "optimizer", "scheduler"]),
    "nemo": (lambda root: lay.nemo(root, "x--step=100-last", 100), ["model", "optimizer"]),
    "orbax": (lambda root: lay.orbax(root, 100), ["model", "optimizer"]),
}


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "shallow"])
@pytest.mark.parametrize("form", LAYOUTS)
def test_whole(form: str, deep: bool, tmp_path: Path) -> None:
    build, components = LAYOUTS[form]
    answer = inspect(str(build(tmp_path)), deep=deep)
    assert (answer["format"], answer["complete"], answer["torn_reason"]) == (form, "yes", "")
    assert (answer["step"], answer["components"], answer["fraction"]) == (100, components, 1.0)


def test_what_is_registered_with_accelerate_is_part_of_its_save(tmp_path: Path) -> None:
    """It is written after all else: `random_states` are there, and it is missing or cut."""
    for number in (0, 1):
        path = lay.accelerate(tmp_path, number, 100 + number, sampler=False)
        torch_zip(path / "custom_checkpoint_0.pkl", {"sampler": {"position": 7}})
        torch_zip(path / "custom_checkpoint_1.pkl", {"decay": 0.5, "seen": 3})
    answer = inspect(str(path))
    assert (answer["complete"], answer["components"]) == ("yes", FULL)
    assert {"data.custom_checkpoint_0.position", "custom_checkpoint_1.decay"} <= answer["state_crcs"].keys()
    torch_zip(path / "custom_checkpoint_0.pkl", {"sampler": {"position": 8}})
    assert "data.custom_checkpoint_0.position" in inspect(str(path), str(tmp_path / "checkpoint_0"))["differs"]
    lay.cut(path / "custom_checkpoint_1.pkl", 0.5)
    assert "custom_checkpoint_1.pkl" in inspect(str(path))["torn_reason"]
    (path / "custom_checkpoint_1.pkl").unlink()
    assert inspect(str(path))["complete"] == "suspect"
    torch_zip(path / "custom_checkpoint_1.pkl", {})
    (path / "custom_checkpoint_0.pkl").unlink()
    assert inspect(str(path))["complete"] == "no"


def test_megatron_before_distributed_checkpoints(tmp_path: Path) -> None:
    answer = inspect(str(lay.megatron_legacy(tmp_path, 100)))
    assert (answer["format"], answer["complete"], answer["step"]) == ("megatron", "yes", 100)
    (tmp_path / "iter_0000100" / "mp_rank_01" / "model_optim_rng.pt").unlink()
    assert "mp_rank_01/model_optim_rng.pt is missing" in inspect(str(tmp_path / "iter_0000100"))["torn_reason"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("form", ["zip", "legacy", "safetensors"])
def test_a_file_that_is_cut_is_torn(form: str, share: float, tmp_path: Path) -> None:
    state = {"model": {"w": noise(5000)}, "step": 3}
    path = {
        "zip": lambda: torch_zip(tmp_path / "a.pt", state),
        "legacy": lambda: torch_legacy(tmp_path / "a.pt", state),
        "safetensors": lambda: safetensors(tmp_path / "a.safetensors", {"w": noise(5000)}),
    }[form]()
    assert inspect(str(path))["complete"] == "yes"
    answer = inspect(str(lay.cut(path, share)))
    assert answer["complete"] == "no"
    if share in (0.5, 0.9):
        assert answer["fraction"] == pytest.approx(share, abs=0.03)
        assert form == "safetensors" or answer["step"] == 3  # its pickle comes first, and tells what was to follow


@pytest.mark.parametrize("deep", [True, False], ids=["deep", "shallow"])
def test_a_flipped_bit_is_found_by_a_deep_read(deep: bool, tmp_path: Path) -> None:
    path = lay.flip(torch_zip(tmp_path / "a.pt", {"model": {"w": noise(500)}}), noise(500).data)
    answer = inspect(str(path), deep=deep)
    assert answer["complete"] == ("no" if deep else "yes")
    assert ("archive/data/0 is damaged" in answer["torn_reason"]) is deep


def test_a_flipped_bit_in_a_shard_names_the_tensor(tmp_path: Path) -> None:
    path = lay.torchtitan(tmp_path, 100)
    lay.flip(path / "__0_0.distcp", noise(64).data)
    answer = inspect(str(path))
    assert answer["complete"] == "no"
    assert "layer.weight: record archive/data/0 is damaged" in answer["torn_reason"]


@pytest.mark.parametrize("harm", ["missing", "short", "empty"])
def test_a_shard_that_is_not_whole(harm: str, tmp_path: Path) -> None:
    path = lay.torchtitan(tmp_path, 100)
    shard = path / "__1_0.distcp"
    {"missing": shard.unlink, "short": lambda: lay.cut(shard), "empty": lambda: shard.write_bytes(b"")}[harm]()
    answer = inspect(str(path), deep=False)
    assert answer["complete"] == "no"
    assert "__1_0.distcp" in answer["torn_reason"]
    assert 0 < answer["fraction"] < 1


def test_files_that_were_never_written_have_holes(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "a.safetensors", {"w": noise(1 << 18)})
    size = path.stat().st_size
    os.truncate(path, 4096)
    os.truncate(path, size)  # as a power cut leaves a file whose length was set first
    answer = inspect(str(path), deep=False)
    assert (answer["complete"], "hole" in answer["torn_reason"]) == ("no", True)


def test_rank_metadata_without_collectives(tmp_path: Path) -> None:
    path = lay.torchtitan(tmp_path, 100)
    (path / ".metadata").rename(path / "__0.metadata")
    assert inspect(str(path))["complete"] == "yes"


def test_a_peer_tells_what_is_missing_and_how_much(tmp_path: Path) -> None:
    lay.hf_trainer(tmp_path, 5)
    path = lay.hf_trainer(tmp_path, 10)
    (path / "scaler.pt").unlink()
    answer = inspect(str(path))
    assert answer["complete"] == "suspect"
    assert "scaler.pt is missing, checkpoint-5 has it" in answer["torn_reason"]
    (path / "trainer_state.json").unlink()
    (path / "optimizer.pt").unlink()
    assert 0.2 < inspect(str(path))["fraction"] < 0.9


def test_the_marker_beside_a_checkpoint_counts(tmp_path: Path) -> None:
    path = lay.nemo(tmp_path, "x-last", 5, unfinished=True)
    assert inspect(str(path))["complete"] == "suspect"
    (path / "weights" / "__0_0.distcp").unlink()
    assert inspect(str(path))["complete"] == "no"


def test_a_link_within_the_store_is_followed_and_told(tmp_path: Path) -> None:
    torch_zip(tmp_path / "step=8.ckpt", lay.lightning_state(8))
    (tmp_path / "last.ckpt").symlink_to("step=8.ckpt")
    assert inspect(str(tmp_path / "last.ckpt"))["step"] == 8
    answer: dict[str, Any] = inspect(str(tmp_path))
    assert (answer["pointers"], answer["latest"]) == ({"last.ckpt": "step=8.ckpt"}, "step=8.ckpt")
    (tmp_path / "step=8.ckpt").rename(tmp_path / "step=9.ckpt")
    assert "the pointer names step=8.ckpt, which is not there" in inspect(str(tmp_path))["notes"]


@pytest.mark.parametrize("name", ["optimizer.pt", "model.safetensors", "training_args.bin"])
def test_a_part_with_another_content_is_torn(name: str, tmp_path: Path) -> None:
    path = lay.hf_trainer(tmp_path, 5)
    (path / name).write_bytes(b"<html>503 Service Unavailable</html>")
    answer = inspect(str(path))
    assert answer["complete"] == "no"
    assert f"{name}: it is no" in answer["torn_reason"]


def test_an_orbax_step_without_any_marker(tmp_path: Path) -> None:
    path = lay.orbax(tmp_path, 1820, success=False)
    (path / "_CHECKPOINT_METADATA").unlink()
    answer = inspect(str(path))
    assert (answer["format"], answer["complete"]) == ("orbax", "no")


@pytest.mark.parametrize("form", ["legacy", "safetensors"])
def test_bytes_too_many_are_told(form: str, tmp_path: Path) -> None:
    if form == "legacy":
        path = torch_legacy(tmp_path / "a.pt", {"model": {"w": noise(50)}})
    else:
        path = safetensors(tmp_path / "a.safetensors", {"w": noise(50)})
    path.write_bytes(path.read_bytes() + b"x")
    answer = inspect(str(path))
    assert answer["complete"] == "no"
    assert "asks for" in answer["torn_reason"] or "ask for" in answer["torn_reason"]


@pytest.mark.parametrize(("change", "reason"), [("gone", "storage 1 is missing"), ("short", "storage 1 has 396 bytes")])
def test_a_directory_that_is_whole_may_lack_a_storage(change: str, reason: str, tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "a.pt", {"model": {"v": noise(100), "w": noise(100, 2)}})
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    last = records.pop("archive/data/1")
    if change == "short":
        records["archive/data/1"] = last[:-4]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    answer = inspect(str(path), deep=False)
    assert (answer["complete"], reason in answer["torn_reason"]) == ("no", True)


def test_tensors_with_a_gap_are_no_safetensors(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "a.safetensors", {"v": noise(4), "w": noise(4, 2)})
    path.write_bytes(path.read_bytes().replace(b"[16, 32]", b"[17, 33]") + b"x")
    with pytest.raises(CheckpointError, match="gap"):
        inspect(str(path))


def test_one_byte_less_of_a_shard_is_told(tmp_path: Path) -> None:
    path = lay.torchtitan(tmp_path, 100)
    shard = path / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:-1])
    os.utime(shard, (0, 0))
    assert inspect(str(path), deep=False)["complete"] == "no"


def test_a_name_and_a_content_of_another_step(tmp_path: Path) -> None:
    path = lay.hf_trainer(tmp_path, 5).rename(tmp_path / "checkpoint-6")
    answer = inspect(str(path))
    assert (answer["complete"], answer["step"]) == ("suspect", 5)
    assert "its name says 6, trainer_state.json says 5" in answer["torn_reason"]


def test_a_directory_that_lost_an_entry_is_broken(tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "a.pt", {"model": {"w": noise(8)}})
    data = bytearray(path.read_bytes())
    end = data.rindex(b"PK\x05\x06")
    data[end + 8 : end + 12] = bytes([data[end + 8] + 1, 0, data[end + 10] + 1, 0])
    path.write_bytes(data)
    assert "its zip directory is broken" in inspect(str(path))["torn_reason"]


def test_what_is_as_it_should_be_has_no_note(tmp_path: Path) -> None:
    torch_zip(tmp_path / "step=8.ckpt", lay.lightning_state(8))
    torch_zip(tmp_path / "step=9.ckpt", lay.lightning_state(9))
    age(tmp_path / "step=9.ckpt", 0.5)  # clocks and file systems are not exact to a second
    answer = inspect(str(tmp_path))
    assert answer["notes"] == []
    assert [member["notes"] for member in answer["members"]] == [[], []]


@pytest.mark.parametrize(
    ("key", "component"),
    [
        ("sampler", "data"),
        ("dl_state_dict", "data"),
        ("scaler", "scaler"),
        ("grad_scaler_state_dict", "scaler"),
        ("lr_schedulers", "scheduler"),
        ("opt_param_scheduler", "scheduler"),
        ("cuda_rng_state", "rng"),
        ("random_states", "rng"),
        ("optimizer_states", "optimizer"),
        ("model_state_dict", "model"),
        ("modeling_notes", None),
        ("loss", None),
        ("epoch", None),
    ],
)
def test_names_are_matched_whole(key: str, component: str | None) -> None:
    assert component_of(key) == component
