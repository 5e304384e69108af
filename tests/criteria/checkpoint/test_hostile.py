"""Files made to harm who reads them: no code of theirs runs, and the reader says that it will not judge them."""

import contextlib
import os
import pickle
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos_gpu.cli.checkpoint import read_in_child
from chaos_gpu.errors import UsageError
from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError, Torn
from chaos_gpu.payloads.checkpoint_pickle import Walk
from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import Call, dcp, noise, safetensors, torch_zip, torch_zip_bytes, train_state

LEGAL = {"yes", "no", "suspect"}


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> tuple[Callable[..., Any], Any]:
        return self.call


def zip_of(pickled: bytes) -> bytes:
    """A file of torch.save with another pickle in it."""
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


TUPLE_BOMB = b"\x80\x02)" + b"\x94".join([b"2\x86"] * 60) + b"."
CALLING = {
    "os.system": pickle.dumps(Calls(os.system, "touch {}"), 2),
    "eval": pickle.dumps(Calls(eval, "open('{}', 'w')"), 2),
    "subprocess": b"csubprocess\nPopen\n(S'touch {}'\ntR.",
    "INST": b"(S'touch {}'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'touch {}'\no.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x08touch {}\x85R.",
    "getattr chain": b"c__builtin__\ngetattr\n(c__builtin__\n__import__\nS'os'\ntR.",
    "dunder": b"ctorch\n__builtins__\n.",
    "dotted attribute": b"\x80\x04\x8c\x13torch.serialization\x8c\x09os.system\x93.",
    "BUILD on a class": b"\x80\x02ctorch\nThing\n}X\x01\x00\x00\x00aK\x01sb.",
    "extension registry": b"\x80\x02\x82\x01.",
    "persistent line": b"Pwhatever\n.",
}
HUGE = {
    "LONG_BINPUT 2**31": b"\x80\x02Nr" + struct.pack("<I", 2**31) + b".",
    "PUT 2**40": b"Np1099511627776\n.",
    "BYTEARRAY8 2**40": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "BINBYTES8 2**40": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
    "BINUNICODE8 2**63": b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b".",
    "LONG of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "a million lists deep": b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "a million tuples deep": b"\x80\x02)" + b"\x85" * 1_000_000 + b".",
    "a tuple bomb as a key": b"\x80\x02}" + TUPLE_BOMB[2:-1] + b"Ns.",
    "a tuple bomb": TUPLE_BOMB,
}


@pytest.mark.parametrize("name", CALLING)
def test_what_calls_is_refused_and_does_not_run(name: str, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    path = tmp_path / "a.pt"
    path.write_bytes(zip_of(CALLING[name].replace(b"{}", str(witness).encode())))
    with pytest.raises(UsageError, match=r"would call|changes what it names|refers to|no known|broken"):
        _judged_no(read_in_child(str(path), "", True, _silent))
    assert not witness.exists()


def _judged_no(document: dict[str, Any]) -> None:
    """A broken pickle may also be told as torn."""
    if document["complete"] == "no":
        raise UsageError(document["torn_reason"])


def _silent(done: int, total: int) -> None:
    """Nobody is looking."""


@pytest.mark.parametrize("name", HUGE)
def test_what_is_huge_ends_in_a_declared_error_or_an_answer(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(zip_of(HUGE[name]))
    with pytest.raises(UsageError):
        _judged_no(read_in_child(str(path), "", True, _silent))


def test_a_harmless_stranger_is_only_a_record(tmp_path: Path) -> None:
    state = {"model": {"w": noise(4)}, "extra": Call("some.where.Thing", (1, "x"))}
    assert inspect(str(torch_zip(tmp_path / "a.pt", state)))["complete"] == "yes"


def test_a_link_out_of_the_store_is_not_followed(tmp_path: Path) -> None:
    secret = torch_zip(tmp_path / "elsewhere" / "optimizer.pt", {"secret": 1})
    path = lay.hf_trainer(tmp_path / "store", 5)
    (path / "optimizer.pt").unlink()
    (path / "optimizer.pt").symlink_to(secret)
    with pytest.raises(CheckpointError, match="leads out of the store"):
        inspect(str(path))
    member = inspect(str(tmp_path / "store"))["members"][0]
    assert (member["complete"], member["format"]) == ("suspect", "unsupported")


def test_metadata_that_names_files_elsewhere_is_refused(tmp_path: Path) -> None:
    path = dcp(tmp_path / "any", {"model.w": noise(4)})
    data = (path / ".metadata").read_bytes()
    (path / ".metadata").write_bytes(data.replace(b"__0_0.distcp", b"../../passwd"))
    with pytest.raises(CheckpointError, match="outside of the checkpoint"):
        inspect(str(path))


def test_pipes_and_devices_are_not_opened_to_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="no regular file"):
        inspect(str(tmp_path / "a.pt"))
    with pytest.raises(CheckpointError):
        inspect("/dev/zero")


def test_a_file_that_grows_while_it_is_read_is_torn(tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "a.pt", {"model": {"w": noise(1 << 16)}})
    grown = threading.Event()

    def grow(count: int) -> None:
        if not grown.is_set():
            grown.set()
            with path.open("ab") as file:
                file.write(b"more")

    answer = inspect(str(path), tick=grow)
    assert (answer["complete"], "changed while it was read" in answer["torn_reason"]) == ("no", True)


def test_records_that_share_their_bytes_are_refused(tmp_path: Path) -> None:
    data = torch_zip_bytes({"model": {f"w{n}": noise(4096) for n in range(4)}})
    first = data.index(b"PK\x01\x02")
    offset = struct.unpack_from("<I", data, first + 42)[0]
    entries, pos, changed = [], first, bytearray(data)
    while data[pos : pos + 4] == b"PK\x01\x02":
        entries.append(pos)
        name, extra, comment = struct.unpack_from("<3H", data, pos + 28)
        pos += 46 + name + extra + comment
    for each in entries:
        struct.pack_into("<3I", changed, each + 16, 0, 40_000, 40_000)
        struct.pack_into("<I", changed, each + 42, offset)
    (tmp_path / "a.pt").write_bytes(changed)
    with pytest.raises(CheckpointError, match="overlap"):
        inspect(str(tmp_path / "a.pt"))


def test_a_compressed_zip_is_unsupported(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 100_000_000)
    with pytest.raises(CheckpointError, match="compressed"):
        inspect(str(tmp_path / "a.pt"))


def test_what_hides_in_a_store_does_not_hide_the_others(tmp_path: Path) -> None:
    torch_zip(tmp_path / "step_1.pt", train_state(1))
    (tmp_path / "step_2.pt").write_bytes(zip_of(CALLING["OBJ"]))
    (tmp_path / "step_3.pt").write_bytes(os.urandom(64))
    answer = inspect(str(tmp_path))
    assert answer["newest_complete"] == "step_1.pt"
    assert [each["complete"] for each in answer["members"]] == ["yes", "suspect", "suspect"]


WHOLE = torch_zip_bytes({"model": {"w": noise(16)}, "step": 3})


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_of_a_pickle(data: bytes) -> None:
    with contextlib.suppress(CheckpointError, Torn):
        Walk(b"\x80\x02" + data).run()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=300),
    head=st.sampled_from([b"", b"PK\x03\x04", WHOLE[:60], WHOLE]),
    name=st.sampled_from(["a.pt", "a.safetensors"]),
)
def test_any_bytes_of_a_file(data: bytes, head: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(head + data)
    with contextlib.suppress(CheckpointError):
        assert inspect(str(tmp_path / name))["complete"] in LEGAL


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keep=st.integers(0, len(WHOLE) - 1))
def test_any_truncation_is_torn(keep: int, tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(WHOLE[:keep])
    assert inspect(str(tmp_path / "a.pt"))["complete"] == "no"


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_ends_in_an_answer_or_the_error(at: int, bit: int, tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    data[at] ^= 1 << bit
    (tmp_path / "a.pt").write_bytes(data)
    with contextlib.suppress(CheckpointError):
        assert inspect(str(tmp_path / "a.pt"))["complete"] in LEGAL


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
def test_any_metadata(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any"
    if not path.exists():
        dcp(path, {"model.w": noise(4)})
        safetensors(path / "x.safetensors", {"w": noise(4)})
    (path / ".metadata").write_bytes(data)
    with contextlib.suppress(CheckpointError):
        assert inspect(str(path))["complete"] in LEGAL


@pytest.mark.parametrize(("at", "value"), [(8, 1), (10, 8)], ids=["encrypted", "compressed to its own length"])
def test_records_that_cannot_be_read_as_they_stand(at: int, value: int, tmp_path: Path) -> None:
    data = bytearray(WHOLE)
    data[data.index(b"PK\x01\x02") + at] = value
    (tmp_path / "a.pt").write_bytes(data)
    with pytest.raises(CheckpointError, match="compressed or encrypted"):
        inspect(str(tmp_path / "a.pt"))
