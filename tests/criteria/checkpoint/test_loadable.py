"""What would not load is not whole, and one member that cannot be read hides no other."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files
from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import View, floats, torch_legacy, torch_zip


@pytest.mark.parametrize(
    ("offset", "shape", "stride", "complete"),
    [
        (0, (4,), (1,), "yes"),
        (1, (3,), (1,), "yes"),
        (0, (2, 2), (1, 2), "yes"),
        (9, (0, 5), (5, 1), "yes"),
        (0, (1000,), (1,), "no"),
        (1, (4,), (1,), "no"),
        (100, (1,), (1,), "no"),
        (0, (2, 2), (4_000_000, 1), "no"),
        (0, (2_000_000_000,), (0,), "yes"),
    ],
)
@pytest.mark.parametrize("writer", [torch_zip, torch_legacy])
def test_a_tensor_lies_within_its_storage(
    tmp_path: Path, writer: Any, offset: int, shape: tuple[int, ...], stride: tuple[int, ...], complete: str
) -> None:
    view = View(floats(1, 2, 3, 4), offset, shape, stride)
    answer = inspect(str(writer(tmp_path / "step_5.pt", {"model": {"w": view}, "step": 5})), deep=False)
    assert answer["complete"] == complete, answer["torn_reason"]
    assert ("bytes of storage" in (answer["torn_reason"] or "")) == (complete == "no")


@pytest.mark.parametrize(
    ("dtype", "shape", "complete"),
    [
        ("F32", [2], "yes"),
        ("F16", [4], "yes"),
        ("F4", [16], "yes"),
        ("F99", [1], "yes"),
        ("F64", [2], "no"),
        ("F32", [1], "no"),
        ("F32", [2, 0], "no"),
        ("F32", [10**26, 10**17], "no"),
        ("F32", [-2], "no"),
        ("F32", [2.0], "no"),
        ("F32", None, "no"),
    ],
)
def test_tensors_have_the_bytes_of_their_shape(tmp_path: Path, dtype: str, shape: Any, complete: str) -> None:
    header = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, 8]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(8)))
    answer = inspect(str(tmp_path / "m.safetensors"))
    assert answer["complete"] == complete, answer["torn_reason"]


def test_a_tensor_that_is_named_twice_is_none(tmp_path: Path) -> None:
    one = '"w": {"dtype": "F32", "shape": [1], "data_offsets": '
    header = f"{{{one}[0, 4]}}, {one}[4, 8]}}}}".encode()
    (tmp_path / "m.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(CheckpointError, match="not as it should be"):
        inspect(str(tmp_path / "m.safetensors"))


def test_one_member_that_cannot_be_listed_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay.hf_trainer(tmp_path, 5)
    lay.hf_trainer(tmp_path, 10)
    (tmp_path / "latest").write_text("x" * 10_000)
    sizes = Files.sizes

    def deep(self: Files, path: str) -> dict[str, int]:
        if path.endswith("checkpoint-10"):
            raise CheckpointError("it is nested too deeply")
        return sizes(self, path)

    monkeypatch.setattr(Files, "sizes", deep)
    answer = inspect(str(tmp_path))
    assert answer["newest_complete"] == "checkpoint-5"
    assert [member["complete"] for member in answer["members"]] == ["yes", "suspect"]
    assert "longer than 4096 bytes" in answer["pointers"]["latest"]
