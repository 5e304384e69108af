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
_TRIES = 256
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
        cut = piece.rfind(b"\n") + 1
        if cut == 0:  # of a line that never ends, the beginning is enough
            self._rest = (self._rest + piece)[:MAX_LINE_BYTES]
            return
        block = self._rest + piece[:cut]
        self._rest = piece[cut:][:MAX_LINE_BYTES]
        yield from self._read(block)

    def close(self) -> Iterator[Event]:
        """Return the event of a last line without a newline, if it has one."""
        block, self._rest = self._rest, b""
        yield from self._read(block)
        self.lines += bool(block)

    def _read(self, block: bytes) -> Iterator[Event]:
        done = 0
        for start, end in lines_to_read(block):
            if start > done:
                self.lines += _newlines(block, done, start)
            self.lines += 1
            done = end + 1
            event = read_line(block[start:end], self.lines)
            if event is None:
                continue
            if event.pci is None:
                event = self._with_gpu(event, block[max(0, start - _BEFORE_BYTES) : start])
            if event.kind is not Kind.SXID or not self._switches.took(event):
                yield event
        if done > len(block):  # the last line has no newline
            self.lines -= 1
        self.lines += _newlines(block, done, len(block))
        self._before = (self._before + block[-_BEFORE_BYTES:])[-_BEFORE_BYTES:]

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


def lines_to_read(block: bytes) -> Iterator[tuple[int, int]]:
    """Return start and end of each line that may report a fault, in order."""
    size = len(block)
    end = -1
    xid, fallen = _find_xid(block, 0), _find(block, _FALLEN, 0)
    while (at := xid if xid < fallen else fallen) < size:
        start = block.rfind(b"\n", end + 1, at) + 1 or end + 1
        end = block.find(b"\n", at)
        if end < 0:
            end = size
        yield start, end
        if xid < end:
            xid = _find_xid(block, end)
        if fallen < end:
            fallen = _find(block, _FALLEN, end)


def _find_xid(block: bytes, start: int) -> int:
    """Find the next `Xid (`. The letter X is rare in kernel logs, and memchr finds it ten times as fast as the word."""
    at = block.find(b"X", start)
    for _ in range(_TRIES):
        if at < 0:
            return len(block)
        if block.startswith(_XID, at):
            return at
        at = block.find(b"X", at + 1)
    return _find(block, _XID, at) if at >= 0 else len(block)


def _find(block: bytes, needle: bytes, start: int) -> int:
    at = block.find(needle, start)
    return len(block) if at < 0 else at


def _newlines(block: bytes, start: int, end: int) -> int:
    """Count lines. For long stretches, deleting finds newlines by memchr, which is twice as fast as counting them."""
    if end - start < 4096:
        return block.count(b"\n", start, end)
    part = block[start:end]
    return len(part) - len(part.replace(b"\n", b""))
