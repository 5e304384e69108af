"""A lab that is open to experiments, and the real `chaos run` against it, seen from outside: journal, objects."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos_gpu.report.fold import Result
from chaos_gpu.report.journal import fold_file
from tests.lab.conftest import Lab

Json = dict[str, Any]
RUN_S = 90.0
SHORT = {
    "CHAOS_GPU_CONTEXT": "lab",
    "CHAOS_GPU_ENVIRONMENT": "lab",
    "CHAOS_GPU_CORDON_S": "2",
    "CHAOS_GPU_UNCORDON_S": "2",
    "CHAOS_GPU_CONDITION_S": "2",
    "CHAOS_GPU_HOLD_S": "0.2",
    "CHAOS_GPU_LEASE_S": "4",
}
CONFIGURATION = {
    **{key: {"type": "env", "key": f"CHAOS_GPU_{key.upper()}", "default": ""} for key in ("context", "environment")},
    **{key: {"type": "env", "key": f"CHAOS_GPU_{key.upper()}", "default": ""} for key in ("run", "node", "gpu")},
    "selector": {"type": "env", "key": "CHAOS_GPU_SELECTOR", "default": "nvidia.com/gpu.present=true"},
    **{
        key: {"type": "env", "key": f"CHAOS_GPU_{key.upper()}", "default": 2, "env_var_type": "float"}
        for key in ("lease_s", "condition_s", "cordon_s", "uncordon_s", "hold_s")
    },
}
KINDS = (
    "api/v1/namespaces",
    "api/v1/nodes",
    "api/v1/pods",
    "api/v1/events",
    "api/v1/configmaps",
    "apis/batch/v1/jobs",
    "apis/apps/v1/daemonsets",
    "apis/apps/v1/deployments",
    "apis/coordination.k8s.io/v1/namespaces/chaos-gpu/leases",
)


class Process:
    """A command that is running in a process and session of its own."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.pid = 0
        self._started, self._ended = threading.Event(), threading.Event()
        self.code = 0

    def wait(self, limit_s: float = RUN_S) -> int:
        """Return its exit code (negative: the signal that killed it)."""
        assert self._ended.wait(limit_s), f"still running after {limit_s:g} s:\n{self.text}"
        return self.code

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, unless it has ended."""
        if not self._ended.is_set():
            os.kill(self.pid, number)

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


class Nursery:
    """Starts commands quickly; see `nursery.py`."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("nursery.py")
        self._server = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._waiting: list[Process] = []
        self._running: dict[int, Process] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, argv: list[str], env: Mapping[str, str], cwd: Path) -> Process:
        """Start `chaos …` or `chaos-gpu …`."""
        with self._lock:
            number = len(list(cwd.glob("output*")))
            process = Process(cwd / f"output{number}.txt")
            process.output.touch()
            self._waiting.append(process)
            request = {"argv": argv, "env": dict(env), "cwd": str(cwd), "output": str(process.output)}
            assert self._server.stdin
            self._server.stdin.write(json.dumps(request).encode() + b"\n")
            self._server.stdin.flush()
        assert process._started.wait(60), "the nursery does not start anything"
        return process

    def _listen(self) -> None:
        assert self._server.stdout
        for line in self._server.stdout:
            facts = json.loads(line)
            if "started" in facts:
                process = self._waiting.pop(0)
                process.pid = facts["started"]
                self._running[process.pid] = process
                process._started.set()
            elif "ended" in facts:
                process = self._running.pop(facts["ended"])
                process.code = facts["code"]
                process._ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.close()
        self._server.wait(20)
        self._server.stdout.close()


@dataclass
class Ended:
    """A `chaos run` that is over."""

    process: Process
    directory: Path

    @property
    def text(self) -> str:
        return self.process.text

    @property
    def journal(self) -> Json:
        found: Json = json.loads((self.directory / "journal.json").read_text())
        return found

    @property
    def guard(self) -> Json:
        """What the guard wrote into the journal."""
        found: Json = self.journal["chaos_gpu"]
        return found

    @property
    def result(self) -> Result:
        """What `chaos-gpu verdict` makes of it."""
        return fold_file(self.directory / "journal.json")

    def output_of(self, activity: str) -> Any:
        """What an activity of the method or the rollbacks returned."""
        runs = [*self.journal["run"], *self.journal["rollbacks"]]
        return next(each for each in runs if each["activity"]["name"] == activity)


@dataclass
class Site:
    """A lab with `chaos-gpu install` done."""

    lab: Lab
    nursery: Nursery
    directory: Path
    _runs: int = field(default=0)

    def env(self, **more: str) -> dict[str, str]:
        """Return the environment of an operator of this lab; a value of "-" takes a variable away."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("CHAOS_GPU_")}
        made = {**kept, **SHORT, "KUBECONFIG": str(self.lab.kubeconfig), **more}
        return {key: value for key, value in made.items() if value != "-"}

    def place(self) -> Path:
        """Make a directory for one command."""
        self._runs += 1
        made = self.directory / f"run-{self._runs}"
        made.mkdir()
        return made

    def start(self, experiment: Json | Path, *flags: str, **env: str) -> Ended:
        """Start `chaos run`."""
        place = self.place()
        if isinstance(experiment, Path):
            file = experiment
        else:
            file = place / "experiment.json"
            file.write_text(json.dumps(experiment))
        argv = ["chaos", "--no-version-check", "run", *flags, str(file)]
        return Ended(self.nursery.start(argv, self.env(**env), place), place)

    def run(self, experiment: Json | Path, *flags: str, **env: str) -> Ended:
        """Run `chaos run` to its end."""
        ended = self.start(experiment, *flags, **env)
        ended.process.wait()
        return ended

    def cli(self, *arguments: str, **env: str) -> tuple[int, str]:
        """Run `chaos-gpu ARGUMENTS`; returns exit code and everything it printed."""
        process = self.nursery.start(["chaos-gpu", *arguments], self.env(**env), self.place())
        return process.wait(), process.text

    # the cluster, as its administrator sees it

    def items(self, collection: str) -> list[Json]:
        found: list[Json] = self.lab.get(collection)["items"]
        return found

    def merge(self, path: str, patch: Json) -> Json:
        made: Json = self.lab.request("PATCH", path, patch, "application/merge-patch+json")
        return made

    def ledger(self, run: str) -> Json:
        """Return the records of a ledger, and its state as `state`."""
        found = self.lab.get(f"api/v1/namespaces/chaos-gpu/configmaps/chaos-gpu-run-{run}")
        records = {key: json.loads(value) for key, value in found["data"].items()}
        return {**records, "state": found["metadata"]["labels"]["chaos-gpu/ledger"]}

    def forget(self) -> None:
        """Remove all ledgers and what hangs on runs, so that the next test starts with full budgets."""
        for found in self.items("api/v1/namespaces/chaos-gpu/configmaps"):
            if "chaos-gpu/ledger" in (found["metadata"].get("labels") or {}):
                self.lab.request("DELETE", f"api/v1/namespaces/chaos-gpu/configmaps/{found['metadata']['name']}")

    def audit(self) -> list[Json]:
        """Return the requests of chaos_gpu itself that change something, in order; reviews of rights change nothing."""
        lines = (json.loads(line) for line in (self.lab.root / "audit.jsonl").read_text().splitlines())
        return [
            line
            for line in lines
            if line["userAgent"] in ("chaos-gpu", "")
            and line["verb"] not in ("list", "watch")
            and line["resource"] not in ("selfsubjectaccessreviews", "subjectaccessreviews")
            and not line["user"].startswith("system:serviceaccount:gpu-health")
        ]

    def objects(self) -> Json:
        """Return everything that a run might change, by kind, namespace and name; without what changes by itself."""
        return {
            f"{kind} {found['metadata'].get('namespace', '')}/{found['metadata']['name']}": _stable(found)
            for kind in KINDS
            for found in self.items(kind)
        }


def _stable(found: Json) -> Json:
    meta = {key: found["metadata"].get(key) or None for key in ("uid", "labels", "annotations", "ownerReferences")}
    conditions = [(each["type"], each["status"]) for each in (found.get("status") or {}).get("conditions") or ()]
    well = {(name, "False") for name in ("GpuXidError", "GpuXidInJournal", "GpuDcgmUnhealthy")}  # as detectors say it
    conditions = [each for each in conditions if each not in well]
    return {"meta": meta, "spec": found.get("spec"), "data": found.get("data"), "conditions": conditions}


@contextmanager
def unchanged(site: Site) -> Iterator[None]:
    """See that nothing on the cluster is changed meanwhile, not even for a moment."""
    before, asked = site.objects(), len(site.audit())
    yield
    written = [line for line in site.audit()[asked:] if line["code"] < 400]
    assert not written, written
    after = site.objects()
    changed = [name for name in {*before, *after} if before.get(name) != after.get(name)]
    assert not changed, [(name, before.get(name), after.get(name)) for name in changed]


def activity(kind: str, title: str, module: str, func: str, /, **arguments: Any) -> Json:
    provider = {"type": "python", "module": module, "func": func, "arguments": arguments}
    return {"type": kind, "name": title, "provider": provider}


def inject(fault: str = "xid-13", code: Any = 13, **more: Any) -> Json:
    return activity("action", fault, "chaos_gpu.actions.xid", "inject_xid", fault=fault, code=code, **more)


def over(fault: str = "xid-13") -> list[Json]:
    run = "chaos_gpu.actions.run"
    return [
        activity("action", f"{fault}-over", run, "revert", fault=fault),
        activity("action", f"{fault}-recovered", run, "recovered", fault=fault),
    ]


def guard(**arguments: Any) -> Json:
    return {
        "name": "guard",
        "provider": {"type": "python", "module": "chaos_gpu.controls.guard", "arguments": arguments},
    }


def experiment(
    *method: Json, change: Callable[[Json], Any] | None = None, criteria: list[str] | None = None, **arguments: Any
) -> Json:
    """Make an experiment: by default one Xid 13, undone and settled. `arguments` are the guard's; `change` edits it."""
    ready = activity("probe", "ready", "chaos_gpu.probes.platform", "platform_ready")
    hold = activity("probe", "hold", "chaos_gpu.probes.platform", "criteria_hold", criteria=criteria or [])
    made: Json = {
        "title": "A test of the engine",
        "description": "One fault.",
        "runtime": {"rollbacks": {"strategy": "always"}},
        "configuration": json.loads(json.dumps(CONFIGURATION)),
        "controls": [guard(**{"allow_remediation": ["cordon"], **arguments})],
        "steady-state-hypothesis": {
            "title": "Healthy",
            "probes": [{**each, "tolerance": 1} for each in ([ready, hold] if criteria else [ready])],
        },
        "method": list(method) or [inject(), *over()],
        "rollbacks": [activity("action", "nothing-left", "chaos_gpu.actions.run", "revert_all")],
    }
    if change:
        change(made)
    return made


@contextmanager
def defects(site: Site, *names: str) -> Iterator[None]:
    """Plant defects in the running platform; its agents read the file again at each record."""
    file = site.lab.root / "platform.json"
    healthy = file.read_text()
    _replace(file, json.dumps({**json.loads(healthy), "defects": list(names)}))
    try:
        yield
    finally:
        _replace(file, healthy)


def _replace(file: Path, text: str) -> None:
    fresh = file.with_suffix(".fresh")
    fresh.write_text(text)
    fresh.replace(file)
