"""Read a safetensors file: its header says where each tensor lies and how long the file must be.

Commit rule: none before version 0.8 (the final name grows), a rename from `.tmp…` since. Completeness: header
arithmetic, and holes where the file system knows them. States: a streaming CRC, since the format stores none; a flipped
bit is not found.
Source: safetensors/src/tensor.rs.
"""

import json
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from chaos_gpu.payloads.checkpoint_files import Span, Strange, Torn, shown
from chaos_gpu.payloads.checkpoint_reading import State

MAX_HEADER_BYTES = 100_000_000
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16, "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits an element, by the names of dtypes."""
TENSORS_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9_]{6,}")


class TensorsFile(NamedTuple):
    """What a file holds: each tensor's place, what is wrong, and how many bytes it should have."""

    tensors: Dict[str, Any]
    torn: List[str]
    expected: Optional[int]
    data_at: int


def read_safetensors(span: Span) -> TensorsFile:
    """Read the header.

    Raises:
        Strange: it is no safetensors file.
    """
    try:
        size = struct.unpack("<Q", span.at(0, 8))[0]
    except Torn:
        return TensorsFile({}, ["it ends within the length of its header"], None, 0)
    if size > MAX_HEADER_BYTES:
        raise Strange("it is no safetensors file: its header would have more than 100 MB")
    begins = span.at(8, min(1, span.size - 8))
    if begins not in (b"{", b"\0", b"") or (begins == b"{" and size < 2):
        raise Strange("it is no safetensors file: its header is no JSON")
    if 8 + size > span.size:
        return TensorsFile({}, [f"it ends within its header of {size} bytes"], None, 0)
    if begins != b"{":
        return TensorsFile({}, ["its header was never written"], None, 0)
    tensors = _header(span.at(8, size))
    end = max([each["data_offsets"][1] for each in tensors.values()], default=0)
    torn = [f"it has {span.size} bytes, its header asks for {8 + size + end}"] if span.size != 8 + size + end else []
    torn += _misshapen(tensors)
    hole = span.hole()
    if hole is not None:
        torn.append(f"from byte {hole} on it has a hole that was never written")
    return TensorsFile(tensors, torn, 8 + size + end, 8 + size)


def _misshapen(tensors: Dict[str, Any]) -> List[str]:
    """Name the tensors whose bytes are not what dtype and shape ask for: such a file does not load."""
    found = []
    for name, each in tensors.items():
        begin, after = each["data_offsets"]
        bits, shape = BITS.get(str(each.get("dtype"))), each.get("shape")
        if type(shape) is not list or not all(type(size) is int and size >= 0 for size in shape):
            found.append(f"{shown(name)} has no shape")
        elif bits is not None and not _fits(shape, bits, 8 * (after - begin)):
            found.append(f"{shown(name)} has {after - begin} bytes, not those of its dtype and shape")
    return found


def _fits(shape: List[int], bits: int, wanted: int) -> bool:
    if 0 in shape:
        return wanted == 0
    for size in shape:
        bits *= size
        if bits > wanted:
            return False
    return bits == wanted


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name twice")
    return dict(pairs)


def _header(data: bytes) -> Dict[str, Any]:
    try:
        header = json.loads(data, object_pairs_hook=_once)
        header.pop("__metadata__", None)
        places = sorted((*each["data_offsets"], name) for name, each in header.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise Strange("it is no safetensors file: its header is not as it should be") from None
    end = 0
    for begin, after, name in places:
        if type(begin) is not int or type(after) is not int or begin != end or after < begin:
            raise Strange(f"it is no safetensors file: {shown(str(name))} leaves a gap or overlaps")
        end = after
    return dict(header)


def tensors_states(span: Span, found: TensorsFile, name: str) -> Dict[str, State]:
    """Return the states of all tensors, reading each byte once. Tensors beyond the end have no CRC."""
    states = {}
    for key, each in found.tensors.items():
        begin, after = each["data_offsets"]
        try:
            crc: Optional[int] = span.part(found.data_at + begin, after - begin).crc()
        except Torn:
            crc = None
        states[f"{name}.{key}"] = State(f"{each.get('dtype')}{each.get('shape')}", crc)
    return states
