"""The guard: nothing is changed unless it has let the experiment in, and nothing is left when it lets go.

Declare it once, under `controls` at the top of an experiment. It refuses (InterruptExecution, before anything runs)
what is not safe or not sound, arms the run otherwise, and writes `journal["chaos_gpu"]` at the end. It fails closed:
if it cannot even fail properly, it has left no mark, and no action acts without one.
"""

import logging
from typing import Any

from chaoslib.exceptions import InterruptExecution
from chaoslib.run import RunEventHandler

from chaos_gpu.controls.signals import SignalWatch
from chaos_gpu.errors import ChaosGpuError
from chaos_gpu.faults import recovery
from chaos_gpu.faults.preflight import REFUSALS, arm
from chaos_gpu.faults.run import RUN_KEY, Run, current, mark

logger = logging.getLogger("chaostoolkit.gpu")

JOURNAL_KEY = "chaos_gpu"


class _Strategies(RunEventHandler):  # type: ignore[misc]
    """Learns how the experiment really runs: command-line flags beat what its file says."""

    rollbacks = hypothesis = dry = ""

    def running(
        self, experiment: Any, journal: Any, configuration: Any, secrets: Any, schedule: Any, settings: Any
    ) -> None:
        runtime = settings.get("runtime") or {}
        self.rollbacks = str((runtime.get("rollbacks") or {}).get("strategy", "default"))
        self.hypothesis = str((runtime.get("hypothesis") or {}).get("strategy", "default"))
        self.dry = str(experiment.get("dry") or "")

    def unsafe(self) -> str:
        """Say what makes the run unsafe or worthless, "" when nothing does."""
        if self.rollbacks != "always":
            return f"the rollback strategy is {self.rollbacks or 'unknown'}, it must be always"
        if self.hypothesis != "default":
            return f"the hypothesis strategy is {self.hypothesis}, it must be default (before and after)"
        return "a dry run calls no activity and so shows nothing; use chaos-gpu plan" if self.dry else ""


class _Guard:
    """What the guard of this process's experiment knows."""

    def __init__(self) -> None:
        self.strategies = _Strategies()
        self.refused: dict[str, str] | None = None
        self.signals = SignalWatch(self._noted)
        self.undoing = False

    def _noted(self, name: str) -> None:
        run = current()
        if run and not run.signal:
            run.signal = name
        logger.warning("caught %s: %s", name, "noted, the undo goes on" if self.undoing else "stopping")


_guard = _Guard()


def configure_control(event_registry: Any = None, **arguments: Any) -> None:
    """Get ready to learn the effective strategies."""
    global _guard  # noqa: PLW0603 - one experiment per process, and a control is a module
    _guard = _Guard()
    mark(None)
    if event_registry is not None:
        event_registry.register(_guard.strategies)


def before_experiment_control(
    context: dict[str, Any], configuration: dict[str, Any], secrets: dict[str, Any] | None = None, **arguments: Any
) -> None:
    """Let the experiment in, or refuse it."""
    _guard.signals.install()
    unsafe = _guard.strategies.unsafe()
    if unsafe:
        _refuse(unsafe, "put `runtime: {rollbacks: {strategy: always}}` into the experiment, pass no strategy flags")
    _guard.signals.interruptible = True  # nothing is changed yet, and a silent API server may take its time
    try:
        run = arm(context, configuration, secrets or {}, arguments)
    except REFUSALS as failure:
        _refuse(failure.reason, failure.remedy or "chaos-gpu doctor shows what a run finds on this cluster")
    finally:
        _guard.signals.interruptible = False
    configuration[RUN_KEY] = run.id
    mark(run)
    logger.info("run %s is armed on context %s", run.id, run.settings.context)
    for plan in run.plans.values():
        logger.info("plan: %s", plan.as_text())


def before_activity_control(context: dict[str, Any], **arguments: Any) -> None:
    """Start no further activity once a signal came; otherwise let a signal interrupt this one."""
    if _guard.undoing:
        return
    if _guard.signals.seen:
        raise InterruptExecution(f"stopped by {_guard.signals.seen}")
    if current() is None:  # the guard broke down: Chaos Toolkit only notes that, and would go on
        raise InterruptExecution("refused: the guard did not arm the run, see the log")
    _guard.signals.interruptible = True


def after_activity_control(context: dict[str, Any], **arguments: Any) -> None:
    """Let no signal interrupt Chaos Toolkit itself."""
    _guard.signals.interruptible = False


def after_method_control(context: dict[str, Any], **arguments: Any) -> None:
    """From here on the hypothesis asks whether all is as before."""
    run = current()
    if run:
        run.phase = "after"


def before_rollback_control(context: dict[str, Any], **arguments: Any) -> None:
    """From here on signals are only noted."""
    _guard.signals.interruptible = False
    _guard.undoing = True
    if current() is None:  # Chaos Toolkit plays rollbacks after a refusal too, and not all need be ours
        raise InterruptExecution("nothing was armed: there is nothing to roll back")


def after_experiment_control(context: dict[str, Any], state: dict[str, Any], **arguments: Any) -> None:
    """Close the run and write down what is known of it."""
    _guard.signals.interruptible = False
    _guard.undoing = True
    run = current()
    try:
        if run:
            run.open = [f"the run did not get to closing: chaos-gpu recover {run.id}"] if run.engaged else []
            recovery.close(run)
    finally:  # whatever happened: a journal without our word would read as if nothing had begun
        state[JOURNAL_KEY] = entry(run, _guard.refused, _guard.signals.seen)
        mark(None)


def entry(run: Run | None, refused: dict[str, str] | None, signal: str) -> dict[str, Any]:
    """Make `journal["chaos_gpu"]`: all that a verdict needs, offline."""
    if run is None:
        unarmed = {"reason": "the guard did not arm the run", "remedy": "see chaostoolkit.log"}
        return {
            "run": "",
            "phase": "before",
            "refused": refused or (None if signal else unarmed),
            "signal": signal or None,
            "planned": {},
            "verdicts": [],
            "platform_ready": {"before": None, "after": None, "after_on_target": False},
            "recovery": {"restored": [], "open": []},
        }
    return {
        "run": run.id,
        "phase": run.phase,
        "refused": refused or run.refused,
        "signal": run.signal or signal or None,
        "context": run.settings.context,
        "environment": run.settings.environment,
        "plans": [plan.as_json() for plan in run.plans.values()],
        "planned": run.owed,
        "verdicts": [verdict.as_json() for verdict in run.verdicts],
        "platform_ready": {**run.ready, "after_on_target": run.trouble_on_target},
        "recovery": {"restored": run.restored, "open": run.open},
    }


def _refuse(reason: str, remedy: str) -> None:
    _guard.refused = {"reason": reason, "remedy": remedy}
    raise InterruptExecution(f"refused: {ChaosGpuError(reason, remedy)}")
