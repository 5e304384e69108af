"""What the platform's detectors read on their node: kernel records, faults in them, which GPUs it has. Stdlib only.

There are two readers. One follows /dev/kmsg and takes every form of a driver's record that it knows, but for those with
something in front. The other sees what journald makes of the same records: of what was not written by the kernel
itself the first word is gone if it looks like a program's name; and it knows fewer forms.

A part of the agents' single file; see `agent_source` in `manifests`.
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


FALLEN = re.compile(
    r"^NVRM: (?:The NVIDIA )?GPU (?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
    r"(?:: GPU has fallen off the bus|\nNVRM: \(PCI ID: .*\nNVRM: fallen off the bus)"
)
SXID = re.compile(
    r"^(?:\[ *\d+\.\d+\] )?nvidia-nvswitch\d+: SXid \(PCI:(?P<pci>[0-9a-fA-F:]+\.[0-9])\): (?P<code>\d+), "
    r"(?P<severity>Fatal|Non-fatal), "
)
JOURNAL_XID = re.compile(
    r"NVRM: Xid \(PCI:(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?\): (?P<code>\d+),"
)
JOURNAL_FALLEN = re.compile(r"NVRM: The NVIDIA GPU (?P<pci>[0-9a-fA-F:]+)\.\d\n.*\nNVRM: fallen off the bus")
IDENTIFIER = re.compile(r"^[^\s:\[\]]+(?:\[\d+\])?: ")
FALLEN_CODE = 79


class Record(NamedTuple):
    """One record of the kernel log."""

    seq: int
    usec: int
    text: str
    from_kernel: bool = True


class Xid(NamedTuple):
    """A fault of a GPU of this node, or of an NVSwitch."""

    record: Record
    code: int
    pci: str
    uuid: str
    """"" for an NVSwitch."""
    kind: str = "Xid"
    fatal: bool = False
    """Whether an NVSwitch's error says so."""

    @property
    def told(self) -> str:
        """What condition and Event say."""
        return f"{self.kind} {self.code} on {f'{self.pci} {self.uuid}'.strip()}: {self.record.text}"


def read_kernel(record: Record, gpus: dict[str, str]) -> Xid | None:
    """Find a fault in a record as /dev/kmsg has it; None for other records and for GPUs of other nodes."""
    if record.text.startswith("["):  # of user space: the kernel's own have nothing in front
        return None
    if (switch := SXID.match(record.text)) is not None:
        return Xid(record, int(switch["code"]), switch["pci"], "", "SXid", switch["severity"] == "Fatal")
    match = XID.match(record.text) or FALLEN.match(record.text)
    return _of_gpu(record, match, gpus) if match else None


def read_journal(record: Record, gpus: dict[str, str]) -> Xid | None:
    """Find a fault in a record as the journal shows it."""
    text = record.text if record.from_kernel else IDENTIFIER.sub("", record.text, count=1)
    if (switch := SXID.match(text)) is not None:
        return Xid(record, int(switch["code"]), switch["pci"], "", "SXid", switch["severity"] == "Fatal")
    match = JOURNAL_XID.search(text) or JOURNAL_FALLEN.search(text)
    return _of_gpu(record, match, gpus) if match else None


def _of_gpu(record: Record, match: re.Match[str], gpus: dict[str, str]) -> Xid | None:
    pci = normal_pci(match["pci"])
    code = int(match.groupdict().get("code") or FALLEN_CODE)
    return Xid(record, code, pci, gpus[pci]) if pci in gpus else None


def parse_record(line: bytes) -> Record | None:
    """Read one line of the kernel log; None for what is no record (continuation lines, garbage)."""
    match = RECORD.match(line)
    if match is None:
        return None
    text = ESCAPED.sub(lambda m: bytes([int(m[1], 16)]), match[5])
    return Record(int(match[2]), int(match[3]), text.decode(errors="replace"), from_kernel=int(match[1]) < 8)


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
