"""Logs of any size, in pieces of any size: the same events, the same line numbers, the same memory."""

import re
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.xid.event import Event, Kind
from chaos_gpu.criteria.xid.forms import first_of_three
from chaos_gpu.criteria.xid.prefix import unframe
from chaos_gpu.criteria.xid.reader import MAX_LINE_BYTES, read_line
from chaos_gpu.criteria.xid.stream import LogReader, _SwitchErrors, lines_to_read, read_log
from tests.criteria.xid.corpus import GOLDEN, LINES, REAL, XID

NOISE = [
    "",
    "usb 1-1: new high-speed USB device number 4 using xhci_hcd",
    "EXT4-fs (sda1): re-mounted. eXtra Xid",
    "myapp: it has fallen off the bus",
    "NVRM: Xid error: xyz",
    "é",
]
CORPUS = [row["line"] for row in (*LINES, *GOLDEN)] + [row["record"] for row in REAL]
ANY_LINE = st.sampled_from(CORPUS + NOISE)
HEAD = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)"
SEVERITY = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00"
DATA = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, 0x00100000}"
FIRST = "NVRM: The NVIDIA GPU 0000:b3:00.0"
SECOND = "NVRM: (PCI ID: 10de:26b5) installed in this system has"
THIRD = "NVRM: fallen off the bus and is not responding to commands."


def events(*lines: str) -> list[Event]:
    return list(read_log(["\n".join(lines).encode()]))


def told(*lines: str) -> list[tuple[int, int, bool]]:
    return [(event.line, event.code, event.continuation) for event in events(*lines)]


def in_pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


@given(st.lists(ANY_LINE, max_size=30), st.lists(st.integers(0, 200), max_size=30), st.sampled_from(["\n", "\r\n"]))
def test_pieces_do_not_matter(lines: list[str], sizes: list[int], end: str) -> None:
    data = end.join(lines).encode()
    reader = LogReader()
    found = [event for piece in in_pieces(data, sizes) for event in reader.feed(piece)] + list(reader.close())
    assert found == list(read_log([data]))
    assert reader.lines == len(data.splitlines()) or end in "".join(lines)


def line_by_line(data: bytes) -> list[Event]:
    """What a log says, read the plain way: the whole of it at once, one line after the other, nothing skipped."""
    found, switches, at = [], _SwitchErrors(), 0
    for number, line in enumerate(data.split(b"\n"), 1):
        before = data[:at][-2048:].split(b"\n")[-9:-1]
        at += len(line) + 1
        if b"Xid (" not in line and b"fallen off the bus" not in line:
            continue
        event = read_line(line, number)
        if event is not None and event.pci is None:
            firsts = [first_of_three(unframe(each.rstrip(b"\r")).text) for each in before]
            back = next((back for back in range(1, len(firsts) + 1) if firsts[-back]), 0)
            event = event._replace(pci=firsts[-back], line=number - back) if back else event
        if event is not None and not (event.kind is Kind.SXID and switches.took(event)):
            found.append(event)
    return found


BROKEN = st.binary(max_size=60) | st.sampled_from([b"\0" * 300, b"X" * 40, b"x\n" * 3000, b"\r", b"", b"Xid (", b"Xid"])


@given(
    st.lists(ANY_LINE.map(str.encode) | st.sampled_from([HEAD, DATA, FIRST, SECOND, THIRD]).map(str.encode) | BROKEN),
    st.sampled_from([b"\n", b"\r\n", b"\0\n", b"\n\0"]),
    st.lists(st.integers(0, 500), max_size=40),
)
def test_blocks_and_skipping_change_nothing(lines: list[bytes], end: bytes, sizes: list[int]) -> None:
    data = end.join(lines)
    reader = LogReader()
    found = [event for piece in in_pieces(data, sizes) for event in reader.feed(piece)] + list(reader.close())
    assert found == line_by_line(data)
    assert reader.lines == data.count(b"\n") + (data[-1:] not in {b"", b"\n"})


@given(st.lists(st.sampled_from([line for line in CORPUS if "SXid" not in line and "fallen off" not in line] + NOISE)))
def test_a_log_is_read_as_its_lines_are(lines: list[str]) -> None:
    one_by_one = [event for number, line in enumerate(lines, 1) if (event := read_line(line.encode(), number))]
    assert events(*lines) == one_by_one


@given(st.lists(st.binary(max_size=200) | ANY_LINE.map(str.encode)).map(b"\n".join), st.lists(st.integers(0, 99)))
def test_any_bytes_are_read(data: bytes, sizes: list[int]) -> None:
    reader = LogReader()
    for piece in in_pieces(data, sizes):
        for event in reader.feed(piece):
            assert 1 <= event.line <= reader.lines + 1
    list(reader.close())
    assert reader.lines == data.count(b"\n") + (data[-1:] not in {b"", b"\n"})


@given(st.lists(ANY_LINE, max_size=20), st.sampled_from([0, 1, 100, 254, 255, 256, 257, 999]))
def test_every_line_that_may_matter_is_read(lines: list[str], padding: int) -> None:
    block = "\n".join(lines).encode()
    block = block.replace(b"myapp", b"X" * padding)
    wanted = [match.span() for match in re.finditer(rb"[^\n]*(?:Xid \(|fallen off the bus)[^\n]*", block)]
    assert lines_to_read(block, 0, len(block)) == wanted
    inside = [span for span in wanted if span[0] > 0 and span[1] < len(block)]
    assert lines_to_read(block, block.find(b"\n") + 1, block.rfind(b"\n") + 1) == inside


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_line_numbers_begin_at_one(end: str) -> None:
    reader = LogReader()
    data = f"{XID}\nx\n\n{XID}{end}".encode()
    found = [*reader.feed(data), *reader.close()]
    assert [event.line for event in found] == [1, 4]
    assert reader.lines == 4 + (end == "\n\n")


def test_an_event_is_told_as_soon_as_its_line_ends() -> None:
    reader = LogReader()
    assert list(reader.feed(XID.encode())) == []
    assert [event.line for event in reader.feed(b"\n" + XID[:20].encode())] == [1]
    assert list(reader.feed(XID[20:].encode())) == []
    assert [event.line for event in reader.close()] == [2]
    assert list(reader.close()) == []
    assert reader.lines == 2


def test_empty_logs() -> None:
    for pieces in ([], [b""], [b"", b""]):
        reader = LogReader()
        assert [event for piece in pieces for event in reader.feed(piece)] + list(reader.close()) == []
        assert reader.lines == 0


def test_a_switch_error_and_its_further_lines_are_one_event() -> None:
    assert told(HEAD, SEVERITY, DATA, DATA) == [(1, 28006, False)]
    assert told(HEAD, SEVERITY, DATA, HEAD, SEVERITY, DATA) == [(1, 28006, False), (4, 28006, False)]
    assert told(HEAD, HEAD, SEVERITY, SEVERITY, DATA) == [(1, 28006, False), (2, 28006, False)]
    assert told(HEAD, "x", DATA, XID, SEVERITY) == [(1, 28006, False), (4, 79, False)]


def test_a_further_line_without_its_head_is_one_event() -> None:
    assert told(SEVERITY, DATA, DATA) == [(1, 28006, True)]
    assert told(DATA, DATA) == [(1, 28006, True)]
    assert told(SEVERITY, SEVERITY) == [(1, 28006, True), (2, 28006, True)]
    assert told(HEAD, SEVERITY, SEVERITY) == [(1, 28006, False), (3, 28006, True)]
    assert told(HEAD, SEVERITY.replace("28006", "28007")) == [(1, 28006, False), (2, 28007, True)]
    assert told(HEAD, SEVERITY.replace("c1:00.0", "c1:00.1")) == [(1, 28006, False), (2, 28006, True)]
    assert told(HEAD, SEVERITY.replace("c1:00.0", "c2:00.0")) == [(1, 28006, False), (2, 28006, True)]


def test_a_further_line_comes_soon_or_is_of_another_error() -> None:
    assert told(HEAD, *["x"] * 255, SEVERITY) == [(1, 28006, False)]
    assert told(HEAD, *["x"] * 256, SEVERITY) == [(1, 28006, False), (258, 28006, True)]
    assert told(HEAD, *["x"] * 256, DATA) == [(1, 28006, False), (258, 28006, True)]


def test_many_switches_do_not_take_memory_for_ever() -> None:
    others = [HEAD.replace("28006", str(code)) for code in range(1, 1025)]
    assert told(HEAD, *others[:200], SEVERITY)[-1] == (201, 200, False)
    crowd = "\n".join((HEAD, *others)).encode()
    reader = LogReader()
    assert len(list(reader.feed(crowd + b"\n"))) == 1025
    assert len(reader._switches._heads) == 1024


@pytest.mark.parametrize("prefix", ["", "[   12.345678] ", "Nov 22 18:29:55 host kernel: ", "4,1,2,-;"])
def test_a_fall_in_three_lines_names_its_gpu(prefix: str) -> None:
    (event,) = events("x", *(prefix + line for line in (FIRST, SECOND, THIRD)), "y")
    assert (event.kind, event.line, event.code, event.pci) == ("fallen_off_bus", 2, 79, "0000:b3:00")


def test_a_fall_in_three_lines_as_journald_prints_it() -> None:
    indent = " " * 29
    (event,) = events("Nov 22 18:29:55 host kernel: " + FIRST, indent + SECOND, indent + THIRD)
    assert (event.line, event.pci, event.stamp) == (1, "0000:b3:00", "")


def test_two_falls_each_name_their_own_gpu() -> None:
    other = FIRST.replace("b3", "b4")
    found = events(FIRST, SECOND, THIRD, "x", other, SECOND, "z", THIRD)
    assert [(event.line, event.pci) for event in found] == [(1, "0000:b3:00"), (5, "0000:b4:00")]


def test_lines_between_the_three_are_passed_over_but_not_too_many() -> None:
    assert events(FIRST, SECOND, *["x"] * 6, THIRD)[0].line == 1
    (event,) = events(FIRST, SECOND, *["x"] * 7, THIRD)
    assert (event.line, event.pci) == (10, None)


def test_a_last_line_alone_is_a_fall_of_an_unknown_gpu() -> None:
    (event,) = events("x", THIRD)
    assert (event.kind, event.line, event.code, event.pci) == ("fallen_off_bus", 2, 79, None)
    assert events(FIRST, SECOND) == []


def test_a_line_without_end_is_read_at_its_beginning_only() -> None:
    reader = LogReader()
    assert list(reader.feed(XID.encode())) == []
    for _ in range(200):
        assert list(reader.feed(b"a" * 1000)) == []
        assert len(reader._rest) <= MAX_LINE_BYTES
    (event,) = reader.feed(b"\nx\n")
    assert event.text.startswith("GPU has fallen off the bus.aaa")
    assert reader.lines == 2


def peak_bytes(line: bytes, size: int, piece_bytes: int) -> int:
    """Read a log of one line over and over; return the most memory that this took at any time."""
    piece = (line * (piece_bytes // len(line) + 1))[:piece_bytes]
    tracemalloc.start()
    for _ in read_log(piece for _ in range(size // piece_bytes)):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    "line",
    [
        b"[   12.345678] eth0: link up, a line of a kernel log as there are many\n",
        b"no newline at all, for ever ",
        b"\0",
        b"x\n" * 100_000 + XID.encode() + b"\n",
    ],
    ids=["sparse", "endless", "zeros", "few"],
)
def test_fifty_megabytes_take_no_more_memory_than_five(line: bytes) -> None:
    small, big = (peak_bytes(line, megabytes << 20, 1 << 20) for megabytes in (5, 50))
    assert big <= small + 100_000
    assert big < 6 << 20


@pytest.mark.parametrize(
    "lines", [(HEAD, SEVERITY, DATA), (FIRST, SECOND, THIRD), (XID,)], ids=["switch", "fall", "xid"]
)
def test_faults_without_end_take_no_memory_either(lines: tuple[str, ...]) -> None:
    line = "".join(f"{each}\n" for each in lines).encode()
    small, big = (peak_bytes(line, kilobytes << 10, 1 << 14) for kilobytes in (32, 320))
    assert big <= small + 20_000
