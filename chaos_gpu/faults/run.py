"""The armed run: the mark that the guard leaves, without which no action acts."""

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chaos_gpu.cluster.client import Api
from chaos_gpu.cluster.watch import Recorder
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.errors import ApiUnavailable, Refused, UsageError
from chaos_gpu.faults.detectors import Detector, Watchers
from chaos_gpu.faults.ledger import Ledger
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.redact import redact
from chaos_gpu.verdict import Judgement, Verdict

if TYPE_CHECKING:
    from chaos_gpu.faults.keeper import Keeper
    from chaos_gpu.faults.starts import Starts

Stamp = tuple[str, int]
"""An Event's UID and count."""

RUN_KEY = "chaos_gpu_run"
"""Where the guard puts the run id into an experiment's configuration."""


@dataclass
class Injection:
    """One fault of the run, from its plan on."""

    plan: Plan
    events: frozenset[Stamp] = frozenset()
    """Events about the node that were there before: none of them can be a sign that a detector saw this fault."""
    note: str = ""
    """What the mark on its node says."""
    landed: Landed | None = None
    settled: bool = False
    running_s: float | None = None
    """When its pod was last seen to run and not told to end, for faults that are jobs (monotonic)."""


@dataclass
class Run:
    """What one experiment knows and did. One per process."""

    id: str
    title: str
    owner: str
    api: Api
    settings: Settings
    guard: GuardArguments
    watchers: Watchers
    detectors: list[Detector]
    plans: dict[str, Plan]
    owed: dict[str, int]
    ledger: Ledger
    phase: str = "before"
    engaged: bool = False
    refused: dict[str, str] | None = None
    signal: str = ""
    lost: str = ""
    ready: dict[str, bool | None] = field(default_factory=lambda: {"before": None, "after": None})
    fleet: dict[str, dict[str, Any]] = field(default_factory=dict)
    trouble_on_target: bool = False
    injections: dict[str, Injection] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    keeper: "Keeper | None" = None
    recorder: Recorder | None = None
    watch_delay_s: float = 0.0
    in_service_s: dict[str, float] = field(default_factory=dict)
    """When each fault's target was last asked for and found in service, by the fault's marker."""
    starts: "dict[tuple[str, str], Starts]" = field(default_factory=dict)
    """What is known of each training's starts, by its fault and role: their logs do not stay."""
    closing: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raise when the run must not go on: its Lease is gone, so the reverter may be at work already.

        A Lease that ran out meanwhile (the process may have been asleep) is renewed here, or found to be lost.
        """
        if self.keeper and not self.lost:
            self.keeper.confirm()
        if self.lost:
            raise ApiUnavailable(f"run {self.id} stops: {self.lost}", remedy=f"chaos-gpu status {self.id}")

    def planned(self, fault: str) -> Plan:
        """Return a fault's plan. Raises UsageError for one that the guard did not plan."""
        found = self.plans.get(fault)
        if found is None:
            raise UsageError(f"fault {fault!r} is not in the guard's plan", remedy="name it in the method itself")
        return found

    def injection(self, fault: str) -> Injection:
        """Return a fault that was injected. Raises UsageError for a name that this run does not know."""
        found = self.injections.get(fault)
        if found is None:
            raise UsageError(f"no fault {fault!r} was injected in this run", remedy="use the name given to inject_…")
        return found

    def record(self, criterion: str, judgement: Judgement) -> Verdict:
        """Keep a verdict: outcome and reason in the ledger, with its evidence in the journal."""
        clean = judgement._replace(evidence=redact(judgement.evidence), reason=redact(judgement.reason))
        verdict = Verdict.of(criterion, clean)
        self.verdicts.append(verdict)
        return verdict

    def publish(self, verdicts: list[Verdict]) -> dict[str, Any]:
        """Write new verdicts to the ledger and return them as an activity's output."""
        if self.engaged:
            self.ledger.write_verdicts([verdict.as_json() for verdict in verdicts])
        return {"verdicts": [verdict.as_json() for verdict in verdicts]}

    def pause(self, seconds: float) -> None:
        """Sleep, ready to be interrupted, as long as the run may go on. Raises as `check` does."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            self.check()


_current: Run | None = None


def mark(run: Run | None) -> None:
    """Leave the guard's mark, or take it away."""
    global _current  # noqa: PLW0603 - Chaos Toolkit hands nothing from a control to an activity but module state
    _current = run


def current() -> Run | None:
    """Return the marked run, None where no guard armed one."""
    return _current


def armed_run(configuration: dict[str, Any]) -> Run:
    """Return the run that the guard armed for this experiment. Raises Refused without one."""
    run = current()
    if run is None or configuration.get(RUN_KEY) != run.id:
        raise Refused(
            "no guard has armed this experiment",
            remedy="declare chaos_gpu.controls.guard under `controls` at the top of the experiment",
        )
    run.check()
    return run
