"""DCGM's actions in words: what each means, and what to do first."""

from typing import NamedTuple

from chaos_gpu.criteria.dcgm.report import Action, Report, Says


class Advice(NamedTuple):
    """One action, for whoever was woken up."""

    meaning: str
    first: str


_GUIDE = {
    Action.ISOLATE: Advice(
        "take the node out of service", "cordon and drain it, keep it out; run r3, then open a case with the vendor"
    ),
    Action.RESET: Advice(
        "reset the GPU", "cordon the node, let its jobs end, then nvidia-smi --gpu-reset; run r2 before it takes work"
    ),
    Action.TRIAGE: Advice("find out what is wrong", "cordon the node, let its jobs end, read the errors, then run r3"),
    Action.CONFIG: Advice(
        "correct the node's configuration", "read the errors, correct it, then run the same level again"
    ),
    Action.MONITOR: Advice("keep watching", "somebody confirms the node before it takes work; run r2 again soon"),
}
_NOTHING = Advice("nothing to do", "what was tested is in order")
_AGAIN = Advice("run it again", "nothing is shown either way: do not let the node take work on this")


def advice_for(report: Report) -> Advice:
    """Return a report's action in words."""
    nothing = _NOTHING if report.verdict is Says.PASS else _AGAIN
    return _GUIDE.get(report.action, nothing)
