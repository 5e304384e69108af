"""What a store is found to hold, however it answers."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files, real_path
from chaos_gpu.payloads.followed import examine, look_into, read_state
from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import dcp


def test_weights_without_crcs_of_their_own_are_read(tmp_path: Path) -> None:
    """A Trainer's model is a safetensors file: shallow reading knows the CRCs of the optimizer alone."""
    lay.hf_trainer(tmp_path, 10)
    found = read_state(str(tmp_path), ["checkpoint-10/model.safetensors", "checkpoint-10/optimizer.pt"])
    assert found["error"] is None
    parts = {name.split(".")[0] for name in found["state_crcs"]}
    assert {"model", "optimizer"} <= parts
    assert found["without_crc"] == 0


def test_large_weights_are_left_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_gpu.payloads.followed.STATE_BYTES", 10)
    lay.hf_trainer(tmp_path, 10)
    found = read_state(str(tmp_path), ["checkpoint-10/model.safetensors"])
    assert "model" in found["components"]
    assert not any(name.startswith("model") for name in found["state_crcs"])


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A store in another container's mount, held open: what its name is there names nothing here."""
    store = tmp_path / "store"
    store.mkdir()
    handle, readlink = os.open(store, os.O_RDONLY | os.O_DIRECTORY), os.readlink

    def elsewhere(path: Any, **more: Any) -> Any:
        return "/checkpoints/r1-kill-subject" if str(path).endswith(f"/fd/{handle}") else readlink(path, **more)

    monkeypatch.setattr(os, "readlink", elsewhere)
    yield store, f"/proc/self/fd/{handle}"
    os.close(handle)


@pytest.mark.parametrize("layout", [lay.hf_trainer, lay.megatron, lay.torchtitan, lay.deepspeed, lay.orbax])
def test_a_store_in_another_containers_mount_is_read(foreign: tuple[Path, str], layout: Any) -> None:
    store, held = foreign
    for step in (5, 10):
        layout(store, step)
    names = sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_file() and "10" in str(path))
    here, there = look_into(str(store)), look_into(held)
    assert here["newest_step"] == 10
    assert there == here
    assert read_state(held, names) == read_state(str(store), names)


def test_a_store_that_is_one_checkpoint_is_read_from_another_mount(foreign: tuple[Path, str]) -> None:
    store, held = foreign
    dcp(store, lay.distributed_state(10))
    assert look_into(held)["members"] == [{"name": ".", "step": 10, "complete": "yes", "torn_reason": ""}]
    assert look_into(held) == look_into(str(store))


def test_links_of_a_store_in_another_mount_are_followed_within_it(foreign: tuple[Path, str]) -> None:
    store, held = foreign
    (store / "step-4").mkdir()
    (store / "step-4/a").write_bytes(b"a")
    (store / "latest").symlink_to("/checkpoints/r1-kill-subject/step-4")
    (store / "beside").symlink_to("step-4/../latest/a")
    assert real_path(f"{held}/latest/a") == f"{held}/./step-4/a"
    assert real_path(f"{held}/beside") == f"{held}/./step-4/a"
    assert Files(held).inside(f"{held}/none") == f"{held}/./none"


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../..", "/checkpoints/r1-kill-subjects/a", "link", "/checkpoints/r1-kill-subject/../a"]
)
def test_links_out_of_a_store_in_another_mount_are_refused(foreign: tuple[Path, str], target: str) -> None:
    store, held = foreign
    (store / "link").symlink_to(target)
    with pytest.raises(CheckpointError, match="leads out of the store"):
        Files(held).inside(f"{held}/link")


@pytest.mark.parametrize("failure", [IndexError("x"), MemoryError(), TypeError("x"), OSError("x"), RecursionError()])
def test_what_a_reader_fails_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise failure

    monkeypatch.setattr("chaos_gpu.payloads.followed.inspect", fails)
    assert type(failure).__name__ in look_into(str(tmp_path))["error"]


def test_a_store_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_gpu.payloads.followed.inspect", lambda *_, **__: time.sleep(60))
    before = signal.getsignal(signal.SIGALRM)
    assert "within 0.05 s" in examine(str(tmp_path), deep=True, limit_s=0.05)["error"]
    assert signal.getsignal(signal.SIGALRM) is before
