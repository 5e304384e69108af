"""Read a directory of torch.distributed.checkpoint (DCP).

Commit rule: `.metadata` is renamed into place after the shards; without collectives each rank has its own
`__RANK.metadata`. A save over an older one leaves the old `.metadata` in place while shards are rewritten, so a shard
newer than it is a doubt. Completeness: each item of the metadata lies within its file. States: each item is a small zip
with CRCs.
Source: torch/distributed/checkpoint/filesystem.py, metadata.py.
"""

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files, Span, Torn, shown
from chaos_gpu.payloads.checkpoint_parts import STEP_KEYS, WRAPPERS, component_of, step_in
from chaos_gpu.payloads.checkpoint_pickle import MAX_PICKLE_BYTES, Made, Tensor, Walk
from chaos_gpu.payloads.checkpoint_reading import Reading, State, leaves_of, state_of
from chaos_gpu.payloads.checkpoint_torch import read_torch

RANK_METADATA = re.compile(r"__\d+(_\d+)?\.metadata")
MTIME_SLACK_NS = 1_000_000


class Item(NamedTuple):
    """One piece of state: its dotted name, the offsets of its chunk, and where it lies."""

    fqn: str
    chunk: Tuple[int, ...]
    file: str
    offset: int
    length: int
    is_bytes: bool


def is_dcp(names: List[str]) -> bool:
    """Say whether a directory's names are those of DCP, committed or not."""
    known = {".metadata", ".metadata.tmp"}
    return any(name in known or name.endswith(".distcp") or RANK_METADATA.fullmatch(name) for name in names)


def read_dcp(files: Files, path: str, reading: Reading, deep: bool, others: str = "") -> None:
    """Enter what a directory holds.

    Args:
        files: opens them.
        path: the directory.
        reading: what is known so far.
        deep: check the CRC of each item.
        others: the component of tensors whose name says none; "" takes them for the model if nothing else is.

    Raises:
        CheckpointError: it is hostile.
    """
    names = os.listdir(path)
    metadata = [name for name in names if name == ".metadata"]
    metadata = metadata or sorted(name for name in names if RANK_METADATA.fullmatch(name))
    if not metadata:
        beside = "; .metadata.tmp is there" if ".metadata.tmp" in names else ""
        reading.torn.append(f"it has no .metadata, its commit marker{beside}")
        return
    if ".metadata.tmp" in names:
        reading.notes.append(".metadata.tmp is left from another save")
    items: List[Item] = []
    for name in metadata:
        try:
            items += _items(files, os.path.join(path, name))
        except Torn as torn:
            reading.torn.append(f"{name}: {torn}")
    _check_extents(files, path, items, reading, [os.path.join(path, name) for name in metadata])
    _name_components(items, reading, others)
    if not reading.torn:
        _read_items(files, path, items, reading, deep)


def _items(files: Files, path: str) -> List[Item]:
    with files.open(path) as span:
        if span.size > MAX_PICKLE_BYTES:
            raise CheckpointError(f"its metadata has more than {MAX_PICKLE_BYTES >> 20} MiB")
        found = Walk(span.head(span.size)).run()
    if type(found) is not Made or not found.kind.endswith(".Metadata"):
        raise CheckpointError("its metadata is none of DCP's")
    kinds, places = found.get("state_dict_metadata"), found.get("storage_data")
    if type(kinds) is not dict or type(places) is not dict:
        raise CheckpointError("its metadata is none of DCP's")
    in_bytes = {fqn for fqn, kind in kinds.items() if type(kind) is Made and kind.kind.endswith("BytesStorageMetadata")}
    return [_item(index, place, in_bytes) for index, place in places.items()]


def _item(index: Any, place: Any, in_bytes: Any) -> Item:
    if type(index) is not Made or type(place) is not Made:
        raise CheckpointError("its metadata is none of DCP's")
    fqn, chunk, file = index.get("fqn"), index.get("offset"), place.get("relative_path")
    offset, length = place.get("offset"), place.get("length")
    chunk = chunk if type(chunk) is tuple else ()
    if type(fqn) is not str or type(file) is not str or type(offset) is not int or type(length) is not int:
        raise CheckpointError("its metadata is none of DCP's")
    if offset < 0 or length < 0 or os.path.isabs(file) or ".." in file.split("/"):
        raise CheckpointError(f"its metadata names {shown(file)}, outside of the checkpoint")
    return Item(fqn, chunk, file, offset, length, fqn in in_bytes)


def _check_extents(files: Files, path: str, items: List[Item], reading: Reading, metadata: List[str]) -> None:
    needed: Dict[str, int] = {}
    for item in items:
        needed[item.file] = max(needed.get(item.file, 0), item.offset + item.length)
    committed_ns = max(os.stat(each).st_mtime_ns for each in metadata)
    there = 0
    for name, size in sorted(needed.items()):
        full = os.path.join(path, name)
        try:
            found = os.stat(files.inside(full))
        except OSError:
            reading.torn.append(f"{shown(name)} is missing, its metadata names it")
            continue
        there += min(size, found.st_size)
        if found.st_size < size:
            reading.torn.append(f"{shown(name)} has {found.st_size} bytes, its metadata asks for {size}")
        elif found.st_mtime_ns > committed_ns + MTIME_SLACK_NS:
            reading.doubts.append(f"{shown(name)} is newer than .metadata: written again after the commit, or copied")
    reading.expected, reading.written = sum(needed.values()), there


def _name_components(items: List[Item], reading: Reading, others: str) -> None:
    kinds = {item.fqn: item.is_bytes for item in items}
    found = [(fqn_component(fqn)[0], is_bytes) for fqn, is_bytes in kinds.items()]
    named = {component for component, _ in found if component}
    reading.components |= named
    nameless = any(not component and not is_bytes for component, is_bytes in found)
    if nameless and (others or "model" not in named):
        reading.components.add(others or "model")


def fqn_component(fqn: str) -> Tuple[Optional[str], str]:
    """Return the component that a dotted name begins with, and the rest of the name."""
    parts = fqn.split(".")
    for index, part in enumerate(parts[:2]):
        component = component_of(part)
        if component:
            return component, ".".join(parts[index + 1 :])
        if part not in WRAPPERS and not re.fullmatch(r"chained_\d+", part):
            break
    return None, fqn


def _read_items(files: Files, path: str, items: List[Item], reading: Reading, deep: bool) -> None:
    """Read each file's items in the order in which they lie; a shallow read takes only those that tell the step."""
    default = "model" if "model" in reading.components else ""
    by_file: Dict[str, List[Item]] = {}
    for item in items:
        if deep or (item.is_bytes and item.fqn.rpartition(".")[2] in (*STEP_KEYS, *WRAPPERS, "train_state")):
            by_file.setdefault(item.file, []).append(item)
    for name, wanted in sorted(by_file.items()):
        with files.open(os.path.join(path, name)) as span:
            for item in sorted(wanted, key=lambda each: each.offset):
                try:
                    _read_item(span.part(item.offset, item.length), item, reading, deep, default)
                except Torn as torn:
                    reading.torn.append(f"{shown(item.fqn)}: {torn}")
    if not deep:
        reading.states.clear()


def _read_item(span: Span, item: Item, reading: Reading, deep: bool, default: str) -> None:
    component, rest = fqn_component(item.fqn)
    component = component or ("" if item.is_bytes else default)
    name = ".".join(part for part in (component, rest) if part)
    if any(item.chunk):
        name += str(list(item.chunk)).replace(" ", "")
    if span.size < 2 or span.at(0, 2) != b"PK":
        reading.states[name] = State("bytes", span.crc() if deep else None)
        return
    found = read_torch(span, deep)
    reading.torn += [f"{shown(item.fqn)}: {reason}" for reason in found.torn]
    last = item.fqn.rpartition(".")[2]
    if item.is_bytes and reading.step is None and component not in ("optimizer", "scheduler"):
        reading.step = step_in(found.tree if type(found.tree) is dict else {last: found.tree})
    if type(found.tree) is Tensor:
        reading.states[name] = state_of(found.tree, found.checksum)
        return
    for leaf, value in leaves_of(found.tree, name):
        reading.states[leaf] = state_of(value, found.checksum)
