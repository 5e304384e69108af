r"""The kernel log of a node, against what the kernel documents and does for /dev/kmsg."""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chaos_gpu.lab.kernel_log import (
    BOOT_RECORDS,
    BURST,
    INTERVAL_S,
    RECORD_MAX_BYTES,
    Entry,
    KernelLog,
    RateLimit,
    escape,
    parse_write,
    split_writes,
)

USER_WARNING = 8 + 4


@given(st.binary(max_size=300))
def test_escaped_text_is_one_printable_line_and_can_be_read_back(text):
    seen = escape(text)
    assert all(32 <= ord(c) < 127 for c in seen)
    assert re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), seen.encode()) == text


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (b"a\nb", "a\\x0ab"),
        (b"\\", "\\x5c"),
        (b"\x7f\x80", "\\x7f\\x80"),
        (b"\t~ ", "\\x09~ "),
        ("é".encode(), "\\xc3\\xa9"),
    ],
)
def test_escapes(text, seen):
    assert escape(text) == seen


@pytest.mark.parametrize(
    ("written", "entry"),
    [
        (b"plain", Entry(USER_WARNING, b"plain")),
        (b"plain\n", Entry(USER_WARNING, b"plain")),
        (b"two\n\n", Entry(USER_WARNING, b"two\n")),
        (b"<3>err", Entry(8 + 3, b"err")),
        (b"<0>", Entry(8, b"")),
        (b"<11>facility 1", Entry(8 + 3, b"facility 1")),
        (b"<44>facility 5", Entry(5 * 8 + 4, b"facility 5")),
        (b"<999999>wraps", Entry(8 * (999999 >> 3 & 255) + 7, b"wraps")),
        (b"<x>no prefix", Entry(USER_WARNING, b"<x>no prefix")),
        (b"<4 no prefix", Entry(USER_WARNING, b"<4 no prefix")),
        (b"cut\0here", Entry(USER_WARNING, b"cut")),
        (b"x" * RECORD_MAX_BYTES, Entry(USER_WARNING, b"x" * RECORD_MAX_BYTES)),
        (b"x" * (RECORD_MAX_BYTES + 1), None),
    ],
)
def test_what_a_write_means(written, entry):
    assert parse_write(written) == entry


@given(st.binary(max_size=2000))
def test_user_space_never_gets_facility_0(written):
    entry = parse_write(written)
    assert entry is None or 8 <= entry.priority < 8 * 256


WRITES = st.lists(
    st.tuples(st.integers(0, 191), st.binary(max_size=80).filter(lambda b: not re.search(rb"\n<\d", b))), max_size=20
).map(lambda writes: [b"<%d>%s\n" % write for write in writes])


@given(WRITES)
@example([b"<0>\n\n", b"<0>\n"])
def test_writes_with_prefix_and_newline_that_wait_together_are_told_apart(writes):
    assert [parse_write(part) for part in split_writes(b"".join(writes))] == [parse_write(write) for write in writes]


@given(st.binary(min_size=1, max_size=300).filter(lambda b: not re.search(rb"\n<\d{1,10}>", b)))
def test_one_write_stays_one_record(write):
    assert split_writes(write) == [write]


@given(st.lists(st.floats(0, 3, allow_nan=False), max_size=60))
def test_rate_limit_grants_at_most_a_burst_per_interval(gaps):
    clock = [0.0]
    limit = RateLimit(lambda: clock[0])
    granted = []
    for gap in gaps:
        clock[0] += gap
        if limit.take():
            granted.append(clock[0])
    # an interval begins with its first record and lasts 5 s; two may touch
    for start in granted:
        assert sum(start <= at < start + INTERVAL_S for at in granted) <= 2 * BURST
    assert len(granted) >= min(len(gaps), BURST)


def test_rate_limit_forgets_after_the_interval_and_at_a_new_open():
    clock = [0.0]
    limit = RateLimit(lambda: clock[0])
    assert [limit.take() for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    clock[0] = INTERVAL_S
    assert not limit.take()
    clock[0] = INTERVAL_S + 0.001
    assert limit.take()
    for _ in range(BURST):
        limit.take()
    limit.reset()
    assert limit.take()


# the two files, as reader and writer see them


def with_log(tmp_path: Path, check: Callable[[KernelLog], Awaitable[None]]) -> None:
    async def main() -> None:
        log = KernelLog(tmp_path)
        try:
            await asyncio.wait_for(check(log), 10)
        finally:
            log.close()

    asyncio.run(main())


async def records(log: KernelLog, count: int) -> list[str]:
    """Wait until there are `count` records behind those of the boot; return all of those."""
    while True:
        lines = log.path.read_text().splitlines()[len(BOOT_RECORDS) :]
        if len(lines) >= count:
            return lines
        await asyncio.sleep(0.001)


def write(log: KernelLog, *data: bytes) -> list[int]:
    """Open, write each, close: like one `open` of /dev/kmsg. Returns what the writes returned."""
    descriptor = os.open(log.fifo, os.O_WRONLY | os.O_NONBLOCK)
    try:
        return [os.write(descriptor, part) for part in data]
    finally:
        os.close(descriptor)


def test_boot_records_come_first_from_the_kernel(tmp_path):
    async def check(log: KernelLog) -> None:
        lines = log.path.read_text().splitlines()
        assert len(lines) == len(BOOT_RECORDS)
        for number, line in enumerate(lines):
            priority, sequence, usec, flag = line.split(";")[0].split(",")
            assert int(sequence) == number
            assert int(priority) < 8
            assert flag == "c"
            assert 0 <= time.monotonic_ns() // 1000 - int(usec) < 10_000_000

    with_log(tmp_path, check)


def test_records_are_numbered_and_timed_in_order(tmp_path):
    async def check(log: KernelLog) -> None:
        for number in range(5):
            before = time.monotonic_ns() // 1000
            write(log, b"<4>record %d\n" % number)
            line = (await records(log, number + 1))[number]
            priority, sequence, usec, flag = line.split(";")[0].split(",")
            assert (priority, int(sequence), flag) == ("12", len(BOOT_RECORDS) + number, "-")
            assert before <= int(usec) <= time.monotonic_ns() // 1000

    with_log(tmp_path, check)


def test_one_open_gets_a_burst_and_its_other_writes_succeed_unseen(tmp_path):
    async def check(log: KernelLog) -> None:
        sizes = write(log, *(b"<4>r%02d\n" % number for number in range(BURST + 5)))
        assert sizes == [7] * (BURST + 5)
        lines = await records(log, BURST)
        write(log, b"<4>next open\n")
        lines = await records(log, BURST + 1)
        assert [line.split(";")[1] for line in lines] == [f"r{n:02d}" for n in range(BURST)] + ["next open"]

    with_log(tmp_path, check)


def test_a_record_per_open_is_never_limited(tmp_path):
    async def check(log: KernelLog) -> None:
        for number in range(3 * BURST):
            write(log, b"<4>n%d\n" % number)
            await records(log, number + 1)
        assert len(await records(log, 3 * BURST)) == 3 * BURST

    with_log(tmp_path, check)


def test_a_writer_always_finds_a_reader(tmp_path):
    async def check(log: KernelLog) -> None:
        for _ in range(200):
            write(log, b"<4>x\n")  # ENXIO or EPIPE if ever there were none
            await asyncio.sleep(0)

    with_log(tmp_path, check)


def test_the_kernels_own_records_differ_from_injected_ones(tmp_path):
    async def check(log: KernelLog) -> None:
        sequence = log.emit("NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.")
        write(log, b"<4>NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.\n")
        real, fake = await records(log, 2)
        assert real.startswith(f"4,{sequence},")
        assert real.split(";")[0].endswith(",c")
        assert fake.startswith(f"12,{sequence + 1},")
        assert fake.split(";")[0].endswith(",-")

    with_log(tmp_path, check)
