"""Write one fake GPU record to a node's kernel log, prove that it landed, and stay until told to go.

Spec (JSON):
    mode       "inject", or "scan": only report the GPU records after `after_seq` that carry no marker of `markers`;
               after another boot than `boot_id`, or where the log shows where ours stands, that counts instead
    gpu        {"index": n} or {"uuid": "GPU-…"} or {"pci": "dddd:bb:dd"}: must be a GPU of this node
    record     what to write, level, newline and all; "{pci}" stands for the GPU's address
    marker     token inside the text by which the record is known again
    refuse     {"GPU-…": "reason"}: GPUs that may not be used now
    deadline_s end after so many seconds in any case
    landing_s  how long to look for the record

A kernel record has no undo: on SIGTERM this only leaves. Environment (set where a node is not a real one):
KMSG_FILE_PATH to read and KMSG_WRITE_PATH to write (both /dev/kmsg), NVIDIA_PROC_PATH (the node's /proc/driver/nvidia,
mounted below /node: a container runtime mounts nothing inside a container's own /proc).
"""

import datetime
import json
import os
import re
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

READ_PATH = os.environ.get("KMSG_FILE_PATH", "/dev/kmsg")
WRITE_PATH = os.environ.get("KMSG_WRITE_PATH", READ_PATH)
NVIDIA_PATH = os.environ.get("NVIDIA_PROC_PATH", "/node/proc/driver/nvidia")
RECORD = re.compile(rb"^(\d+),(\d+),(\d+),([^;]*);(.*)$")
GPU_RECORD = re.compile(rb"(NVRM: )?(Xid|SXid) \(|fallen off the bus")
POLL_S = 0.002


def say(event: str, **facts: Any) -> None:
    """Print one event; a reader follows this log line by line."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
    print(json.dumps({"event": event, "at": now, **facts}), flush=True)


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

    def records(self) -> Iterator[Tuple[int, int, bytes]]:
        """Yield what is there now as (seq, usec, text bytes), skipping continuation lines."""
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
                    yield int(match.group(2)), int(match.group(3)), match.group(5)


def write_record(data: bytes) -> None:
    """Write one record with its own open and close: the kernel limits the rate per open file, silently."""
    fd = os.open(WRITE_PATH, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def read_back(log: KernelLog, marker: str, limit_s: float) -> Optional[Tuple[int, int, str, int]]:
    """Wait for the record with our marker: (seq, usec, text, seen_ns), or None. Only this proves that it landed."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for seq, usec, text in log.records():
            if marker.encode() in text:
                return seq, usec, text.decode(errors="replace"), time.monotonic_ns()
            if time.monotonic() > end:  # a flood need not ever end
                return None
        time.sleep(POLL_S)
    return None


def inject(spec: Dict[str, Any], told_to_go: int) -> int:
    """Write, read back, hold until a byte is there to read from `told_to_go`. Returns the exit code."""
    gpus = gpus_of_node()
    say("started", gpus=gpus, node=os.uname().nodename)
    gpu = choose(gpus, spec["gpu"])
    if gpu is None:
        known = ", ".join("{index} {pci} {uuid}".format(**each) for each in gpus) or "none"
        say("failed", reason="no GPU {} on this node (its GPUs: {})".format(json.dumps(spec["gpu"]), known))
        return 3
    if gpu["uuid"] in spec.get("refuse", {}):
        say("failed", reason=spec["refuse"][gpu["uuid"]])
        return 3
    try:
        log = KernelLog()
        before = time.monotonic_ns()
        write_record(spec["record"].replace("{pci}", gpu["pci"]).encode())
    except OSError as error:
        say("failed", reason=f"cannot write the kernel log {WRITE_PATH}: {error}")
        return 3
    landed = read_back(log, spec["marker"], spec.get("landing_s", 5))
    if landed is None:
        reason = "written, but no record with our marker came back: dropped by the kernel's rate limit?"
        say("failed", reason=reason, written=True)
        return 3
    seq, usec, seen, seen_ns = landed
    evidence = {"seq": seq, "kernel_us": usec, "text": seen, "gpu": gpu, "boot_id": boot_id()}
    say("landed", evidence={**evidence, "between_ns": [before, seen_ns]})
    say("holding", deadline_s=spec["deadline_s"])
    ready, _, _ = select.select([told_to_go], [], [], spec["deadline_s"])
    say("reverted", undo="none: a kernel record stays in the log", why="told to" if ready else "deadline")
    return 0


def scan(spec: Dict[str, Any]) -> int:
    """Report the GPU records after `after_seq` that are not ours, and end."""
    markers = [marker.encode() for marker in spec["markers"]]
    records = list(KernelLog(from_start=True).records())
    own = [seq for seq, _, text in records if any(marker in text for marker in markers)]
    same_boot = spec.get("boot_id", "") in ("", boot_id())
    if same_boot and not own and (not records or records[0][0] > spec["after_seq"] + 1):
        say("failed", reason="the kernel log has been overwritten since our record: what came since is not known")
        return 3
    after = max([spec["after_seq"] if same_boot else -1] + own[:1])
    foreign = [
        text.decode(errors="replace")
        for seq, _, text in records
        if seq > after and seq not in own and GPU_RECORD.search(text)
    ]
    say("reverted", foreign=foreign[:50])
    return 0


def boot_id() -> str:
    """Name this boot of the node: sequence numbers mean nothing beyond it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec."""
    told_to_go, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell)  # written by the interpreter at once; a handler would wait for the end of a select
    signal.signal(signal.SIGTERM, lambda *_: None)
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    return scan(spec) if spec["mode"] == "scan" else inject(spec, told_to_go)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
