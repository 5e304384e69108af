"""What a store is found to hold, however it answers."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.payloads.followed import examine, look_into, read_state
from tests.support import checkpoint_layouts as lay


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
