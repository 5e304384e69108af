"""Read the directory of a zip as torch.save writes it: stored records, their CRCs, nothing decompressed.

Source: PKWARE APPNOTE 6.3.9, sections 4.3.7 (local header) to 4.3.16 (end of directory), and 4.5.3 (ZIP64).
"""

import struct
from typing import Dict, List, NamedTuple, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError, Span, Torn, shown

MAX_DIRECTORY_BYTES = 256 << 20
END = struct.Struct("<4s4H2IH")
END64 = struct.Struct("<4sQ2H2I4Q")
LOCATOR64 = struct.Struct("<4sIQI")
ENTRY = struct.Struct("<4s4x2H4x3I5H2I")
LOCAL = struct.Struct("<4s22x2H")
FULL = 0xFFFFFFFF


class Record(NamedTuple):
    """One record: where its local header begins, how long its data is, and the CRC that the directory states."""

    name: str
    header: int
    size: int
    crc: int


def zip_records(span: Span) -> Dict[str, Record]:
    """Return the records by name.

    Raises:
        Torn: the directory at the end is missing or broken: the writer did not get that far.
        CheckpointError: compressed, records that overlap, a directory beyond 256 MiB.
    """
    count, size, offset = _directory(span)
    if size > MAX_DIRECTORY_BYTES:
        raise CheckpointError("its zip directory is absurdly large")
    entries, found, pos = span.at(offset, size), {}, 0
    for _ in range(min(count, size // ENTRY.size + 1)):
        if pos + ENTRY.size > size:
            break
        record, pos = _entry(entries, pos)
        if record.name in found:
            raise CheckpointError("its zip directory names a record twice")
        found[record.name] = record
    if len(found) != count:
        raise Torn("its zip directory is broken")
    if sum(record.size for record in found.values()) > span.size:
        raise CheckpointError("its zip records overlap")
    return found


def _directory(span: Span) -> Tuple[int, int, int]:
    """Find how many entries the directory has, its bytes, and where it begins."""
    tail_at = max(0, span.size - (1 << 16) - END.size - LOCATOR64.size)
    tail = span.at(tail_at, span.size - tail_at)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < END.size:
        raise Torn("it has no zip directory at its end: cut off")
    count, size, offset = END.unpack_from(tail, end)[4:7]
    if FULL in (size, offset) or count == 0xFFFF:
        if end < LOCATOR64.size or tail[end - LOCATOR64.size :][:4] != b"PK\x06\x07":
            raise Torn("its zip directory is broken")
        where = LOCATOR64.unpack_from(tail, end - LOCATOR64.size)[2]
        fields = END64.unpack(span.at(where, END64.size))
        if fields[0] != b"PK\x06\x06":
            raise Torn("its zip directory is broken")
        count, size, offset = fields[7:10]
    return count, size, offset


def _entry(entries: bytes, pos: int) -> Tuple[Record, int]:
    magic, flags, method, crc, packed, size, name_size, extra_size, comment_size, _, _, _, header = ENTRY.unpack_from(
        entries, pos
    )
    if magic != b"PK\x01\x02":
        raise Torn("its zip directory is broken")
    start = pos + ENTRY.size
    name = entries[start : start + name_size].decode("utf-8", errors="replace")
    extra = entries[start + name_size : start + name_size + extra_size]
    size, packed, header = _wide(extra, [size, packed, header])
    if method or packed != size or flags & 1:
        raise CheckpointError(f"its record {shown(name)} is compressed or encrypted, which is not supported")
    return Record(name, header, size, crc), start + name_size + extra_size + comment_size


def _wide(extra: bytes, values: List[int]) -> List[int]:
    """Fill in what stands in the ZIP64 extra field: only the values that are full, in this order."""
    if FULL not in values:
        return values
    pos = 0
    while pos + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, pos)
        pos += 4
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{min(size, len(extra) - pos) // 8}Q", extra, pos))
            return [next(wide, value) if value == FULL else value for value in values]
        pos += size
    return values


def data_of(span: Span, record: Record) -> Span:
    """Return the range of a record's data. Raises Torn where its header is not there."""
    magic, name_size, extra_size = LOCAL.unpack(span.at(record.header, LOCAL.size))
    if magic != b"PK\x03\x04":
        raise Torn(f"its record {shown(record.name)} has no header")
    return span.part(record.header + LOCAL.size + name_size + extra_size, record.size)
