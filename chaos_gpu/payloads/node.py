"""What payloads share that work on a GPU node: the node's GPUs, its kernel log, being told to go.

Environment (set where a node is not a real one): KMSG_FILE_PATH to read the kernel log (/dev/kmsg), NVIDIA_PROC_PATH
(the node's /proc/driver/nvidia, mounted below /node).
"""

import os
import re
import signal
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

READ_PATH = os.environ.get("KMSG_FILE_PATH", "/dev/kmsg")
NVIDIA_PATH = os.environ.get("NVIDIA_PROC_PATH", "/node/proc/driver/nvidia")
RECORD = re.compile(rb"^(\d+),(\d+),(\d+),([^;]*);(.*)$")
POLL_S = 0.002


class Found(NamedTuple):
    """One record of the kernel log, its text as it stands there."""

    seq: int
    usec: int
    flag: str
    text: bytes

    def as_json(self) -> Dict[str, Any]:
        """Say it as evidence."""
        text = self.text.decode(errors="replace")
        return {"seq": self.seq, "kernel_us": self.usec, "flag": self.flag, "text": text}


def gpus_of_node() -> List[Dict[str, Any]]:
    """Read the driver's own list: [{index, pci, uuid, model}], in PCI order as nvidia-smi numbers them."""
    found: List[Dict[str, Any]] = []
    for entry in sorted(Path(NVIDIA_PATH, "gpus").glob("*/information")):
        with entry.open(errors="replace") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        pci = facts.get("Bus Location", entry.parent.name).strip().lower().rsplit(".", 1)[0]
        uuid, model = facts.get("GPU UUID", "").strip(), facts.get("Model", "").strip()
        found.append({"index": len(found), "pci": pci, "uuid": uuid, "model": model})
    return found


def choose(gpus: List[Dict[str, Any]], wanted: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """Find the wanted GPU on this node, or None."""
    key, value = next(iter(wanted.items()))
    return next((gpu for gpu in gpus if str(gpu[key]).lower() == str(value).lower()), None)


class KernelLog:
    """Reads records from the end of the log (or its start) without blocking."""

    def __init__(self, from_start: bool = False) -> None:
        """Open for reading; the real device gives one record a read, a file gives bytes."""
        self.fd = os.open(READ_PATH, os.O_RDONLY | os.O_NONBLOCK)
        self.rest = b""
        if not from_start:
            os.lseek(self.fd, 0, os.SEEK_END)

    def records(self) -> Iterator[Found]:
        """Yield what is there now, skipping continuation lines."""
        while True:
            try:
                data = os.read(self.fd, 8192)
            except BlockingIOError:
                return
            except BrokenPipeError:  # our place in the ring buffer was overwritten: the next read goes on
                continue
            if not data:
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                match = RECORD.match(line)
                if match:
                    _, seq, usec, flags, text = match.groups()
                    yield Found(int(seq), int(usec), flags.decode(errors="replace").split(",")[0], text)


def boot_id() -> str:
    """Name this boot of the node: sequence numbers mean nothing beyond it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def when_told_to_go() -> int:
    """Return a descriptor that becomes readable at SIGTERM, whenever that comes."""
    told_to_go, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)  # written by the interpreter at once; a handler would wait for the end of a select
    signal.signal(signal.SIGTERM, lambda *_: None)
    return told_to_go
