"""Actions: fake Xid records."""

from typing import Any, Dict

from chaos_gpu.errors import UsageError
from chaos_gpu.faults import engine
from chaos_gpu.faults.run import armed_run

__all__ = ["inject_xid"]


def inject_xid(
    configuration: Dict[str, Any],
    fault: str,
    code: int,
    form: str = "process",
    node: str = "",
    gpu: str = "",
    transport: str = "",
) -> Dict[str, Any]:
    """Write one fake Xid record to a GPU node's kernel log, and prove by reading it back that it landed.

    A kernel record has no undo. What the platform does about it (condition, cordon) is foreseen in the run's ledger
    and seen through by `recovered`.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        code: an Xid code of NVIDIA's catalogue.
        form: `process` (with pid and name) or `plain` (without).
        node: a GPU node, "" for one that the guard chose under the run's seed.
        gpu: index, UUID or PCI address, "" for one that the guard chose.
        transport: `kmsg` (for readers of raw records) or `bracket` (with a time in front, for the journal's readers),
            "" for the one that the target's detectors read. Only those who can see the record are judged by it.

    Returns: {fault, node, gpu, pci, seq, text, error_s}: where the record landed and how well its time is known.
    Raises: NotLanded when it was not read back, TargetError when the target is not fit any more.
    """
    run = armed_run(configuration)
    plan = run.plans.get(fault)
    if plan is None:
        raise UsageError(f"fault {fault!r} is not in the guard's plan", remedy="name it in the method itself")
    landed = engine.inject(run, plan).landed
    assert landed is not None  # noqa: S101 - inject raises otherwise
    where = {"node": landed.node, "gpu": landed.gpu_uuid, "pci": landed.pci, "seq": landed.seq}
    return {"fault": fault, **where, "text": landed.text, "error_s": round(landed.error_s, 6)}
