"""Take back what a run did, see the platform's reaction through, and close the run."""

import logging
import time
from typing import Any

from chaos_gpu.errors import ApiError, ApiUnavailable, NotRecovered
from chaos_gpu.faults import intent, ours
from chaos_gpu.faults.aftermath import await_closed, state_of
from chaos_gpu.faults.ledger import CLOSED, caller, ledger_of
from chaos_gpu.faults.names import NAMESPACE, jobs_path
from chaos_gpu.faults.run import Injection, Run
from chaos_gpu.payloads import reactions, undo

logger = logging.getLogger("chaostoolkit.gpu")


def revert(run: Run, fault: str) -> dict[str, Any]:
    """Undo one fault's changes and see them gone. Idempotent. Raises NotRecovered with what remains."""
    run.injection(fault)
    restored, left = undo.undo(caller(run.api), NAMESPACE, run.id, fault)
    run.restored += restored
    if left:
        raise NotRecovered("; ".join(left), remedy=f"chaos-gpu recover {run.id}")
    return {"restored": restored}


def recovered(run: Run, fault: str) -> dict[str, Any]:
    """See the platform's reaction to one fault through to its end. Raises NotRecovered with what remains."""
    restored, left = _settle(run, run.injection(fault))
    if left:
        raise NotRecovered("; ".join(left), remedy=f"chaos-gpu recover {run.id}")
    return {"restored": restored}


def revert_all(run: Run) -> tuple[list[str], list[str]]:
    """Undo everything and settle every consequence, best effort. Returns what was restored and what remains.

    Raises: ApiUnavailable when the run lost its Lease: then it is the reverter's to undo.
    """
    run.check()
    call = caller(run.api)
    called_off = undo.attempt(undo.call_off, call, NAMESPACE, run.id)[1]  # else one on its way may still start
    restored, left = undo.undo(call, NAMESPACE, run.id)
    run.restored += restored
    left = called_off + left
    for injection in run.injections.values():
        good, bad = _settle(run, injection)
        restored, left = restored + good, left + bad
    return restored, left


def close(run: Run) -> None:
    """End the run: what is still there is undone or named in `run.open`, the ledger closed, the dead-men sent home."""
    if not run.engaged:
        return
    try:
        if not run.lost:
            run.open = _close_ledger(run)
        if run.lost:  # before, or while we were at it
            run.open = _await_reverter(run) + _undo_late(run)
        _send_home(run)
    except (ApiError, ApiUnavailable, OSError) as failure:
        run.open = [f"whether everything is undone is not known ({failure}); the reverter in the cluster sees to it"]
    run.closing.set()
    if run.recorder:
        run.recorder.stop()


def _send_home(run: Run) -> None:
    """Let go of the Lease, and end the reverter: in this order, for the reverter drops a Lease that we leave."""
    run.closing.set()
    try:
        if run.keeper:
            run.keeper.release()
        ours.drop(run.api, f"{jobs_path()}/chaos-gpu-reverter-{run.id}", run.ledger.token)
    except (ApiError, ApiUnavailable) as failure:
        logger.warning("run %s: its reverter Job and Lease end by themselves later: %s", run.id, failure)


def _close_ledger(run: Run) -> list[str]:
    entry = ledger_of(run.api, run.id)
    if entry is None and run.ledger.uid:
        return [f"the ledger of run {run.id} was deleted: what it says of changes and their undo is lost"]
    if entry is None or entry.token != run.ledger.token:  # it was never ours to open: nothing was changed either
        return []
    try:
        _, left = revert_all(run)
    except ApiUnavailable:
        if run.lost:
            return []
        raise
    undo.close_ledger(caller(run.api), NAMESPACE, run.id, "runner", run.restored, left)
    return left


def _settle(run: Run, injection: Injection) -> tuple[list[str], list[str]]:
    if injection.settled or injection.plan.consequence is None:
        return [], []
    fault, landed = injection.plan.fault, injection.landed
    elapsed_s = time.monotonic() - landed.at_s if landed else 0.0
    seen = _reactions_seen(run, injection)
    settings = run.settings
    logger.info(
        "%s: seeing the platform's reaction through: up to %g s for it to come, %g s for the node to be given back",
        fault,
        round(max(0.0, settings.reaction_s - elapsed_s), 1),
        settings.uncordon_s,
    )
    restored, left = undo.settle(caller(run.api), NAMESPACE, run.id, fault, elapsed_s, seen, run.pause)
    run.restored += restored
    injection.settled = not left
    return restored, left


def _reactions_seen(run: Run, injection: Injection) -> list[str]:
    """List what the recorder saw the platform do since this fault landed: it may be over already.

    What it did before, to the same node perhaps, was about another fault.
    """
    landed = injection.landed
    if landed is None or run.recorder is None:
        return []
    record = intent.foreseen(run, injection.plan, landed)
    later = (each.object for each in list(run.recorder.changes) if each.at_s >= landed.at_s - landed.error_s)
    troubles = (reactions.trouble_of(node, record) for node in later)
    return list(dict.fromkeys(reactions.describe(trouble) for trouble in troubles if trouble))


def _await_reverter(run: Run) -> list[str]:
    """The reverter has taken over: wait for it to finish. Returns what remains. Raises ApiUnavailable."""
    entry = await_closed(run.api, run.id, run.settings)
    if entry is None or entry.state == CLOSED:
        return []
    return entry.open_items or [f"run {run.id} is still {state_of(entry)}: chaos-gpu recover {run.id}"]


def _undo_late(run: Run) -> list[str]:
    """Take back what was on its way when the reverter took over, and arrived after it. Returns what remains."""
    return undo.undo(caller(run.api), NAMESPACE, run.id, again=True)[1]
