"""Events out of a kernel log of any size, in constant memory.

Lines that cannot matter are never looked at one by one: whole blocks are searched for the few words that every fault
record contains. What is kept between blocks: an unfinished line (at most `MAX_LINE_BYTES`), a little text to find the
first of three lines in, and the NVSwitch errors whose further lines may still come.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from chaos_gpu.criteria.xid.event import Event, Kind
from chaos_gpu.criteria.xid.forms import first_of_three
from chaos_gpu.criteria.xid.prefix import unframe
from chaos_gpu.criteria.xid.reader import MAX_LINE_BYTES, read_line

_XID = b"Xid ("  # also the end of `SXid (`
_FALLEN = b"fallen off the bus"
_TRIES = 64
_BEFORE_BYTES = 2048
_BEFORE_LINES = 8
_OPEN_SWITCH_ERRORS = 1024
_FURTHER_WITHIN_LINES = 256


class LogReader:
    """Takes a log in pieces of any size, as they come, and returns the events of each piece's complete lines."""

    def __init__(self) -> None:
        self.lines = 0
        """How many lines have been read, an unfinished last one included once the log is closed."""
        self._rest = b""
        self._before = b""
        self._switches = _SwitchErrors()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Return the events of the lines that this piece completes."""
        end = piece.rfind(b"\n") + 1
        if end == 0:  # of a line that never ends, the beginning is enough
            self._rest = (self._rest + piece)[:MAX_LINE_BYTES]
            return
        start = 0
        if self._rest:
            start = piece.find(b"\n") + 1
            yield from self._read(self._rest + piece[:start], 0, len(self._rest) + start)
        yield from self._read(piece, start, end)
        self._rest = piece[end:][:MAX_LINE_BYTES]

    def close(self) -> Iterator[Event]:
        """Return the event of a last line without a newline, if it has one."""
        block, self._rest = self._rest, b""
        lines = self.lines + bool(block)
        yield from self._read(block, 0, len(block))
        self.lines = lines

    def _read(self, block: bytes, start: int, end: int) -> Iterator[Event]:
        """Read the lines of a block from `start` to `end`. At most one line stands before, no whole one behind."""
        spans = lines_to_read(block, start, end)
        if not spans:
            self.lines += _newlines(block) - (start > 0)
        done = start
        for first, last in spans:
            self.lines += _newlines(block[done:first]) + 1
            done = last + 1
            event = read_line(block[first:last], self.lines)
            if event is None:
                continue
            if event.pci is None:
                event = self._with_gpu(event, block[max(start, first - _BEFORE_BYTES) : first])
            if event.kind is not Kind.SXID or not self._switches.took(event):
                yield event
        if spans:
            self.lines += _newlines(block[done:end])
        self._before = (self._before + block[max(start, end - _BEFORE_BYTES) : end])[-_BEFORE_BYTES:]

    def _with_gpu(self, event: Event, before: bytes) -> Event:
        """Find the GPU of a fall that was written in three lines, in the first of them."""
        text = (self._before + before)[-_BEFORE_BYTES:]
        for distance, line in enumerate(reversed(text.split(b"\n")[-_BEFORE_LINES - 1 : -1]), start=1):
            first = unframe(line.rstrip(b"\r"))
            pci = first_of_three(first.text)
            if pci is not None:
                return event._replace(pci=pci, line=event.line - distance)
        return event


class _SwitchErrors:
    """NVSwitch errors lately begun: their further lines say more of the same error, and are no events."""

    def __init__(self) -> None:
        self._heads: OrderedDict[tuple[str | None, int], tuple[int, int]] = OrderedDict()

    def took(self, event: Event) -> bool:
        """Say whether the event is a further line of an error that has been told.

        An error has one line `Severity`, then any number of `Data`; two errors of one switch may interleave.
        """
        key = event.pci, event.code
        line, without_severity = self._heads.pop(key, (0, 0))
        begun = line > 0 and event.line - line <= _FURTHER_WITHIN_LINES
        data = event.text.startswith("Data")
        told = event.continuation and begun and (data or without_severity > 0)
        if not begun:
            without_severity = 0
        if not event.continuation:
            without_severity += 1
        elif told and not data:
            without_severity -= 1
        self._heads[key] = (event.line, without_severity)
        if len(self._heads) > _OPEN_SWITCH_ERRORS:
            self._heads.popitem(last=False)
        return told


def read_log(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Return every event of a log, in its order."""
    reader = LogReader()
    for piece in pieces:
        yield from reader.feed(piece)
    yield from reader.close()


def lines_to_read(block: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Return start and end of each line that may report a fault, in order.

    Searches from the right, since bytes.rfind takes half the time of bytes.find for words as short as these.
    """
    spans = []
    xid, fallen = _rfind_xid(block, start, end), block.rfind(_FALLEN, start, end)
    while (at := max(xid, fallen)) >= 0:
        first = block.rfind(b"\n", start, at) + 1 or start
        last = block.find(b"\n", at, end)
        spans.append((first, end if last < 0 else last))
        if xid >= first:
            xid = _rfind_xid(block, start, first)
        if fallen >= first:
            fallen = block.rfind(_FALLEN, start, first)
    spans.reverse()
    return spans


def _rfind_xid(block: bytes, start: int, end: int) -> int:
    """Find the last `Xid (`. The letter X is rare in most logs, and memrchr finds it ten times as fast as the word."""
    for _ in range(_TRIES):
        at = block.rfind(b"X", start, end)
        if at < 0 or block.startswith(_XID, at, end):
            return at
        end = at
    return block.rfind(_XID, start, end)


def _newlines(block: bytes) -> int:
    """Count lines. For long stretches, deleting finds newlines by memchr, which is twice as fast as counting them."""
    if len(block) < 4096:
        return block.count(b"\n")
    return len(block) - len(block.replace(b"\n", b""))
