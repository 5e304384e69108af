"""Make the NVIDIA driver itself report an application Xid: a process of ours does on a GPU what no program may.

Two containers of one pod run this file. The *culprit* has the GPU and no rights: it runs a few lines of PTX that end in
Xid 13, 31 or 43, and in nothing else than its own end. The *witness* has no GPU and may read the node's kernel log:
it lets the culprit go ahead, finds the driver's record of it there, and speaks for both. They talk through files in a
directory that both mount.

Spec (JSON), the same for both:
    code       31 (store to an address that is not mapped), 13 (misaligned store) or 43 (`trap`)
    marker     the culprit's process name, at most 15 characters, by which the driver's record is known to be ours
    gpu        {} for the one that the device plugin gave, or {"index": n}, {"uuid": "GPU-…"}, {"pci": "dddd:bb:dd"}
    refuse     {"GPU-…": "reason"}: GPUs that may not be used now
    start_s    how long to wait for the culprit to get ready; CUDA takes seconds to come up
    landing_s  how long to look for the record
    deadline_s end after so many seconds in any case

Run with --culprit in the container that has the GPU. Environment: CHAOS_GPU_SHARED, the directory (/shared), and what
node.py names.
"""

import ctypes
import json
import os
import re
import select
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from chaos_gpu.payloads.events import say
from chaos_gpu.payloads.node import POLL_S, Found, KernelLog, boot_id, choose, gpus_of_node, when_told_to_go

SHARED = Path(os.environ.get("CHAOS_GPU_SHARED", "/shared"))
LIBCUDA, LIBNVML = "libcuda.so.1", "libnvidia-ml.so.1"
XID = re.compile(r"(?:NVRM: ?)?Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([01][0-9a-fA-F])[^)]*\): (\d+)")

BURST_S = 0.05
"""Longest silence inside the records of one fault; an H200's took 3 ms."""
IDLE_BYTES = 1 << 30
"""Memory in use on a GPU where nobody works: what the driver keeps for itself, with room to spare."""
PR_SET_NAME, PR_SET_NO_NEW_PRIVS = 15, 38
UNMAPPED, MISALIGNED_BY = 0x10, 1
NVML_TOO_SMALL = 7

PTX = """.version 7.0
.target sm_70
.address_size 64
.visible .entry fault(.param .u64 where)
{
    .reg .b32 %value;
    .reg .b64 %where;
    ld.param.u64 %where, [where];
    mov.u32 %value, 1;
    BODY
    ret;
}
"""
BODIES = {13: "st.global.u32 [%where], %value;", 31: "st.global.u32 [%where], %value;", 43: "trap;"}


class Refused(Exception):
    """Nothing was done to the GPU, and why."""


# --- the culprit -----------------------------------------------------------------------------------------------------


class Cuda:
    """The driver's library, as far as it is needed. Every call that fails raises Refused with its number."""

    def __init__(self) -> None:
        """Load it and bring it up."""
        try:
            self.library = ctypes.CDLL(LIBCUDA)
        except OSError as error:
            raise Refused(f"no {LIBCUDA} in this container: {error}") from error
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function."""
        code = self.result(name, *arguments)
        if code:
            raise Refused(f"{name}: CUDA error {code}")

    def result(self, name: str, *arguments: Any) -> int:
        """Call a function and return CUDA's error code."""
        return int(getattr(self.library, name)(*arguments))

    def only_device(self) -> ctypes.c_int:
        """Return the GPU. Where several are in sight, it is not known whose they are."""
        count, device = ctypes.c_int(), ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        if count.value != 1:
            raise Refused(f"{count.value} GPUs in this container's sight: exactly one must be")
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        return device

    def describe(self, device: ctypes.c_int) -> Dict[str, str]:
        """Return the GPU's {pci, uuid} as the driver's files name it."""
        uuid, bus = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
        self.call("cuDeviceGetUuid", uuid, device)
        self.call("cuDeviceGetPCIBusId", bus, len(bus), device)
        digits = bytes(uuid).hex()
        parts = [digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]
        domain, rest = bus.value.decode("ascii").lower().split(":", 1)
        return {"pci": "{}:{}".format(domain[-4:], rest.rsplit(".", 1)[0]), "uuid": "GPU-" + "-".join(parts)}

    def prepare(self, device: ctypes.c_int, code: int) -> ctypes.c_void_p:
        """Take the GPU and load the kernel. Returns the kernel."""
        context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX.replace("BODY", BODIES[code]).encode("ascii"))
        self.call("cuModuleGetFunction", ctypes.byref(kernel), module, b"fault")
        return kernel

    def address(self, code: int) -> int:
        """Return where the kernel stores: in memory of ours, but at an odd byte; or where no memory is."""
        if code != 13:
            return UNMAPPED
        memory = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(4096))
        return memory.value + MISALIGNED_BY

    def run(self, kernel: ctypes.c_void_p, address: int) -> int:
        """Run the kernel, one thread of it. Returns the error that CUDA tells of."""
        value = ctypes.c_uint64(address)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        one, none = ctypes.c_uint(1), ctypes.c_void_p()
        launched = self.result("cuLaunchKernel", kernel, one, one, one, one, one, one, 0, none, arguments, none)
        return launched or self.result("cuCtxSynchronize")


def check_alone(uuid: str) -> None:
    """Raise Refused if others compute on the GPU, or if that cannot be known. Asked before we take it ourselves."""
    if os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        raise Refused("this GPU is shared through MPS, where one client's fault ends the others")
    try:
        nvml = ctypes.CDLL(LIBNVML)
    except OSError as error:
        raise Refused(f"whether others use the GPU cannot be known without {LIBNVML}: {error}") from error
    device, count, memory = ctypes.c_void_p(), ctypes.c_uint(0), (ctypes.c_uint64 * 3)()
    results = [
        nvml.nvmlInit_v2(),
        nvml.nvmlDeviceGetHandleByUUID(uuid.encode("ascii"), ctypes.byref(device)),
        nvml.nvmlDeviceGetMemoryInfo(device, memory),
    ]
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(device, ctypes.byref(count), None)
    if any(results) or processes not in (0, NVML_TOO_SMALL):
        raise Refused(f"whether others use the GPU cannot be known: NVML errors {[*results, processes]}")
    if count.value or processes:
        raise Refused(f"{count.value} processes of others compute on GPU {uuid}")
    if memory[2] > IDLE_BYTES:
        raise Refused(f"{memory[2] >> 20} MiB of GPU {uuid} are in use, though not by us")


def take_name(marker: str) -> None:
    """Give this process the name by which the driver's record is known, and rule out that it gains rights."""
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(PR_SET_NAME, marker.encode("ascii"), 0, 0, 0):
        raise Refused("this process could not be given our name")


def culprit(spec: Dict[str, Any], told_to_go: int) -> int:
    """Get ready, wait to be let go ahead, do it, tell what CUDA said. Returns the exit code."""
    try:
        take_name(spec["marker"])
        cuda = Cuda()
        device = cuda.only_device()
        gpu = cuda.describe(device)
        check_alone(gpu["uuid"])
        kernel = cuda.prepare(device, spec["code"])
        address = cuda.address(spec["code"])
    except Refused as reason:
        tell("ready", {"refused": str(reason)})
        return 3
    tell("ready", {"gpu": gpu})
    if heard("go", spec["deadline_s"], told_to_go) is None:
        return 3
    first_ns = time.monotonic_ns()
    error = cuda.run(kernel, address)
    tell("done", {"cuda_error": error, "between_ns": [first_ns, time.monotonic_ns()]})
    return 0


# --- between the two -------------------------------------------------------------------------------------------------


def tell(name: str, facts: Dict[str, Any]) -> None:
    """Leave word for the other container; it is there whole or not at all."""
    draft = SHARED / f".{name}"
    draft.write_text(json.dumps(facts))
    draft.replace(SHARED / name)


def heard(name: str, limit_s: float, told_to_go: int) -> Optional[Dict[str, Any]]:
    """Wait for the other container's word; None if it does not come, or if we are told to go meanwhile."""
    end = time.monotonic() + limit_s
    while not (SHARED / name).exists():
        left = min(POLL_S, end - time.monotonic())
        if left <= 0 or select.select([told_to_go], [], [], left)[0]:
            return None
    found: Dict[str, Any] = json.loads((SHARED / name).read_text())
    return found


# --- the witness -----------------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """What the driver wrote about one fault: the records of one burst, in their order."""

    records: List[Found]
    named: Optional[Found]
    """The one that names our process; in a burst not every record does."""


def code_of(record: Found, pci: str) -> int:
    """Return the Xid that a record reports of a GPU, 0 for none."""
    match = XID.match(record.text.decode(errors="replace"))
    if match is None:
        return 0
    domain, bus, device, code = match.groups()
    return int(code) if f"{int(domain, 16):04x}:{bus}:{device}".lower() == pci else 0


def driver_report(log: KernelLog, pci: str, marker: str, limit_s: float) -> Report:
    """Collect the GPU's records until one names our process and the burst is over, or the time is up."""
    records: List[Found] = []
    named: Optional[Found] = None
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        for record in log.records():
            if code_of(record, pci):
                records.append(record)
                if f"name={marker}," in record.text.decode(errors="replace"):
                    named = named or record
                    end = min(end, time.monotonic() + 2 * BURST_S)
            if time.monotonic() > end:  # a flood need not ever end
                break
        time.sleep(POLL_S)
    if named is None:
        return Report(records, None)
    return Report([each for each in records if abs(each.usec - named.usec) <= BURST_S * 1e6], named)


def why_not(spec: Dict[str, Any], ready: Optional[Dict[str, Any]]) -> str:
    """Say why the culprit may not go ahead, or "" when it may."""
    if ready is None:
        return "the container with the GPU did not get ready within {:g} s, or we were told to go".format(
            spec["start_s"]
        )
    if "refused" in ready:
        return str(ready["refused"])
    wanted, gpu = spec["gpu"], ready["gpu"]
    if wanted:
        chosen = choose(gpus_of_node(), wanted)
        if chosen is None or chosen["uuid"].lower() != gpu["uuid"].lower():
            return "the device plugin gave GPU {pci} {uuid}, not {0}".format(json.dumps(wanted), **gpu)
    return str(spec["refuse"].get(gpu["uuid"], ""))


def shortfall(spec: Dict[str, Any], done: Optional[Dict[str, Any]], report: Report) -> str:
    """Say in what the fault fell short of what was asked for, or "" when it did not."""
    if done is None:
        return "the kernel was started and did not end"
    said = "CUDA error {}".format(done["cuda_error"])
    if report.named is None:
        others = f"; {len(report.records)} records of this GPU name others" if report.records else ""
        return f"{said}, but the driver wrote no Xid that names our process{others}"
    match = XID.match(report.named.text.decode(errors="replace"))
    if match and int(match.group(4)) != spec["code"]:
        return "{}, but the driver reported Xid {} instead of {}".format(said, match.group(4), spec["code"])
    return ""


def witness(spec: Dict[str, Any], told_to_go: int) -> int:
    """Let the culprit go ahead, find the driver's record, hold until told to go. Returns the exit code."""
    say("started", node=os.uname().nodename)
    ready = heard("ready", spec["start_s"], told_to_go)
    reason = why_not(spec, ready)
    if ready is None or reason:
        say("failed", reason=reason)
        return 3
    try:
        log = KernelLog()
    except OSError as error:
        say("failed", reason=f"cannot read the kernel log: {error}")
        return 3
    before_ns = time.monotonic_ns()
    tell("go", {})
    report = driver_report(log, ready["gpu"]["pci"], spec["marker"], spec["landing_s"])
    done = heard("done", spec["landing_s"], told_to_go)
    reason = shortfall(spec, done, report)
    if done is None or report.named is None or reason:
        say("failed", reason=reason, written=True, records=[record.as_json() for record in report.records])
        return 3
    say("landed", evidence=evidence_of(report, report.named, ready["gpu"], done, before_ns))
    say("holding", deadline_s=spec["deadline_s"])
    told, _, _ = select.select([told_to_go], [], [], spec["deadline_s"])
    say("reverted", undo="none: the driver's record stays in the log", why="told to" if told else "deadline")
    return 0


def evidence_of(
    report: Report, named: Found, gpu: Dict[str, str], done: Dict[str, Any], before_ns: int
) -> Dict[str, Any]:
    """Put together what proves it: the time is the first record's, the words are those of the one that names us."""
    return {
        **named.as_json(),
        "kernel_us": report.records[0].usec,
        "seq": report.records[-1].seq,
        "gpu": gpu,
        "records": [record.as_json() for record in report.records],
        "cuda_error": done["cuda_error"],
        "culprit_ns": done["between_ns"],
        "boot_id": boot_id(),
        "between_ns": [before_ns, time.monotonic_ns()],
    }


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec."""
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    return (culprit if "--culprit" in argv else witness)(spec, when_told_to_go())


if __name__ == "__main__":
    sys.exit(main(sys.argv))
