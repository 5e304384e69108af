"""Write one fake GPU fault to a node's kernel log, prove that its records landed, and stay until told to go.

Spec (JSON):
    mode       "inject", or "scan": only report the GPU records after `after_seq` that carry no marker of `markers`;
               after another boot than `boot_id`, or where the log shows where ours stands, that counts instead
    gpu        {"index": n} or {"uuid": "GPU-…"} or {"pci": "dddd:bb:dd"}: must be a GPU of this node
    records    what to write, each at once, level, newline and all; "{pci}" stands for the GPU's address, "{PCI}" for
               that in upper case, "{switch}" for the address of the node's first NVSwitch
    marker     token inside each of them by which they are known again
    refuse     {"GPU-…": "reason"}: GPUs that may not be used now
    deadline_s end after so many seconds in any case
    landing_s  how long to look for the records

A kernel record has no undo: on SIGTERM this only leaves. Environment (set where a node is not a real one):
KMSG_FILE_PATH to read and KMSG_WRITE_PATH to write (both /dev/kmsg), NVIDIA_PROC_PATH (the node's /proc/driver/nvidia,
mounted below /node: a container runtime mounts nothing inside a container's own /proc; the NVSwitches lie beside it).
"""

import json
import os
import re
import select
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from chaos_gpu.payloads.events import say
from chaos_gpu.payloads.node import (
    NVIDIA_PATH,
    POLL_S,
    READ_PATH,
    Found,
    KernelLog,
    boot_id,
    choose,
    gpus_of_node,
    when_told_to_go,
)

WRITE_PATH = os.environ.get("KMSG_WRITE_PATH", READ_PATH)
GPU_RECORD = re.compile(rb"(NVRM: )?(Xid|SXid) \(|fallen off the bus")


def switch_of_node() -> str:
    """Return the address of the node's first NVSwitch as its driver numbers them, "" without one."""
    found = sorted(path.name.lower() for path in Path(NVIDIA_PATH + "-nvswitch", "devices").glob("*:*:*.*"))
    return found[0] if found else ""


def write_record(data: bytes) -> None:
    """Write one record with its own open and close: the kernel limits the rate per open file, silently."""
    fd = os.open(WRITE_PATH, os.O_WRONLY)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


class Landing:
    """Our records as they come back. Only this proves that they landed."""

    def __init__(self, log: KernelLog, marker: str, count: int) -> None:
        """Wait for `count` records with our marker."""
        self.log, self.marker, self.count = log, marker.encode(), count
        self.found: List[Found] = []
        self.first_ns = 0

    def wait(self, limit_s: float) -> bool:
        """Read until all are there; False if they are not after `limit_s`."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            for record in self.log.records():
                if self.marker in record.text:
                    self.first_ns = self.first_ns or time.monotonic_ns()
                    self.found.append(record)
                if len(self.found) == self.count:
                    return True
                if time.monotonic() > end:  # a flood need not ever end
                    return False
            time.sleep(POLL_S)
        return False


def filled_in(spec: Dict[str, Any], gpu: Dict[str, Any], switch: str) -> List[bytes]:
    """Return what to write, with the node's own addresses."""
    places = {"{pci}": gpu["pci"], "{PCI}": gpu["pci"].upper(), "{switch}": switch}
    texts = list(spec["records"])
    for place, address in places.items():
        texts = [text.replace(place, address) for text in texts]
    return [text.encode() for text in texts]


def why_not(spec: Dict[str, Any], gpus: List[Dict[str, Any]], gpu: Optional[Dict[str, Any]], switch: str) -> str:
    """Say why nothing may be written, or "" when it may."""
    if gpu is None:
        known = ", ".join("{index} {pci} {uuid}".format(**each) for each in gpus) or "none"
        return "no GPU {} on this node (its GPUs: {})".format(json.dumps(spec["gpu"]), known)
    if not switch and any("{switch}" in text for text in spec["records"]):
        return "this node has no NVSwitch"
    return str(spec.get("refuse", {}).get(gpu["uuid"], ""))


def inject(spec: Dict[str, Any], told_to_go: int) -> int:
    """Write, read back, hold until a byte is there to read from `told_to_go`. Returns the exit code."""
    gpus, switch = gpus_of_node(), switch_of_node()
    say("started", gpus=gpus, node=os.uname().nodename)
    gpu = choose(gpus, spec["gpu"])
    reason = why_not(spec, gpus, gpu, switch)
    if gpu is None or reason:
        say("failed", reason=reason)
        return 3
    written = 0
    try:
        log = KernelLog()
        before = time.monotonic_ns()
        for record in filled_in(spec, gpu, switch):
            write_record(record)
            written += 1
    except OSError as error:
        say("failed", reason=f"cannot write the kernel log {WRITE_PATH}: {error}", written=written > 0)
        return 3
    landing = Landing(log, spec["marker"], written)
    if not landing.wait(spec.get("landing_s", 5)):
        count = f"{len(landing.found)} of {written} records with our marker came back"
        say("failed", reason=f"written, but {count}: dropped by the kernel's rate limit?", written=True)
        return 3
    records = [record.as_json() for record in landing.found]
    place = {"switch": switch} if "{switch}" in spec["records"][0] else {}
    evidence = {**records[0], "gpu": gpu, **place, "records": records, "boot_id": boot_id()}
    say("landed", evidence={**evidence, "between_ns": [before, landing.first_ns]})
    say("holding", deadline_s=spec["deadline_s"])
    ready, _, _ = select.select([told_to_go], [], [], spec["deadline_s"])
    say("reverted", undo="none: a kernel record stays in the log", why="told to" if ready else "deadline")
    return 0


def scan(spec: Dict[str, Any]) -> int:
    """Report the GPU records after `after_seq` that are not ours, and end."""
    markers = [marker.encode() for marker in spec["markers"]]
    records = list(KernelLog(from_start=True).records())
    own = [record.seq for record in records if any(marker in record.text for marker in markers)]
    same_boot = spec.get("boot_id", "") in ("", boot_id())
    if same_boot and not own and (not records or records[0].seq > spec["after_seq"] + 1):
        say("failed", reason="the kernel log has been overwritten since our record: what came since is not known")
        return 3
    after = max([spec["after_seq"] if same_boot else -1] + own[:1])
    foreign = [
        record.text.decode(errors="replace")
        for record in records
        if record.seq > after and record.seq not in own and GPU_RECORD.search(record.text)
    ]
    say("reverted", foreign=foreign[:50])
    return 0


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec."""
    told_to_go = when_told_to_go()
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    return scan(spec) if spec["mode"] == "scan" else inject(spec, told_to_go)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
