"""What reading a checkpoint costs: the deep check against zlib.crc32 of the same file in the same run, a metadata of
60 MB in a process of its own, a shallow check.

Goals: deep >= 0.8 of the rate of zlib.crc32 alone; 60 MB of metadata within 15 s of processor time and 2 GiB; a shallow
check of 1 GiB within 20 ms after start. Everything runs several times in turn; the best of each counts.
"""

import argparse
import json
import pickle
import resource
import struct
import subprocess
import sys
import tempfile
import time
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos_gpu.payloads.checkpoint_document import inspect

READER = [sys.executable, "-I", "-m", "chaos_gpu.payloads.checkpoint", "--spec", "-"]
DEEP_GOAL, METADATA_GOAL_S, METADATA_GOAL_BYTES, SHALLOW_GOAL_MS = 0.8, 15, 2 << 30, 20
RECORDS = 64
LOCAL, ENTRY, END = "<4s5H3I2H", "<4s6H3I5H2I", "<4s4H2IH"


class Zip:
    """Writes stored records as they come, with their CRCs, as torch.save does."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.entries = b""
        self.count = 0

    def add(self, name: str, data: bytes) -> None:
        crc, size, at, raw = zlib.crc32(data), len(data), self.file.tell(), name.encode()
        self.file.write(struct.pack(LOCAL, b"PK\3\4", 0, 0, 0, 0, 0, crc, size, size, len(raw), 0) + raw + data)
        fields = (0, 0, 0, 0, 0, 0, crc, size, size, len(raw), 0, 0, 0, 0, 0, at)
        self.entries += struct.pack(ENTRY, b"PK\1\2", *fields) + raw
        self.count += 1

    def close(self) -> None:
        at = self.file.tell()
        self.file.write(self.entries)
        self.file.write(struct.pack(END, b"PK\5\6", 0, 0, self.count, self.count, len(self.entries), at, 0))
        self.file.close()


def tensor(key: int, floats: int) -> bytes:
    """The opcodes of one tensor, protocol 2."""
    name, size = str(key).encode(), struct.pack("<i", floats)
    key_text = b"X" + struct.pack("<I", len(name)) + name
    pid = b"(X\7\0\0\0storagectorch\nFloatStorage\n" + key_text + b"X\3\0\0\0cpuJ" + size + b"tQ"
    view = b"K\0J" + size + b"\x85K\1\x85\x89ccollections\nOrderedDict\n)RtR"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + pid + view


def write_zip(path: Path, size: int) -> None:
    block = (b"".join(struct.pack("<Q", n * 0x9E3779B97F4A7C15 & (1 << 64) - 1) for n in range(1 << 14))) * 8
    block *= size // RECORDS // len(block)
    names = [f"X{struct.pack('<I', 3).decode('latin-1')}w{n:02d}".encode("latin-1") for n in range(RECORDS)]
    pickled = b"".join(name + tensor(n, len(block) // 4) for n, name in enumerate(names))
    archive = Zip(path)
    archive.add("a/data.pkl", b"\x80\2}X\5\0\0\0model}(" + pickled + b"us.")
    for number in range(RECORDS):
        archive.add(f"a/data/{number}", block)
    archive.add("a/version", b"3\n")
    archive.close()


def crc_alone(path: Path) -> None:
    """zlib.crc32 of the file, read a mebibyte at a time."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)


def best(runs: int, *jobs: Callable[[], Any]) -> list[float]:
    """Seconds of each job, in turn."""
    found = [float("inf")] * len(jobs)
    for _ in range(runs):
        for number, job in enumerate(jobs):
            start = time.perf_counter()
            job()
            found[number] = min(found[number], time.perf_counter() - start)
    return found


def stand_in(name: str, module: str) -> type:
    """A class that pickles as that of torch."""
    made = type(name, (), {"__module__": module})
    home: Any = sys.modules.setdefault(module, types.ModuleType(module))
    setattr(home, name, made)
    return made


class Size(tuple[int, ...]):
    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


def write_metadata(path: Path, tensors: int) -> int:
    """Write a DCP .metadata of `tensors` tensors in eight chunks each, beside shards of the size that it asks for."""
    home = "torch.distributed.checkpoint.metadata"
    for module in ("torch", "torch.distributed", "torch.distributed.checkpoint"):
        sys.modules.setdefault(module, types.ModuleType(module))
    names = ("Metadata", "MetadataIndex", "TensorStorageMetadata", "ChunkStorageMetadata")
    kinds = {name: stand_in(name, home) for name in names}
    info = stand_in("_StorageInfo", "torch.distributed.checkpoint.filesystem")
    Size.__module__, Size.__qualname__ = "torch", "Size"
    sys.modules["torch"].Size = Size  # type: ignore[attr-defined]

    def make(kind: type, **state: Any) -> Any:
        made = kind()
        made.__dict__.update(state)
        return made

    chunk, index = kinds["ChunkStorageMetadata"], kinds["MetadataIndex"]
    tree: dict[str, Any] = {}
    places: dict[Any, Any] = {}
    for number in range(tensors):
        fqn = f"model.layers.{number // 12}.block.{number % 12}.weight"
        offsets = [Size((part * 8, 0)) for part in range(8)]
        chunks = [make(chunk, offsets=each, sizes=Size((8, 64))) for each in offsets]
        tree[fqn] = make(kinds["TensorStorageMetadata"], size=Size((64, 64)), chunks=chunks)
        for part, offset in enumerate(offsets):
            place = {"relative_path": f"__{part}_0.distcp", "offset": number * 4096, "length": 4096}
            places[make(index, fqn=fqn, offset=offset, index=part)] = make(info, **place)
    data = pickle.dumps(make(kinds["Metadata"], state_dict_metadata=tree, storage_data=places))
    path.mkdir()
    for part in range(8):
        with (path / f"__{part}_0.distcp").open("wb") as file:
            file.truncate(tensors * 4096)
    (path / ".metadata").write_bytes(data)
    return len(data)


def child(path: Path) -> dict[str, float]:
    """Read in a process of its own, shallowly; what it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    spec = json.dumps({"path": str(path), "deep": False}).encode()
    done = subprocess.run(READER, input=spec, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(done.stdout.splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wall, complete = time.perf_counter() - start, answer["document"]["complete"] == "yes"
    return {"wall_s": wall, "cpu_s": cpu, "peak_bytes": after.ru_maxrss << 10, "complete": complete}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mib", type=int, default=1024)
    options.add_argument("--tensors", type=int, default=51_000)
    options.add_argument("--runs", type=int, default=3)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.pt"
        write_zip(path, given.mib << 20)
        alone, deep = best(given.runs, lambda: crc_alone(path), lambda: inspect(str(path)))
        (shallow,) = best(given.runs, lambda: inspect(str(path), deep=False))
        size = write_metadata(Path(folder) / "dcp", given.tensors)
        metadata = child(Path(folder) / "dcp")
    ratio = alone / deep
    gib = given.mib / 1024
    rates = f"{gib / deep:.2f} GiB/s, zlib.crc32 alone {gib / alone:.2f} GiB/s"
    print(f"deep: {rates}: ratio {ratio:.2f} (goal >= {DEEP_GOAL})")
    print(f"shallow: {shallow * 1000:.1f} ms for {gib:g} GiB (goal < {SHALLOW_GOAL_MS} ms)")
    print(
        f"metadata of {size / 1e6:.0f} MB: {metadata['cpu_s']:.1f} s of processor time, {metadata['wall_s']:.1f} s, "
        f"{metadata['peak_bytes'] / (1 << 30):.2f} GiB (goals < {METADATA_GOAL_S} s, < 2 GiB)"
    )
    met = ratio >= DEEP_GOAL and shallow * 1000 < SHALLOW_GOAL_MS and metadata["cpu_s"] < METADATA_GOAL_S
    return 0 if met and metadata["peak_bytes"] < METADATA_GOAL_BYTES and metadata["complete"] else 1


if __name__ == "__main__":
    sys.exit(main())
