"""Checkpoint files as `torch.save` writes them, without torch: a zip of one pickle and the tensors' bytes.

Written record by record, so that a save takes the time that is asked for. Only what this module writes is read back.
Source: torch/serialization.py, the zip format (facts: records stored, CRC32 of each in the central directory).
"""

import io
import os
import pickle
import struct
import sys
import time
import zipfile
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STORAGES = {"d": "DoubleStorage", "q": "LongStorage"}
TYPE_OF = {name: code for code, name in STORAGES.items()}
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write(path: Path, state: dict[str, Any], stem: str, save_s: float) -> None:
    """Write a checkpoint, evenly over `save_s` seconds, and see it on the disk.

    Args:
        path: the file to make.
        state: nested dicts, lists, numbers and strings; `array("d")` and `array("q")` become tensors.
        stem: the archive's inner directory.
        save_s: how long to take.

    Raises:
        OSError: as the file system gives it.
    """
    tensors: list[array[Any]] = []
    skeleton = b"\x80\x02" + b"".join(_encode(state, tensors)) + b"."
    records = [("data.pkl", skeleton), ("byteorder", sys.byteorder.encode())]
    records += [(f"data/{number}", tensor.tobytes()) for number, tensor in enumerate(tensors)]
    records += [("version", b"3\n")]
    begun_s = time.monotonic()
    with path.open("wb", buffering=0) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for number, (name, data) in enumerate(records, start=1):
                archive.writestr(zipfile.ZipInfo(f"{stem}/{name}", _EPOCH), data)
                time.sleep(max(0.0, begun_s + save_s * number / len(records) - time.monotonic()))
        os.fsync(file.fileno())


def read(path: Path) -> dict[str, Any]:
    """Read a checkpoint back.

    Raises:
        zipfile.BadZipFile: it is torn, or a record's CRC is wrong.
        OSError: as the file system gives it.
    """
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        (skeleton,) = (name for name in names if name.endswith("/data.pkl"))
        data = {name.rpartition("/")[2]: archive.read(name) for name in names if "/data/" in name}
        state: dict[str, Any] = _Unpickler(archive.read(skeleton), data).load()
    return state


def _encode(value: Any, tensors: list["array[Any]"]) -> Iterator[bytes]:
    """Yield the pickle opcodes of a value; tensors are collected by the way."""
    if value is None or isinstance(value, bool):
        yield {None: b"N", True: b"\x88", False: b"\x89"}[value]
    elif isinstance(value, int):
        data = value.to_bytes((value.bit_length() // 8) + 1, "little", signed=True)
        yield b"\x8a" + bytes([len(data)]) + data
    elif isinstance(value, float):
        yield b"G" + struct.pack(">d", value)
    elif isinstance(value, str):
        yield _text(value)
    elif isinstance(value, array):
        yield _tensor(value, len(tensors))
        tensors.append(value)
    elif isinstance(value, dict):
        yield b"}("
        for key, item in value.items():
            yield from _encode(key, tensors)
            yield from _encode(item, tensors)
        yield b"u"
    else:
        yield b"]("
        for item in value:
            yield from _encode(item, tensors)
        yield b"e"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def _tensor(tensor: "array[Any]", key: int) -> bytes:
    """Return the call of torch's rebuilding function, with the persistent id of the tensor's bytes."""
    storage = b"".join(
        [
            b"(" + _text("storage"),
            f"ctorch\n{STORAGES[tensor.typecode]}\n".encode(),
            _text(str(key)) + _text("cpu") + _number(len(tensor)) + b"tQ",
        ]
    )
    shape, stride = b"(" + _number(len(tensor)) + b"t", b"(" + _number(1) + b"t"
    hooks = b"ccollections\nOrderedDict\n)R"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + _number(0) + shape + stride + b"\x89" + hooks + b"tR"


class _Unpickler(pickle.Unpickler):
    """Knows the names that `write` puts into a file, and no others."""

    def __init__(self, skeleton: bytes, data: dict[str, bytes]) -> None:
        super().__init__(io.BytesIO(skeleton))
        self._data = data

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, *_: storage
        if module == "torch" and name in TYPE_OF:
            return TYPE_OF[name]
        raise pickle.UnpicklingError(f"{module}.{name} is none of ours")

    def persistent_load(self, pid: Any) -> "array[Any]":
        _, code, key, _, _ = pid
        return array(code, self._data[key])
