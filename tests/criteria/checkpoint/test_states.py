"""Which values differ between two checkpoints, and which components that names."""

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError
from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import (
    MODEL,
    Chunks,
    Tensor,
    View,
    dcp,
    floats,
    noise,
    safetensors,
    torch_legacy,
    torch_zip,
    train_state,
)

ALL = ["model", "optimizer", "scheduler", "rng", "data", "scaler"]

Write = Callable[[Path, Any], Path]


def as_zip(root: Path, state: Any) -> Path:
    return torch_zip(root / "step_7.pt", state)


def as_legacy(root: Path, state: Any) -> Path:
    bytes_only = {**state, "rng": {**state["rng"], "torch": noise(8, 9)}} if "rng" in state else state
    root.mkdir(parents=True, exist_ok=True)
    return torch_legacy(root / "step_7.pt", bytes_only)


def as_dcp(root: Path, state: Any) -> Path:
    flat: dict[str, Any] = {}
    for part, values in state.items():
        for key, value in values.items() if isinstance(values, dict) else [("", values)]:
            flat[f"{part}.{key}".rstrip(".")] = value
    return dcp(root / "any", flat, files=2)


WRITERS = {"torch-zip": as_zip, "torch-legacy": as_legacy, "dcp": as_dcp}

CHANGES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "nothing": ({}, set()),
    "Megatron-Bridge#5257: one draw of the RNG": ({"rng": {"torch": noise(64, 4), "python": (3, (1,), None)}}, {"rng"}),
    "slime#1546: the scheduler went twice as far": (
        {"scheduler": {"last_epoch": 14, "_last_lr": [0.1]}},
        {"scheduler"},
    ),
    "torchtitan#1136: one embedding's optimizer state": (
        {"optimizer": {"state": {0: {"step": floats(7), "exp_avg": noise(64, 8)}}, "param_groups": []}},
        {"optimizer"},
    ),
    "apex#480: no scaler": ({"scaler": None}, {"scaler"}),
    "data position": ({"data": {"epoch": 0, "position": 0}}, {"data"}),
    "step off by one": ({"step": 6}, {"step"}),
    "model": ({"model": {**MODEL, "layer.bias": floats(0.5, -0.25)}}, {"model"}),
}


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_difference_names_its_component(form: str, change: str, tmp_path: Path) -> None:
    changes, components = CHANGES[change]
    reference = WRITERS[form](tmp_path / "a", train_state(7))
    resumed = WRITERS[form](tmp_path / "b", train_state(7, **changes))
    answer = inspect(str(resumed), str(reference))
    assert answer["format"] == form
    assert {name.split(".")[0] for name in answer["differs"]} == components
    assert answer["complete"] == "yes"


@pytest.mark.parametrize("form", WRITERS)
def test_a_whole_state_has_step_and_all_components(form: str, tmp_path: Path) -> None:
    answer = inspect(str(WRITERS[form](tmp_path / "a", train_state(7))))
    assert (answer["step"], answer["components"], answer["fraction"]) == (7, ALL, 1.0)
    assert answer["state_crcs"]["model.layer.weight"] == zlib.crc32(noise(64).data)


@pytest.mark.parametrize("part", ALL)
def test_a_part_that_is_gone_is_no_component(part: str, tmp_path: Path) -> None:
    answer = inspect(str(torch_zip(tmp_path / "a.pt", train_state(7, **{part: None}))))
    assert answer["components"] == [each for each in ALL if each != part]


def test_one_state_is_equal_in_every_form(tmp_path: Path) -> None:
    reference = as_zip(tmp_path / "a", train_state(7))
    assert inspect(str(as_dcp(tmp_path / "b", train_state(7))), str(reference))["differs"] == []


def test_the_same_bytes_in_another_shape_differ(tmp_path: Path) -> None:
    flat = torch_zip(tmp_path / "a.pt", {"model": {"w": Tensor(noise(64).data, (64,))}})
    square = torch_zip(tmp_path / "b.pt", {"model": {"w": Tensor(noise(64).data, (8, 8))}})
    assert inspect(str(square), str(flat))["differs"] == ["model.w"]


@pytest.mark.parametrize("deep", [True, False])
def test_a_zip_is_compared_without_reading_its_tensors(deep: bool, tmp_path: Path) -> None:
    read: list[int] = []
    big = {"model": {"w": noise(100_000)}}
    one, two = torch_zip(tmp_path / "a.pt", big), torch_zip(tmp_path / "b.pt", big)
    answer = inspect(str(one), str(two), deep=deep, tick=read.append)
    assert answer["differs"] == []
    assert (sum(read) > 800_000) is deep


def test_what_has_no_crc_is_never_called_equal(tmp_path: Path) -> None:
    one, two = (safetensors(tmp_path / name / "model.safetensors", MODEL) for name in "ab")
    assert inspect(str(one), str(two))["differs"] == []
    answer = inspect(str(one), str(two), deep=False)
    assert answer["differs"] is None
    assert any("not comparable" in note for note in answer["notes"])
    orbax = [lay.orbax(tmp_path / name, 5) for name in "ab"]
    assert inspect(str(orbax[0]), str(orbax[1]))["differs"] is None


def test_paths_in_callbacks_are_no_state(tmp_path: Path) -> None:
    one, two = (torch_zip(tmp_path / name / "step=8.ckpt", lay.lightning_state(8)) for name in "ab")
    other = lay.lightning_state(8) | {"callbacks": {"ModelCheckpoint": {"dirpath": "/elsewhere"}}}
    torch_zip(two, other)
    answer = inspect(str(one), str(two))
    assert (answer["format"], answer["differs"]) == ("lightning", [])
    assert "rng" not in answer["components"]


def test_a_store_is_not_compared(tmp_path: Path) -> None:
    lay.hf_trainer(tmp_path / "store", 5)
    with pytest.raises(CheckpointError, match="compare one of its members"):
        inspect(str(tmp_path / "store"), str(tmp_path / "store" / "checkpoint-5"))


def test_a_view_is_compared_by_its_own_bytes(tmp_path: Path) -> None:
    data = noise(64).data
    views = {"part": View(noise(64), 8, (16,), (1,)), "turned": View(noise(64), 0, (8, 8), (1, 8))}
    path = torch_zip(tmp_path / "a.pt", {"model": {**views, "whole": Tensor(data, (8, 8))}})
    crcs = inspect(str(path))["state_crcs"]
    assert crcs["model.part"] == zlib.crc32(data[32:96])
    assert crcs["model.whole"] == zlib.crc32(data)
    assert crcs["model.turned"] != zlib.crc32(data)  # the same bytes in another order of rows and columns
    same = torch_zip(tmp_path / "b.pt", {"model": {**views, "whole": Tensor(data, (8, 8))}})
    assert inspect(str(same), str(path))["differs"] == []
    rest = {"part": Tensor(data[32:96], (16,)), "turned": Tensor(data, (8, 8)), "whole": Tensor(data, (8, 8))}
    other = torch_zip(tmp_path / "c.pt", {"model": rest})
    assert inspect(str(other), str(path))["differs"] == ["model.turned"]


def test_each_chunk_of_a_tensor_is_compared(tmp_path: Path) -> None:
    def write(name: str, last: Tensor) -> Path:
        chunks = Chunks((((0, 0), noise(8)), ((4, 0), last)))
        return dcp(tmp_path / name, {"model.w": chunks, "train_state.step": 3}, files=2)

    reference, other = write("a", noise(8, 2)), write("b", noise(8, 3))
    assert inspect(str(other), str(reference))["differs"] == ["model.w[4,0]"]
    assert inspect(str(reference))["state_crcs"]["model.w"] == zlib.crc32(noise(8).data)
