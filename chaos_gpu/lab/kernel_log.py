r"""One simulated node's kernel log, with the semantics of /dev/kmsg that decide whether an injected record is seen.

Two files stand for the device. `kmsg` grows by one line per record, `prio,seq,usec,flags;text\n`, where usec is
CLOCK_MONOTONIC in µs: what a reader of /dev/kmsg gets. `kmsg.in` is a FIFO: what a writer of /dev/kmsg writes.

As in the kernel (Documentation/ABI/testing/dev-kmsg, kernel/printk/printk.c devkmsg_write): a prefix `<N>` sets
priority N & 7 and facility N >> 3, the default is 4 (warning); facility 0 belongs to the kernel, a writer asking for
it gets 1 (user); one trailing newline is stripped; text ends at a NUL; control characters, bytes from 0x7f on and `\`
are read as `\xNN`; more than 10 records in 5 s through one open are dropped although the write succeeds.

Not as in the kernel, because a FIFO cannot: a record of more than 1023 bytes is dropped instead of EINVAL; writes that
wait in the FIFO together are told apart by a newline followed by `<`, so two of them without prefix read as one record;
"one open" ends when the last writer has closed, so concurrent writers share one allowance. The log is not a ring (no
EPIPE, nothing is overwritten), and a reader that opens it starts wherever it seeks.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RECORD_MAX_BYTES = 1023
BURST = 10
INTERVAL_S = 5.0
DEFAULT_LEVEL = 4
KERNEL, USER = 0, 1

_PREFIX = re.compile(rb"<(\d{1,10})>")
_NEXT_RECORD = re.compile(rb"(?<=\n)(?=<\d{1,10}>)")

BOOT_RECORDS = (
    (5, "Linux version 6.8.0-lab (chaos_gpu) #1 SMP PREEMPT_DYNAMIC"),
    (6, "Command line: BOOT_IMAGE=/vmlinuz-6.8.0-lab ro console=ttyS0"),
    (6, "smpboot: Allowing 64 CPUs, 0 hotplug CPUs"),
    (6, "nvidia: loading out-of-tree module taints kernel."),
    (6, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05"),
)


class Entry(NamedTuple):
    """What one write asks for."""

    priority: int
    """8 × facility + level, the first field of a record."""
    text: bytes


def split_writes(data: bytes) -> list[bytes]:
    """Tell apart the writes that were waiting in the FIFO together."""
    return [part for part in _NEXT_RECORD.split(data) if part]


def parse_write(data: bytes) -> Entry | None:
    """Read one write as the kernel does; None if the kernel would refuse it (too long)."""
    if len(data) > RECORD_MAX_BYTES:
        return None
    level, facility = DEFAULT_LEVEL, USER
    if prefix := _PREFIX.match(data):
        number = int(prefix[1])
        level, facility = number & 7, (number >> 3 & 0xFF) or USER
        data = data[prefix.end() :]
    return Entry(8 * facility + level, data.split(b"\0")[0].removesuffix(b"\n"))


def escape(text: bytes) -> str:
    r"""Return the text as a reader sees it: control characters, 0x7f and above, and `\` as `\xNN`."""
    return "".join(chr(c) if 32 <= c < 127 and c != 0x5C else f"\\x{c:02x}" for c in text)


class RateLimit:
    """The allowance of one open: `BURST` records per `INTERVAL_S`, counted from the first one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with a full allowance; `clock` gives seconds."""
        self._clock = clock
        self._since: float | None = None
        self._used = 0

    def take(self) -> bool:
        """Count one record; False means that it is dropped."""
        now = self._clock()
        if self._since is None or now > self._since + INTERVAL_S:
            self._since, self._used = now, 0
        self._used += 1
        return self._used <= BURST

    def reset(self) -> None:
        """A new open has the full allowance."""
        self._since = None


class KernelLog:
    """The kernel log of one node: a file to read and a FIFO to write, served on the running event loop."""

    def __init__(self, directory: Path) -> None:
        """Create both files in `directory` (made if missing) and log the boot."""
        directory.mkdir(parents=True, exist_ok=True)
        self.path = directory / "kmsg"
        self.fifo = directory / "kmsg.in"
        self._sequence = 0
        self._limit = RateLimit()
        self._log = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.mkfifo(self.fifo, 0o600)
        self._reader = self._open_fifo()
        for level, text in BOOT_RECORDS:
            self.emit(text, level=level)

    def emit(self, text: str, *, level: int = DEFAULT_LEVEL, flag: str = "c") -> int:
        """Log a record of the kernel itself (facility 0; NVRM records carry flag `c`); return its sequence number."""
        return self._append(Entry(8 * KERNEL + level, text.encode()), flag)

    def _append(self, entry: Entry, flag: str) -> int:
        sequence, self._sequence = self._sequence, self._sequence + 1
        usec = time.monotonic_ns() // 1000
        os.write(self._log, f"{entry.priority},{sequence},{usec},{flag};{escape(entry.text)}\n".encode())
        return sequence

    def _open_fifo(self) -> int:
        descriptor = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        asyncio.get_running_loop().add_reader(descriptor, self._read)
        return descriptor

    def _read(self) -> None:
        """Take what writers have written; at end of file all have closed, so the next open starts afresh."""
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return
        if not data:
            old, self._reader = self._reader, self._open_fifo()  # never without a reader: writers would get SIGPIPE
            self._close_fifo(old)
            self._limit.reset()
            return
        for write in split_writes(data):
            entry = parse_write(write)
            if entry is not None and self._limit.take():
                self._append(entry, "-")

    @staticmethod
    def _close_fifo(descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Stop serving; both files stay."""
        self._close_fifo(self._reader)
        os.close(self._log)
