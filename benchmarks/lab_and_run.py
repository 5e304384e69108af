"""How fast and how exact we are, on the lab, each against its own truth in the same run:

lab ready       from the start of a lab to its being ready, as a ratio to `python -c "import aiohttp"`
chaos run       an experiment's wall time, less what the platform takes from each record to the node's return
time to cordon  the reported time and its stated error, against kernel log and audit log, over many injections

Budgets of injections are raised openly, in the experiments made here. Exits 1 when a stated error does not hold.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from chaos_gpu.cli.experiments import resolve

PROGRAMS = Path(sys.executable).parent
FATAL = "device/xid-fatal-cordons-node"
DETECTOR = "system:serviceaccount:gpu-health:"
CODES = (48, 74, 79)
PER_RUN = 20

Json = dict[str, Any]


class Lab(NamedTuple):
    """A lab that is open to experiments."""

    root: Path
    env: dict[str, str]
    up_s: float
    ready_s: float


class Fault(NamedTuple):
    """One injected record: as the run reports it, and as the lab knows it (monotonic seconds)."""

    reported_s: float
    error_s: float
    record_s: float
    cordoned_s: float
    returned_s: float

    @property
    def off_s(self) -> float:
        """How far the reported time is from the true one."""
        return abs(self.reported_s - (self.cordoned_s - self.record_s))


@contextmanager
def lab(root: Path) -> Iterator[Lab]:
    """Start a lab in `root` and open it."""
    began = time.monotonic()
    subprocess.run([PROGRAMS / "chaos-gpu", "lab", "up", "--dir", root], check=True, stdout=subprocess.DEVNULL)
    took_s = time.monotonic() - began
    windows = {f"CHAOS_GPU_{name}_S": "30" for name in ("CORDON", "CONDITION", "UNCORDON")}  # met on a slow machine too
    place = {"KUBECONFIG": f"{root}/kubeconfig", "CHAOS_GPU_CONTEXT": "lab", "CHAOS_GPU_ENVIRONMENT": "lab"}
    env = {**os.environ, **windows, **place, "CHAOS_GPU_HOLD_S": "0.1"}
    try:
        subprocess.run([PROGRAMS / "chaos-gpu", "install"], env=env, check=True, stdout=subprocess.DEVNULL)
        yield Lab(root, env, took_s, json.loads((root / "lab.json").read_text())["ready_s"])
    finally:
        subprocess.run([PROGRAMS / "chaos-gpu", "lab", "down", "--dir", root], check=True, stdout=subprocess.DEVNULL)


def chaos_run(on: Lab, experiment: Path) -> tuple[float, Json]:
    """Run an experiment; returns wall seconds and its journal."""
    journal = on.root.parent / "journal.json"
    command = [PROGRAMS / "chaos", "--no-version-check", "run", "--journal-path", journal, experiment]
    began = time.monotonic()
    done = subprocess.run(command, env=on.env, cwd=on.root.parent, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - began
    if done.returncode:
        sys.exit(f"chaos run did not complete:\n{done.stdout}{done.stderr}")
    return took_s, json.loads(journal.read_text())


def repeated(count: int) -> Json:
    """Make the fatal experiment with `count` faults, and with the budget for them."""
    made: Json = yaml.safe_load(resolve(FATAL).read_text())
    made["controls"][0]["provider"]["arguments"]["repeats_per_day"] = 10_000
    once = [each for each in made["method"] if each["name"].startswith("xid-48") and "detected" not in each["name"]]
    made["method"] = []
    for number in range(count):
        text = json.dumps(once).replace("xid-48", f"xid-{number}").replace('"code": 48', f'"code": {CODES[number % 3]}')
        made["method"] += json.loads(text)
    return made


def faults_of(on: Lab, journal: Json) -> list[Fault]:
    """Pair what a run reported of each fault with the lab's own logs."""
    audit = [json.loads(line) for line in (on.root / "audit.jsonl").read_text().splitlines()]
    by_detector = [line for line in audit if line["user"].startswith(DETECTOR) and line["code"] < 300]
    patches = [line for line in by_detector if line["verb"] == "patch" and not line["subresource"]]
    found = []
    outputs = [each["output"] for each in journal["run"] if isinstance(each.get("output"), dict)]
    landed = [output for output in outputs if "seq" in output]
    measured = [v["evidence"] for o in outputs for v in o.get("verdicts", ()) if v["criterion"] == "DEV-07"]
    for record, evidence in zip(landed, measured, strict=True):
        record_s = _record_s(on, record["node"], record["seq"])
        after = (line for line in patches if line["name"] == record["node"] and line["monotonic"] > record_s)
        cordon, back = next(after), next(after)
        times = (record_s, cordon["monotonic"], back["monotonic"])
        found.append(Fault(evidence["seconds"], evidence["error_s"], *times))
    return found


def _record_s(on: Lab, node: str, seq: int) -> float:
    lines = (on.root / "nodes" / node / "kmsg").read_text(errors="replace").splitlines()
    heads = (line.split(";", 1)[0].split(",") for line in lines if line[:1].isdigit())
    return next(int(usec) / 1e6 for _, number, usec, *_ in heads if int(number) == seq)


def bench_ready(root: Path, runs: int) -> bool:
    baseline, up, ready = [], [], []
    for number in range(runs):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import aiohttp"], check=True)
        baseline.append(time.monotonic() - began)
        with lab(root / f"ready-{number}") as started:
            up.append(started.up_s)
            ready.append(started.ready_s)
    ratio = statistics.median(ready) / statistics.median(baseline)
    print(f"lab ready       {_spread(ready)}; {ratio:.1f} x `import aiohttp` ({_spread(baseline)})")
    print(f"  lab up        {_spread(up)}, the command as a whole")
    return True


def bench_run(root: Path, runs: int) -> bool:
    own, starts = [], []
    with lab(root / "run") as started:
        for _ in range(runs):
            began = time.monotonic()
            subprocess.run([PROGRAMS / "chaos", "--version"], check=True, stdout=subprocess.DEVNULL)
            starts.append(time.monotonic() - began)
            wall_s, journal = chaos_run(started, resolve(FATAL))
            faults = faults_of(started, journal)
            own.append(wall_s - sum(fault.returned_s - fault.record_s for fault in faults))
    ratio = statistics.median(own) / statistics.median(starts)
    print(f"chaos run       {_spread(own)}; {ratio:.1f} x `chaos --version` ({_spread(starts)})")
    return True


def bench_cordon(root: Path, injections: int) -> bool:
    faults: list[Fault] = []
    with lab(root / "cordon") as started:
        while len(faults) < injections:
            experiment = root / "experiment.json"
            experiment.write_text(json.dumps(repeated(min(PER_RUN, injections - len(faults)))))
            faults += faults_of(started, chaos_run(started, experiment)[1])
    off = [fault.off_s for fault in faults]
    wrong = [fault for fault in faults if fault.off_s > fault.error_s]
    truth = [fault.cordoned_s - fault.record_s for fault in faults]
    print(f"time to cordon  {_spread(truth)}, {len(faults)} injections")
    print(f"  off by        {_spread(off)}")
    print(f"  stated error  {_spread([fault.error_s for fault in faults])}; beyond it: {len(wrong)}")
    return not wrong


def _spread(seconds: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(seconds):.1f} ms (worst {1e3 * max(seconds):.1f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of lab and experiment (default: %(default)s)")
    parser.add_argument("--injections", type=int, default=100, help="to time (default: %(default)s)")
    chosen = parser.parse_args()
    print("median (worst)")
    with tempfile.TemporaryDirectory(prefix="chaos-gpu-bench-") as name:
        root = Path(name)
        held = [bench_ready(root, chosen.runs), bench_run(root, chosen.runs), bench_cordon(root, chosen.injections)]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
