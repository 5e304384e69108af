"""What the gpu-health-agent reads on its node: kernel records, Xids in them, and which GPUs the node has. Stdlib only.

One half of the agent's single file; see `agent_source` in `manifests`.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECORD = re.compile(rb"^(\d+),(\d+),(\d+),([^;]*);(.*)$")
ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
XID = re.compile(
    r"^(?:\[ *\d+\.\d+\] )?NVRM: Xid "
    r"\((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
    r"(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (?P<code>\d+)\b(?P<rest>.*)",
    re.DOTALL,
)


class Record(NamedTuple):
    """One record of the kernel log."""

    seq: int
    usec: int
    text: str


class Xid(NamedTuple):
    """An Xid on a GPU of this node."""

    record: Record
    code: int
    pci: str
    uuid: str

    @property
    def told(self) -> str:
        """What condition and Event say."""
        return f"Xid {self.code} on {self.pci} {self.uuid}: {self.record.text}"


def parse_record(line: bytes) -> Record | None:
    """Read one line of the kernel log; None for what is no record (continuation lines, garbage)."""
    match = RECORD.match(line)
    if match is None:
        return None
    text = ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), match[5])
    return Record(int(match[2]), int(match[3]), text.decode(errors="replace"))


def normal_pci(address: str) -> str:
    """Return dddd:bb:dd in lower case, without function and without the zeros of an 8-digit domain."""
    domain, bus, device = address.lower().split(".")[0].split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}"


def gpus_of_node(root: Path) -> dict[str, str]:
    """Return UUID by PCI address of the GPUs that the driver knows."""
    found = {}
    for path in root.glob("gpus/*/information"):
        facts = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        found[normal_pci(facts.get("Bus Location", path.parent.name).strip())] = facts.get("GPU UUID", "").strip()
    return found


def own_start_us() -> int:
    """Return when this process was started, on the clock of kernel records, in µs (to a clock tick, rounded down)."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return int((since_boot - time.clock_gettime(time.CLOCK_BOOTTIME) + time.monotonic()) * 1e6)


class KernelLog:
    """Follows the kernel log: the real device gives one record a read, a file gives bytes."""

    def __init__(self, path: str, since_us: int) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._since_us = since_us
        self._rest = b""

    def records(self) -> Iterator[Record]:
        """Yield what is there now."""
        while True:
            try:
                data = os.read(self._fd, 8192)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten before it was read: the next read goes on behind the gap
                continue
            if not data:
                return
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                record = parse_record(line)
                if record and record.usec >= self._since_us:
                    yield record
