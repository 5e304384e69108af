"""One line of any kernel log in, one event out."""

from chaos_gpu.criteria.xid.event import Event
from chaos_gpu.criteria.xid.forms import read_record
from chaos_gpu.criteria.xid.prefix import unframe

MAX_LINE_BYTES = 65_536
"""A line's part that is read. The kernel's records are shorter than 1 kB; what is longer is no kernel log."""


def read_line(line: bytes, number: int = 1) -> Event | None:
    """Read one line, or one record of /dev/kmsg; None if it reports no fault. Takes any bytes.

    Args:
        line: with or without its newline; a record may hold newlines.
        number: of the line in its log, from 1.
    """
    line = line.lstrip(b"\0")[:MAX_LINE_BYTES]  # a machine that lost power leaves runs of zeros before the next line
    return read_record(unframe(line.rstrip(b"\r\n\0")), number)
