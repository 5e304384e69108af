"""Actions on the run itself: hold, revert, recovered."""

from typing import Any, Dict

from chaos_gpu.faults import recovery
from chaos_gpu.faults.run import armed_run, current

__all__ = ["hold", "recovered", "revert", "revert_all"]


def hold(configuration: Dict[str, Any], seconds: float) -> Dict[str, Any]:
    """Keep the fault in place for some seconds; ends at once when the run is aborted, interrupted or lost.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        seconds: how long.
    """
    armed_run(configuration).pause(float(seconds))
    return {"held_s": float(seconds)}


def revert(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """Undo what one fault changed, and see it gone. Idempotent.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that it was injected under.

    Raises: NotRecovered with what remains.
    """
    return recovery.revert(armed_run(configuration), fault)


def recovered(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    """See the platform's reaction to one fault through to its end; restore the node if the platform does not.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: the name that it was injected under.

    Raises: NotRecovered with what remains.
    """
    return recovery.recovered(armed_run(configuration), fault)


def revert_all() -> Dict[str, Any]:
    """Undo everything that the run changed and settle every consequence, best effort. Meant for `rollbacks`.

    Without an armed run, or before anything was changed, it returns at once and contacts nothing.

    Returns: {restored, open}: what was undone, and what remains.
    """
    run = current()
    if run is None or not run.engaged:
        return {"restored": [], "open": []}
    restored, left = recovery.revert_all(run)
    return {"restored": restored, "open": left}
