"""Actions: interrupt a training where it hurts."""

from typing import Any, Dict

from chaos_gpu.faults.engine import inject_planned
from chaos_gpu.faults.run import armed_run

__all__ = ["kill_during_save", "preempt"]


def kill_during_save(
    configuration: Dict[str, Any],
    fault: str,
    phase: str = "data",
    fraction: float = 0.5,
    bytes: int = 0,
    files: int = 0,
    means: str = "freeze",
    node: str = "",
    gpu: str = "",
) -> Dict[str, Any]:
    """Start a training and a reference run of it, and kill the one in the middle of a save.

    The Job is made from the manifest that the configuration names (`job`, CHAOS_GPU_JOB). All its processes are
    stopped, the store is seen to hold a save that has not committed, and only then are they killed; a save that was
    missed is let go on, and the next one waited for. A killed process loses nothing that it had written: this tests the
    order of the writes, not their durability.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        phase: `data` (while it grows), `sync` (all bytes, no final name), `commit` (the last name is missing),
            `pointer` (the pointer is still the old one), `retention` (an old one is being removed). In the last two the
            save has committed: CKPT-01 cannot be judged by them, the others can.
        fraction: in phase data, the share of the bytes of the save before.
        bytes: instead of a fraction, so many bytes; 0 for none.
        files: instead of a fraction, so many files; 0 for none.
        means: `freeze` (all processes at one instant), `init` (the first, with its PID namespace), `rank` (one
            rank's process alone), or by the API: `delete`, `force`, `evict`. By the API it goes on until its grace is
            over and may commit: CKPT-01 cannot be judged, the others are by the store as its end left it.
        node: a GPU node, "" for one that the guard chose under the run's seed.
        gpu: for the budget of injections; "" for one that the guard chose.

    Returns: {fault, node, text, fraction, files, misses}: where it was killed.
    Raises: NotLanded when no save was caught, none was seen, or no training is given;
        TargetError when the target is not fit any more.
    """
    return _inject(configuration, fault)


def preempt(
    configuration: Dict[str, Any], fault: str, means: str = "evict", node: str = "", gpu: str = ""
) -> Dict[str, Any]:
    """Start a training and have the API server end its pod between two saves, with the pod's grace period.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        means: `evict`, `delete`, or `force` (the object goes at once; the old pod may still write next to the new one).
        node: a GPU node, "" for one that the guard chose under the run's seed.
        gpu: for the budget of injections; "" for one that the guard chose.

    Returns: {fault, node, text, fraction, files, misses}: when it was told to end.
    Raises: NotLanded when no save was seen first, or no training is given; TargetError when the target is not fit
        any more.
    """
    return _inject(configuration, fault)


def _inject(configuration: Dict[str, Any], fault: str) -> Dict[str, Any]:
    landed = inject_planned(armed_run(configuration), fault)
    shown = {key: landed.evidence.get(key) for key in ("fraction", "files", "misses")}
    return {"fault": fault, "node": landed.node, "text": landed.text, **shown}
