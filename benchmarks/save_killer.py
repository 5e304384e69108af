"""How often a kill lands where it was asked for: a paced save of 64 MiB, of about 20 ms and of 1 s.

    python benchmarks/save_killer.py [--tries 100] [--json]

A writer saves 64 records of 1 MiB, one after the other, beside and renamed. The file's pages are set aside before its
first byte: else the 20 ms would be spent on those. Each try is one process of it, frozen at a fraction between 0.1 and
0.9 and killed. A hit is a kill within one record of the asked fraction of a save that had not committed; anything else
is a miss, and the killer must have said so: one that calls itself a hit is an error (exit 1). The time of one save
without anybody watching is measured in the same run.
"""

import argparse
import contextlib
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos_gpu.payloads.followed import Followed
from chaos_gpu.payloads.freezer import MARK, STORE
from chaos_gpu.payloads.save_killer import Hunt

RECORDS, RECORD_BYTES = 64, 1 << 20
CASES = {"20 ms": (0.02, 0.95), "1 s": (1.0, 0.99)}
WRITER = """
import ctypes, os, sys, time
from pathlib import Path
KEEP_SIZE, fallocate = 1, ctypes.CDLL(None).fallocate
fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
root, save_s, records, size = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
data = os.urandom(size)
for number in range(int(sys.argv[5])):
    beside = root / f"step-{number}.pt.tmp"
    with open(root.with_suffix(".spare"), "wb", buffering=0) as file:
        fallocate(file.fileno(), KEEP_SIZE, 0, records * size)
        os.rename(file.name, beside)
        begun = time.perf_counter()
        for done in range(1, records + 1):
            file.write(data)
            while (left := begun + save_s * done / records - time.perf_counter()) > 0:
                if left > 0.001:
                    time.sleep(left - 0.0005)
    beside.rename(root / f"step-{number}.pt")
    print(time.perf_counter() - begun, flush=True)
    for old in root.glob("step-*.pt"):
        if old.name != f"step-{number}.pt":
            old.unlink()
    time.sleep(0.05)
"""


def writer(root: Path, save_s: float, saves: int, mark: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-IS", "-c", WRITER, str(root), str(save_s), str(RECORDS), str(RECORD_BYTES), str(saves)]
    environment = {**os.environ, MARK: mark, STORE: str(root)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def one_try(scratch: Path, save_s: float, fraction: float) -> dict[str, Any]:
    """Kill one writer; return what the killer says."""
    with tempfile.TemporaryDirectory(dir=scratch) as root:
        mark = f"bench-{os.getpid()}-{time.monotonic_ns()}"
        child = writer(Path(root), save_s, 3 + round(3 / save_s), mark)
        spec = {
            "phase": "data",
            "fraction": fraction,
            "means": "freeze",
            "record": RECORD_BYTES,
            "attempts": 1,
            "wait_s": 60,
        }
        hunt = Hunt(spec, Followed("subject", mark), [])
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                evidence = hunt.run()
        finally:
            child.kill()
            child.communicate()
        if evidence is None:
            return {"hit": False, "why": hunt.reason(), **(hunt.misses[-1] if hunt.misses else {})}
        left = Path(root, evidence["files"][0]).stat().st_size if evidence["files"] else 0
        off = abs(left - fraction * RECORDS * RECORD_BYTES) / RECORD_BYTES
        return {
            "hit": True,
            "off_records": off,
            "frozen_ms": evidence["frozen_ms"],
            "uncommitted": evidence["uncommitted"],
        }


def unwatched_s(scratch: Path, save_s: float) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as root, writer(Path(root), save_s, 5, "nobody") as child:
        return statistics.median(float(line) for line in child.stdout or ())


def measure(tries: int, save_s: float, scratch: Path, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    found = [one_try(scratch, save_s, rng.uniform(0.1, 0.9)) for _ in range(tries)]
    hits = [each for each in found if each["hit"]]
    return {
        "tries": tries,
        "hits": len(hits),
        "rate": len(hits) / tries,
        "unwatched_save_s": round(unwatched_s(scratch, save_s), 4),
        "worst_off_records": round(max((each["off_records"] for each in hits), default=0.0), 3),
        "median_frozen_ms": statistics.median([each["frozen_ms"] for each in hits]) if hits else None,
        "false_hits": sum(each["off_records"] > 1 or not each["uncommitted"] for each in hits),
        "misses": [each["why"] for each in found if not each["hit"]][:10],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--case", choices=[*CASES, ""], default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    shared = Path("/dev/shm")
    scratch = shared if shared.is_dir() else Path(tempfile.gettempdir())
    cases = {name: case for name, case in CASES.items() if options.case in ("", name)}
    report = {
        name: {**measure(options.tries, save_s, scratch, options.seed), "wanted": wanted}
        for name, (save_s, wanted) in cases.items()
    }
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        for name, case in report.items():
            print(f"save of {name}: {case['hits']} of {case['tries']} hits ({case['wanted']:.0%} wanted), {case}")
    return 1 if any(case["false_hits"] for case in report.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
