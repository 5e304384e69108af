"""Actions for the node health policy: a job of our own, and a node without the r2 that let it in."""

from typing import Any, Dict

from chaos_gpu.faults.engine import inject_planned
from chaos_gpu.faults.run import armed_run

__all__ = ["run_gpu_job", "withdraw_r2"]


def run_gpu_job(
    configuration: Dict[str, Any], fault: str, gpus: int = 1, node: str = "", gpu: str = ""
) -> Dict[str, Any]:
    """Run a job of our own that holds GPUs of the target node, until `revert` ends it.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        gpus: how many GPUs it asks for.
        node: a GPU node, "" for the one that the guard chose under the run's seed.
        gpu: as other faults take it; which GPU the job gets is the device plugin's to say.

    Returns: {fault, node, given}: where it runs, and the GPUs that it was given.
    Raises: NotLanded when it did not run, TargetError when the target is not fit any more.
    """
    landed = inject_planned(armed_run(configuration), fault)
    return {"fault": fault, "node": landed.node, "given": list(landed.evidence.get("given", []))}


def withdraw_r2(
    configuration: Dict[str, Any], fault: str, standing: str, node: str = "", gpu: str = ""
) -> Dict[str, Any]:
    """Let one idle node count as one that has no r2, or one that warned or failed, until `revert` gives it back.

    The mark that the platform keeps on the node is replaced (configuration `admission`); the diagnostic's own records
    are not touched.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        standing: `none`, `warn` or `fail`.
        node: a GPU node, "" for the one that the guard chose under the run's seed.
        gpu: as other faults take it; the whole node is meant.

    Returns: {fault, node, changed}: where, and what was changed.
    Raises: NotLanded when the mark was not as planned, TargetError when the target is not fit any more.
    """
    landed = inject_planned(armed_run(configuration), fault)
    return {"fault": fault, "node": landed.node, "changed": landed.text}
