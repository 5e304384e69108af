r"""Read one record of /dev/kmsg: `prio,seq,usec,flags[,more];text`, further lines `KEY=value`, bytes as `\xNN`.

Source: Linux, Documentation/ABI/testing/dev-kmsg.
"""

import re
from dataclasses import dataclass

_RECORD = re.compile(rb"([0-9]{1,10}),([0-9]{1,20}),([0-9]{1,20}),([-c+])(?:,[^;\n]*)?;([^\n]*)(?:\n.*)?", re.DOTALL)
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_LEVEL_BITS = 3
_KERNEL = 0


class MalformedRecord(ValueError):
    """These bytes are not a record of /dev/kmsg."""


@dataclass(frozen=True)
class KmsgRecord:
    """One record of the kernel log."""

    facility: int
    level: int
    seq: int
    usec: int
    """Time since boot, microseconds."""
    flag: str
    """`-` alone, `c` the first part of a continued line (the driver's own records carry it), `+` a later part."""
    text: str

    @property
    def from_kernel(self) -> bool:
        """Whether the kernel wrote it; a record written from user space has another facility."""
        return self.facility == _KERNEL


def parse_kmsg(data: bytes) -> KmsgRecord:
    """Read one record.

    Raises:
        MalformedRecord: anything else than a record.
    """
    match = _RECORD.fullmatch(data)
    if match is None:
        raise MalformedRecord(f"not a record of /dev/kmsg: {data[:80]!r}")
    priority, seq, usec, flag, text = match.groups()
    plain = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), text)
    return KmsgRecord(
        facility=int(priority) >> _LEVEL_BITS,
        level=int(priority) & 7,
        seq=int(seq),
        usec=int(usec),
        flag=flag.decode("ascii"),
        text=plain.decode("utf-8", errors="replace"),
    )
