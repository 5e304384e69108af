"""Kill a run at one chosen request, and see what becomes of everything that it did.

A recording run gives the requests of a run in order. Each is two kill points: before it reaches the server, and after
the server has acted on it but before the runner hears of it. What counts as one request:

- every write is one, each SelfSubjectAccessReview included;
- reads of the same path and selectors between two writes are one: they are looks at the same state (polls);
- what the run's own threads repeat is one: renewing the Lease, listening for the abort key, watching the nodes.

Names that change from run to run (run id, node, pod suffix, resource versions) are left out of a request's name, so
that the n-th request of a name is the same one in every run of an experiment.
"""

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.engine.site import Ended, Json, Nursery, Site
from tests.engine.traces import Leftovers, look, named_exactly
from tests.lab.conftest import running_lab
from tests.support.proxy import AFTER, BEFORE, Exchange, Proxy, anything, call, send_signal

WINDOWS = {
    "CHAOS_GPU_LEASE_S": "1",
    "CHAOS_GPU_CONDITION_S": "3",
    "CHAOS_GPU_CORDON_S": "3",
    "CHAOS_GPU_UNCORDON_S": "3",
    "CHAOS_GPU_HOLD_S": "0.5",
}
LEASE_S, REACTION_S, UNCORDON_S, MARGIN_S = 1.0, 6.0, 3.0, 30.0
GONE_S = LEASE_S + MARGIN_S
"""Bound of DESIGN for these windows: by then nothing of ours is left."""
CLOSED_S = LEASE_S + REACTION_S + UNCORDON_S + MARGIN_S
"""Bound of DESIGN: by then the platform's reaction is over and the ledger closed."""
RUN_S = 90.0

_KEPT_QUERY = ("labelSelector", "fieldSelector", "watch", "follow")


class Step(NamedTuple):
    """One request of a run, named so that another run can find it."""

    method: str
    where: str
    nth: int

    def __str__(self) -> str:
        return f"{self.method} {self.where} #{self.nth}"


class Point(NamedTuple):
    """Where to kill: before the server gets the request, or after it has acted on it."""

    stage: str
    step: Step

    def __str__(self) -> str:
        return f"{self.stage:6} {self.step}"


class Numbering:
    """Tells for each request of a run, in order, which step it is; None for the repetition of one."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._counts: Counter[tuple[str, str]] = Counter()
        self._since_write: set[tuple[str, str]] = set()

    def step(self, exchange: Exchange) -> Step | None:
        key = (exchange.method, self._where(exchange))
        if _in_background(exchange):
            if self._counts[key]:
                return None
        elif exchange.method == "GET":
            if key in self._since_write:
                return None
            self._since_write.add(key)
        else:
            self._since_write.clear()
        self._counts[key] += 1
        return Step(*key, self._counts[key])

    def _where(self, exchange: Exchange) -> str:
        kept = "&".join(f"{key}={exchange.query[key]}" for key in _KEPT_QUERY if key in exchange.query)
        text = exchange.path + ("?" + kept if kept else "")
        text = re.sub(rf"(reverter-{self._run})-[a-z0-9]{{5}}\b", r"\1-*", text)
        return re.sub(r"gpu-node-\d", "{node}", text.replace(self._run, "{run}"))


def _in_background(exchange: Exchange) -> bool:
    """Whether a request is made by keeper or recorder, in threads of their own."""
    listens = exchange.path.endswith("/configmaps") and "fieldSelector" in exchange.query
    watches = exchange.path.endswith("/nodes") and exchange.is_stream
    return listens or watches or (exchange.method == "PATCH" and "/leases/" in exchange.path)


@dataclass
class Outcome:
    """What became of one kill. Times in seconds after it.

    Attributes:
        gone_s: until all that we changed was gone: injector, mark, processes.
        empty_s: until what undoes it was gone too: reverter, its Job, the Lease.
        closed_s: until the ledger was closed and the platform had taken its reaction back.
    """

    point: str
    gone_s: float = 0.0
    empty_s: float = 0.0
    closed_s: float = 0.0
    state: str = ""
    remains: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.violations:
            return "VIOLATION"
        return "stuck, as it says" if self.state == "stuck" else "as before"


def one_fault(name: str, fault: str) -> Json:
    """Take one fault of an experiment as shipped; a reused lab needs a larger budget, raised where it can be read."""
    file = Path(__file__).parents[2] / "experiments" / f"{name}.yaml"
    made: Json = yaml.safe_load(file.read_text())
    made["method"] = [each for each in made["method"] if each["name"].startswith(fault)]
    made["controls"][0]["provider"]["arguments"]["repeats_per_day"] = 1000
    return made


SUBJECTS: dict[str, Callable[[], Json]] = {
    "fatal": lambda: one_fault("device/xid-fatal-cordons-node", "xid-48"),
    "application": lambda: one_fault("device/xid-application-error-keeps-node", "xid-13"),
}


@contextmanager
def open_site(root: Path, nursery: Nursery, *options: str) -> Iterator[Site]:
    """Start a lab in `root`, opened to experiments."""
    root.mkdir(parents=True, exist_ok=True)
    with running_lab(root / "lab", options, env={"CHAOS_GPU_CORDON_S": WINDOWS["CHAOS_GPU_CORDON_S"]}) as lab:
        (root / "runs").mkdir(exist_ok=True)
        site = Site(lab, nursery, root / "runs")
        code, text = site.cli("install")
        assert code == 0, text
        yield site


def record(site: Site, experiment: Json) -> list[Step]:
    """Run an experiment undisturbed and return its steps."""
    numbering, steps = Numbering("recorded"), []
    with Proxy(site.lab.kubeconfig, site.directory / "recording.kubeconfig") as proxy:
        proxy.on(anything, call(lambda exchange: steps.append(numbering.step(exchange))))
        ended = _start(site, experiment, "recorded", proxy)
        ended.process.wait(RUN_S)
    assert ended.guard["refused"] is None, ended.text
    assert ended.guard["recovery"]["open"] == [], ended.text
    return [step for step in steps if step]


def points_of(steps: list[Step]) -> list[Point]:
    """Return the two kill points of each step."""
    return [Point(stage, step) for step in steps for stage in (BEFORE, AFTER)]


def kill_at(site: Site, experiment: Json, point: Point, run: str, stuck_allowed: bool = False) -> Outcome | None:
    """Kill a run at a point, wait for the end of what follows, and judge it by the bounds.

    Returns: None when the run ended before it came there: on a busy machine it may lose its short Lease.
    """
    outcome = Outcome(str(point))
    killed_s = _run_until_killed(site, experiment, point, run)
    if killed_s is None:
        return None
    _judge(site, run, _watch(site, run, killed_s, outcome), outcome, stuck_allowed)
    return outcome


def _start(site: Site, experiment: Json, run: str, proxy: Proxy) -> Ended:
    flags = ("--journal-path", "journal.json")
    return site.start(experiment, *flags, **WINDOWS, KUBECONFIG=str(proxy.kubeconfig), CHAOS_GPU_RUN=run)


def _run_until_killed(site: Site, experiment: Json, point: Point, run: str) -> float | None:
    """Start a run and SIGKILL its process group at the point; return when, None when it never got there."""
    numbering, killed_at, chosen = Numbering(run), [], set()
    runner: list[Ended] = []

    def choose(exchange: Exchange) -> None:
        if numbering.step(exchange) == point.step:
            chosen.add(exchange.ordinal)

    def here(exchange: Exchange) -> bool:
        if exchange.ordinal in chosen:
            killed_at.append(time.monotonic())
        return exchange.ordinal in chosen

    with Proxy(site.lab.kubeconfig, site.directory / f"{run}.kubeconfig") as proxy:
        proxy.on(anything, call(choose))
        proxy.on(here, send_signal(lambda: runner[0].process.pid, signal.SIGKILL), stage=point.stage)
        runner.append(_start(site, experiment, run, proxy))
        code = runner[0].process.wait(RUN_S)
    return killed_at[0] if killed_at and code == -signal.SIGKILL else None


def _watch(site: Site, run: str, killed_s: float, outcome: Outcome) -> Leftovers:
    """Follow the cluster until all is over, or the longest bound has passed."""
    audit, size = site.lab.root / "audit.jsonl", -1
    while True:
        passed_s = time.monotonic() - killed_s
        grown = audit.stat().st_size
        if grown != size or passed_s > CLOSED_S:  # nothing changes without a line there
            size, left = grown, look(site, run)
            if left.changes:
                outcome.gone_s = passed_s
            if left.ours:
                outcome.empty_s = passed_s
            if left.state not in ("closed", "") or left.reactions:
                outcome.closed_s = passed_s
            outcome.state = left.state
            if not left.ours and (left.state == "stuck" or (left.state in ("closed", "") and not left.reactions)):
                return left
            if passed_s > CLOSED_S:
                return left
        time.sleep(0.05)


def _judge(site: Site, run: str, left: Leftovers, outcome: Outcome, stuck_allowed: bool) -> None:
    wrong = outcome.violations
    if outcome.gone_s > GONE_S:
        wrong.append(f"our changes were still there after {GONE_S:g} s: {left.changes or 'they went later'}")
    if outcome.empty_s > GONE_S:
        wrong.append(f"our helpers were still there after {GONE_S:g} s: {left.ours or 'they went later'}")
    if outcome.closed_s > CLOSED_S or left.state == "open":
        wrong.append(f"ledger {left.state or 'missing'} after {CLOSED_S:g} s, nodes: {left.reactions or 'as before'}")
    if left.state == "stuck":
        outcome.remains = left.open_items
        if not stuck_allowed:
            wrong.append(f"the ledger is stuck: {left.open_items}")
        wrong += named_exactly(left)
        code, text = site.cli("recover", run)
        if code != 3:
            wrong.append(f"recover exits {code} though something remains: {text}")
        return
    code, text = site.cli("plan", str(_written(site)), **WINDOWS)
    if code != 0:
        wrong.append(f"the next run would be refused: {text.strip()[:300]}")
    later = look(site, run, processes=True)
    if later.ours or later.reactions:
        wrong.append(f"came back later: {later.ours + later.reactions}")


def _written(site: Site) -> Path:
    file = site.directory / "next.json"
    if not file.exists():
        file.write_text(json.dumps(SUBJECTS["fatal"]()))
    return file


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as a row of the sweep's table."""
    return {
        "point": outcome.point,
        "gone_s": round(outcome.gone_s, 2),
        "empty_s": round(outcome.empty_s, 2),
        "closed_s": round(outcome.closed_s, 2),
        "ledger": outcome.state or "none",
        "verdict": outcome.verdict,
        "remains": outcome.remains,
        "violations": outcome.violations,
    }
