"""Write checkpoints as the frameworks write them, with the standard library alone.

The pickles are emitted opcode by opcode, since a pickler would import what it names.
"""

import json
import math
import os
import struct
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
ITEM = {"Float": 4, "Double": 8, "Long": 8, "Byte": 1}
METADATA = "torch.distributed.checkpoint.metadata"


class Tensor(NamedTuple):
    """Elements and their shape; `kind` is the storage type's name without Storage."""

    data: bytes
    shape: tuple[int, ...]
    kind: str = "Float"


class View(NamedTuple):
    """A tensor that is not its whole storage, or not in order; offset and strides count elements."""

    base: Tensor
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


class Chunks(NamedTuple):
    """A tensor in pieces, each with the offsets at which it lies in the whole."""

    parts: tuple[tuple[tuple[int, ...], Tensor], ...]


class Instance(NamedTuple):
    """An object of a class that nobody has: its state is set, its class only named."""

    kind: str
    state: Any


class Call(NamedTuple):
    """A call of what is only named."""

    kind: str
    args: tuple[Any, ...]


def floats(*values: float) -> Tensor:
    """Return a vector."""
    return Tensor(struct.pack(f"<{len(values)}f", *values), (len(values),))


def noise(count: int, seed: int = 1) -> Tensor:
    """Return `count` floats that are no pattern."""
    return Tensor(
        b"".join(struct.pack("<I", (seed * 2654435761 * (n + 1)) % (1 << 30)) for n in range(count)), (count,)
    )


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a tensor whose elements lie in order."""
    return tuple(math.prod(shape[index + 1 :]) for index in range(len(shape)))


class Emitter:
    """Emits one pickle of protocol 2; tensors' bytes stay apart, under their keys."""

    def __init__(self, prefix: str = "") -> None:
        self.out = BytesIO()
        self.storages: dict[str, bytes] = {}
        self.prefix = prefix

    def dumps(self, value: Any) -> bytes:
        self.out.write(b"\x80\x02")
        self.emit(value)
        self.out.write(b".")
        return self.out.getvalue()

    def emit(self, value: Any) -> None:
        put = self.out.write
        if value is None or isinstance(value, bool):
            put({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif isinstance(value, int):
            data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
            put(b"\x8a" + bytes([len(data)]) + data)
        elif isinstance(value, float):
            put(b"G" + struct.pack(">d", value))
        elif isinstance(value, str):
            put(b"X" + struct.pack("<I", len(value.encode())) + value.encode())
        elif isinstance(value, bytes):
            put(b"B" + struct.pack("<I", len(value)) + value)
        elif isinstance(value, Tensor):
            self.tensor(value, 0, value.shape, contiguous(value.shape))
        elif isinstance(value, View):
            self.tensor(*value)
        elif isinstance(value, Instance):
            self.name(value.kind)
            put(b")\x81")
            self.emit(value.state)
            put(b"b")
        elif isinstance(value, Call):
            self.name(value.kind)
            self.emit(value.args)
            put(b"R")
        else:
            self.container(value)

    def container(self, value: Any) -> None:
        begin, end = {dict: (b"}(", b"u"), list: (b"](", b"e"), tuple: (b"(", b"t")}[type(value)]
        self.out.write(begin)
        for each in [part for pair in value.items() for part in pair] if isinstance(value, dict) else value:
            self.emit(each)
        self.out.write(end)

    def name(self, kind: str) -> None:
        module, _, name = kind.rpartition(".")
        self.out.write(f"c{module}\n{name}\n".encode())

    def tensor(self, tensor: Tensor, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
        key = f"{self.prefix}{len(self.storages)}"
        self.storages[key] = tensor.data
        self.name("torch._utils._rebuild_tensor_v2")
        self.out.write(b"((")
        self.emit("storage")
        self.name(f"torch.{tensor.kind}Storage")
        for each in (key, "cpu", len(tensor.data) // ITEM[tensor.kind]):
            self.emit(each)
        self.out.write(b"tQ")
        for each in (offset, shape, stride, False):
            self.emit(each)
        self.name("collections.OrderedDict")
        self.out.write(b")Rt" + b"R")


def torch_zip_bytes(state: Any) -> bytes:
    """Return a file as torch.save writes it: data.pkl first, one stored record a storage, the directory last."""
    emitter = Emitter()
    pickled = emitter.dumps(state)
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for key, data in emitter.storages.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def torch_zip(path: Path, state: Any, share: float = 1.0) -> Path:
    """Write a file of torch.save, or its first part."""
    data = torch_zip_bytes(state)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data[: int(len(data) * share)])
    return path


def torch_legacy(path: Path, state: Any) -> Path:
    """Write a file of torch.save's older form: five pickles, then each storage's length and bytes."""
    emitter = Emitter("94")
    pickled = emitter.dumps(state)
    keys = sorted(emitter.storages)
    head = [Emitter().dumps(each) for each in (LEGACY_MAGIC, 1001, {"little_endian": True})]
    kinds = dict.fromkeys(keys, 4)
    raw = [struct.pack("<q", len(emitter.storages[key]) // kinds[key]) + emitter.storages[key] for key in keys]
    path.write_bytes(b"".join([*head, pickled, Emitter().dumps(keys), *raw]))
    return path


def safetensors(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    """Write a safetensors file."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end + len(tensor.data)]}
        end += len(tensor.data)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(each.data for each in tensors.values()))
    return path


def dcp(path: Path, state: Mapping[str, Any], files: int = 1) -> Path:
    """Write a directory of torch.distributed.checkpoint: shards, then .metadata. What is no tensor is bytes."""
    path.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, Any] = {}
    shards = [BytesIO() for _ in range(files)]
    places = []
    whole = [(fqn, value.parts if isinstance(value, Chunks) else ((None, value),)) for fqn, value in state.items()]
    pieces = [(fqn, offset, value) for fqn, parts in whole for offset, value in parts]
    for number, (fqn, offset, value) in enumerate(pieces):
        shard, data = shards[number % files], torch_zip_bytes(value)
        is_tensor = isinstance(value, Tensor)
        kinds[fqn] = Instance(f"{METADATA}.{'TensorStorageMetadata' if is_tensor else 'BytesStorageMetadata'}", {})
        chunk = (offset or (0,)) if is_tensor else None
        index = Instance(f"{METADATA}.MetadataIndex", {"fqn": fqn, "offset": chunk, "index": 0})
        place = {"relative_path": f"__{number % files}_0.distcp", "offset": shard.tell(), "length": len(data)}
        places.append((index, Instance("torch.distributed.checkpoint.filesystem._StorageInfo", place)))
        shard.write(data)
    for number, shard in enumerate(shards):
        (path / f"__{number}_0.distcp").write_bytes(shard.getvalue())
    metadata = {"state_dict_metadata": kinds, "storage_data": _Pairs(places)}
    (path / ".metadata").write_bytes(_PairsEmitter().dumps(Instance(f"{METADATA}.Metadata", metadata)))
    return path


class _Pairs(list[tuple[Any, Any]]):
    """A mapping whose keys are objects."""


class _PairsEmitter(Emitter):
    def container(self, value: Any) -> None:
        if not isinstance(value, _Pairs):
            super().container(value)
            return
        self.out.write(b"}(")
        for pair in value:
            for each in pair:
                self.emit(each)
        self.out.write(b"u")


def age(path: Path, seconds: float) -> None:
    """Make everything below a path older, in one piece."""
    for each in [path, *(path.rglob("*") if path.is_dir() else ())]:
        stat = each.stat()
        os.utime(each, ns=(stat.st_atime_ns, stat.st_mtime_ns - int(seconds * 1e9)))


MODEL = {"layer.weight": noise(64), "layer.bias": floats(0.5, -0.5)}


def train_state(step: int, /, **changes: Any) -> dict[str, Any]:
    """Return a whole training state; `changes` replace parts, None removes one."""
    state: dict[str, Any] = {
        "model": {name: Tensor(tensor.data, tensor.shape) for name, tensor in MODEL.items()},
        "optimizer": {
            "state": {0: {"step": floats(step), "exp_avg": noise(64, 2), "exp_avg_sq": noise(64, 3)}},
            "param_groups": [{"lr": 0.001 / step, "betas": (0.9, 0.999), "params": [0]}],
        },
        "scheduler": {"last_epoch": step, "_last_lr": [0.001 / step]},
        "rng": {"torch": Tensor(bytes(range(256)), (256,), "Byte"), "python": (3, tuple(range(20)), None)},
        "data": {"epoch": 0, "position": step * 8},
        "scaler": {"scale": 65536.0, "_growth_tracker": step},
        "step": step,
    }
    state.update(changes)
    return {name: value for name, value in state.items() if value is not None}
