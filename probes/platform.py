"""Probes of the steady state: the platform is healthy, and its promises hold."""

from typing import Any, Dict, List

from chaos_gpu.faults import steady
from chaos_gpu.faults.run import armed_run

__all__ = ["criteria_hold", "platform_ready"]


def platform_ready(configuration: Dict[str, Any]) -> Dict[str, Any]:
    """Say whether the GPU fleet is fit for the experiment, and afterwards whether it is as it was before.

    Before: there are GPU nodes, the targets are Ready and schedulable and offer all their GPUs. After: every node is
    as it was before, and no mark of the run is left. A steady-state probe: use `tolerance: 1`.

    Returns: {status: 1 or 0, verdicts, troubles}.
    """
    return steady.platform_ready(armed_run(configuration))


def criteria_hold(configuration: Dict[str, Any], criteria: List[str]) -> Dict[str, Any]:
    """Say whether criteria can be judged here (before the method), and whether each was judged pass (afterwards).

    A steady-state probe: use `tolerance: 1`.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        criteria: ids of the registry, such as DEV-02.

    Returns: {status: 1 or 0, verdicts}.
    """
    return steady.criteria_hold(armed_run(configuration), criteria)
