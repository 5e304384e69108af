"""How long the Xid reader takes for a big kernel log, as a ratio to grep on the same file in the same run.

Two logs: one with an Xid every 100,000 lines (against `grep -c NVRM`), and one of nothing but Xids, all different
(against `grep -cE` of a pattern that finds the same lines). Everything is a process of its own, start included, and
runs several times in turn; the best of each counts, in wall clock and in processor time.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PATTERN = (
    r"NVRM: Xid \((PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(\.[0-7])?( GPU-I:[0-9]+)?( GPU-CI:[0-9]+)?\): "
    r"[0-9]+(,|$)"
)
READER = [sys.executable, "-m", "chaos_gpu", "explain", "xid"]
NOISE = (
    "audit: type=1400 audit(1748319536.089:57): apparmor=STATUS operation=profile_replace",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth12ab: link becomes ready",
    "docker0: port 3(veth) entered forwarding state",
    "systemd[1]: Started Session 12 of user root.",
    "EXT4-fs (sda1): re-mounted. Quota mode: none.",
    "mlx5_core 0000:ca:00.0 ib3: Link up",
    "NFS: server gpu-nfs not responding, still trying",
)
EVERY = 100_000


def sparse(chance: random.Random) -> Iterator[str]:
    for number in range(sys.maxsize):
        yield _xid(chance) if number % EVERY == EVERY - 1 else f"{NOISE[number % len(NOISE)]} {number}"


def dense(chance: random.Random) -> Iterator[str]:
    while True:
        yield _xid(chance)


def _xid(chance: random.Random) -> str:
    head = f"NVRM: Xid (PCI:0000:{chance.randrange(256):02x}:00)"
    pid, channel, word = chance.randrange(4_000_000), chance.randrange(256), chance.getrandbits(32)
    return chance.choice(
        (
            f"{head}: 31, pid={pid}, name=python3, channel 0x{channel:08x}, intr 00000000. MMU Fault: ENGINE GRAPHICS "
            f"GPC1 GPCCLIENT_T1_8 faulted @ 0x7fa8_{word:08x}. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
            f"{head}: 45, pid={pid}, name=python3, channel 0x{channel:08x}",
            f"{head}: 13, Graphics Exception: ESR 0x519730=0x{word:x} 0x519734=0x0",
        )
    )


def write(path: Path, lines: Iterator[str], size_bytes: int) -> None:
    """Write a log whose blocks repeat after 32 MB: writing half a gigabyte line by line would take longest of all."""
    block, length = [], 0
    for number, line in enumerate(lines):
        block.append(f"[{number * 0.0013:13.6f}] {line}\n".encode())
        length += len(block[-1])
        if length >= min(size_bytes, 32 << 20):
            break
    with path.open("wb") as file:
        for _ in range(max(1, size_bytes // length)):
            file.writelines(block)


def measure(command: list[str], runs: int, output: Path) -> tuple[float, float, int]:
    """Return the best wall and processor times, in seconds, and the largest memory, in bytes.

    The output goes to a file: grep stops at the first match if it is told to write to /dev/null.
    """
    walls, processors = [], []
    for _ in range(runs):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        with output.open("wb") as file:
            subprocess.run(command, stdout=file, check=True)
        walls.append(time.monotonic() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(walls), min(processors), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def compare(path: Path, grep: list[str], runs: int) -> None:
    output = path.with_name("output")
    grep_wall_s, grep_cpu_s, _ = measure([*grep, str(path)], runs, output)
    print(f"  {' '.join(grep)[:44]:<46} {grep_wall_s:7.2f} s  {grep_cpu_s:7.2f} s")
    for name, options in (("explain xid", []), ("explain xid --json", ["--json"])):
        wall_s, cpu_s, memory = measure([*READER, *options, str(path)], runs, output)
        ratios = f"{wall_s / grep_wall_s:5.1f} x  {cpu_s / grep_cpu_s:5.1f} x"
        print(f"  {name:<46} {wall_s:7.2f} s  {cpu_s:7.2f} s  {ratios}  at most {memory / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    size_bytes = arguments.megabytes * 1_000_000
    print(f"{arguments.megabytes} MB, best of {arguments.runs}; wall, processor, and both as ratios to grep")
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        path = Path(directory, "kernel.log")
        print("sparse: an Xid every 100,000 lines")
        write(path, sparse(random.Random(1)), size_bytes)
        compare(path, ["grep", "-c", "NVRM"], arguments.runs)
        print("dense: nothing but Xids")
        write(path, dense(random.Random(1)), size_bytes)
        compare(path, ["grep", "-cE", PATTERN], arguments.runs)


if __name__ == "__main__":
    main()
