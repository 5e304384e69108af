"""Read one file of torch.save, zip or legacy, without torch.

Commit rule: none below the file; a zip is whole once its directory stands at its end, a legacy file once its size is
what its pickles ask for. Completeness: each storage that the pickle names is there with its size. States: the CRCs of
the zip's directory; a deep read checks them. A legacy file has no CRCs: a flipped bit cannot be found.
Source: torch/serialization.py, caffe2/serialize/inline_container.cc.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError, Span, Strange, Torn, shown
from chaos_gpu.payloads.checkpoint_opcodes import MAX_DIGITS
from chaos_gpu.payloads.checkpoint_pickle import MAX_PICKLE_BYTES, Storage, Tensor, Walk
from chaos_gpu.payloads.checkpoint_reading import Checksum
from chaos_gpu.payloads.checkpoint_zip import LOCAL, Record, data_of, zip_records

LEGACY_BEGINS = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
LEGACY_PICKLES = 5
ITEM_BYTES = {
    "bool": 1, "uint8": 1, "byte": 1, "int8": 1, "char": 1, "untyped": 1, "qint8": 1, "quint8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "short": 2, "uint16": 2,
    "float32": 4, "float": 4, "int32": 4, "int": 4, "uint32": 4, "qint32": 4,
    "float64": 8, "double": 8, "int64": 8, "long": 8, "uint64": 8, "complex64": 8, "complexfloat": 8,
    "complex128": 16, "complexdouble": 16,
}  # fmt: skip
"""Bytes an element, by the names of dtypes and those of the storage types."""


class TorchFile(NamedTuple):
    """What a file holds: its tree (None where it cannot be read), what is wrong, and how to get a tensor's CRC."""

    kind: str
    tree: Any
    torn: List[str]
    expected: Optional[int]
    checksum: Checksum


def storage_bytes(storage: Storage) -> Optional[int]:
    """Return how many bytes a storage has, None for a type that is not known."""
    item = ITEM_BYTES.get(storage.dtype)
    return None if item is None else item * storage.numel


def read_torch(span: Span, deep: bool) -> TorchFile:
    """Read a file of torch.save, whole or torn.

    Raises:
        CheckpointError: it is hostile, or no file of torch.save.
    """
    if not span.size:
        return TorchFile("torch-zip", None, ["it is empty"], None, _no_checksum)
    head = span.head(min(span.size, len(LEGACY_BEGINS)))
    if head.startswith(b"PK") or b"PK\x03\x04".startswith(head):
        return _read_zip(span, deep)
    if head.startswith(LEGACY_BEGINS) or LEGACY_BEGINS.startswith(head):
        return _read_legacy(span, deep)
    if not head.strip(b"\0") and span.hole() is not None:
        return TorchFile("torch-zip", None, ["it is a hole: none of its bytes were written"], None, _no_checksum)
    if not head.strip(b"\0"):
        return TorchFile("torch-zip", None, ["it begins with zeros: its bytes were never written"], None, _no_checksum)
    raise Strange("it is no file of torch.save: neither zip nor legacy")


def _no_checksum(tensor: Tensor) -> Optional[int]:
    return None


def _read_zip(span: Span, deep: bool) -> TorchFile:
    try:
        hole = span.hole()
        if hole is not None:
            raise Torn(f"from byte {hole} on it has a hole that was never written")
        records = zip_records(span)
        name = next((each for each in records if each == "data.pkl" or each.endswith("/data.pkl")), None)
        if name is None:
            raise Strange("it is a zip, but none of torch.save: it has no data.pkl")
    except Torn as torn:
        return _salvaged(span, str(torn))
    unchecked = not any(record.crc for record in records.values() if record.size)
    walk, tree, torn_reasons = None, None, []
    try:
        walk, tree = _data_pkl(span, records[name], unchecked)
    except Torn as torn:
        torn_reasons.append(f"data.pkl: {torn}")
    prefix = name[: -len("data.pkl")] + "data/"
    if walk is not None:
        torn_reasons += _missing(walk.storages, records, prefix) + _beyond(walk)
    if deep and not unchecked:
        torn_reasons += _damaged(span, records, name)
    expected = sum(record.size for record in records.values())
    return TorchFile("torch-zip", tree, torn_reasons, expected, _zip_checksum(span, records, prefix, unchecked, deep))


def _data_pkl(span: Span, record: Record, unchecked: bool) -> Tuple[Walk, Any]:
    if record.size > MAX_PICKLE_BYTES:
        raise CheckpointError(f"its data.pkl has more than {MAX_PICKLE_BYTES >> 20} MiB")
    data = data_of(span, record)
    if not unchecked and data.crc() != record.crc:
        raise Torn("its bytes are not those of its CRC")
    walk = Walk(data.at(0, data.size))
    return walk, walk.run()


def _missing(storages: Dict[str, Storage], records: Dict[str, Record], prefix: str) -> List[str]:
    found = []
    for storage in storages.values():
        record, wanted = records.get(prefix + storage.key), storage_bytes(storage)
        if record is None:
            found.append(f"storage {shown(storage.key)} is missing")
        elif wanted is not None and record.size != wanted:
            found.append(f"storage {shown(storage.key)} has {record.size} bytes, its pickle asks for {wanted}")
    return found


def _beyond(walk: Walk) -> List[str]:
    """Name the storages that are too small for a tensor which is a view of them: such a file does not load."""
    found = []
    for (key, dtype), count in walk.reach.items():
        item, has = ITEM_BYTES.get(dtype), storage_bytes(walk.storages[key])
        if item is not None and has is not None and count * item > has:
            found.append(f"a tensor needs {count * item} bytes of storage {shown(key)}, which has {has}")
    return found


def _damaged(span: Span, records: Dict[str, Record], but: str) -> List[str]:
    found = []
    for record in records.values():
        try:
            if record.name != but and data_of(span, record).crc() != record.crc:
                found.append(f"record {shown(record.name)} is damaged: its bytes are not those of its CRC")
        except Torn as torn:
            found.append(f"record {shown(record.name)}: {torn}")
    return found


def _zip_checksum(span: Span, records: Dict[str, Record], prefix: str, unchecked: bool, deep: bool) -> Checksum:
    """Take a tensor's CRC from the directory where it is the whole storage, else read its bytes."""

    def checksum(tensor: Tensor) -> Optional[int]:
        record = records.get(prefix + tensor.storage.key)
        if record is None:
            return None
        if not unchecked and is_whole(tensor, record.size):
            return record.crc
        try:
            return tensor_crc(data_of(span, record), tensor) if deep or not unchecked else None
        except Torn:
            return None

    return checksum


def is_whole(tensor: Tensor, size: int) -> bool:
    """Say whether a tensor is its storage's bytes, in order."""
    item = ITEM_BYTES.get(tensor.dtype)
    return item is not None and not tensor.offset and is_contiguous(tensor) and elements(tensor) * item == size


def elements(tensor: Tensor) -> int:
    """Return how many elements a tensor has."""
    count = 1
    for each in tensor.shape:
        count *= each
    return count


def is_contiguous(tensor: Tensor) -> bool:
    """Say whether a tensor's elements lie one after the other."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride)):  # noqa: B905
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def tensor_crc(data: Span, tensor: Tensor) -> Optional[int]:
    """Return the CRC-32 of a tensor's bytes; of one with gaps that of its whole storage and its strides."""
    item = ITEM_BYTES.get(tensor.dtype)
    if item is not None and is_contiguous(tensor):
        return data.part(tensor.offset * item, elements(tensor) * item).crc()
    crc = data.crc()
    for number in (tensor.offset, *tensor.stride):
        crc = (crc * 31 + number) & 0xFFFFFFFF
    return crc


def _salvaged(span: Span, reason: str) -> TorchFile:
    """Read the pickle of a zip without directory: it is the first record, so it tells what should have followed."""
    tree, expected = None, None
    try:
        magic, name_size, extra_size = LOCAL.unpack(span.at(0, LOCAL.size))
        name = span.at(LOCAL.size, name_size)
        if magic == b"PK\x03\x04" and name.endswith(b"data.pkl"):
            start = LOCAL.size + name_size + extra_size
            walk, tree = first_pickle(span.part(start, span.size - start))
            expected = start + walk.end + sum(storage_bytes(each) or 0 for each in walk.storages.values())
    except Torn:
        pass  # not even the pickle is whole
    return TorchFile("torch-zip", tree, [reason], expected, _no_checksum)


def first_pickle(span: Span, walks: Callable[[Walk], Any] = Walk.run) -> Tuple[Walk, Any]:
    """Walk a pickle of unknown length at the beginning of a range, reading no more than four times its length."""
    limit = 1 << 20
    while True:
        walk = Walk(span.head(limit))
        try:
            return walk, walks(walk)
        except Torn:
            if limit >= min(span.size, MAX_PICKLE_BYTES):
                raise
        limit *= 4


def _read_legacy(span: Span, deep: bool) -> TorchFile:
    trees: List[Any] = []
    try:
        walk, _ = first_pickle(span, lambda walk: _five(walk, trees))
    except Torn as torn:
        return TorchFile("torch-legacy", None, [str(torn)], None, _no_checksum)
    keys = trees[4] if type(trees[4]) is list else []
    places, pos, torn_reasons = {}, walk.end, []
    for key in keys:
        storage = walk.storages.get(str(key)[:MAX_DIGITS])
        size = None if storage is None else storage_bytes(storage)
        if size is None:
            raise CheckpointError("it is a legacy file with a storage that is not known")
        places[str(key)] = (pos + 8, size)
        pos += 8 + size
    if span.size != pos:
        torn_reasons.append(f"it has {span.size} bytes, its pickles ask for {pos}")
    torn_reasons += _beyond(walk)

    def checksum(tensor: Tensor) -> Optional[int]:
        place = places.get(tensor.storage.key)
        try:
            return tensor_crc(span.part(*place), tensor) if deep and place else None
        except Torn:
            return None

    return TorchFile("torch-legacy", trees[3], torn_reasons, pos, checksum)


def _five(walk: Walk, trees: List[Any]) -> None:
    """Walk magic number, protocol, system, object and the storages' keys."""
    del trees[:]
    for _ in range(LEGACY_PICKLES):
        trees.append(walk.run())
        del walk.memo[:], walk.marks[:]
