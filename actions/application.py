"""Actions: faults of an application of our own, which the driver itself reports."""

from typing import Any, Dict

from chaos_gpu.faults.engine import inject_planned
from chaos_gpu.faults.run import armed_run

__all__ = ["raise_application_xid"]


def raise_application_xid(
    configuration: Dict[str, Any], fault: str, code: int = 31, node: str = "", gpu: str = ""
) -> Dict[str, Any]:
    """Make the NVIDIA driver itself report an application Xid, by a process of ours that faults on a GPU of its own.

    Needs a free GPU on the node, and an image with python3 and glibc. The record is the driver's, known by the name of
    the process, and stays in the log; the process has ended. What the platform does about it is foreseen in the run's
    ledger and seen through by `recovered`. One such fault is up to three records, and one incident.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        code: 31 (a store where no memory is), 13 (a store to an odd address) or 43 (a trap).
        node: a GPU node, "" for one that the guard chose under the run's seed.
        gpu: index, UUID or PCI address of the GPU that the device plugin must give, "" for any.

    Returns: {fault, node, gpu, pci, seq, text, records, cuda_error, error_s}: what the driver wrote, what CUDA said,
        and how well the time of the first record is known.
    Raises: NotLanded when the driver did not report our process, or nothing was done since others use the GPU;
        TargetError when the target is not fit any more.
    """
    landed = inject_planned(armed_run(configuration), fault)
    where = {"node": landed.node, "gpu": landed.gpu_uuid, "pci": landed.pci, "seq": landed.seq}
    said = {key: landed.evidence[key] for key in ("text", "records", "cuda_error")}
    return {"fault": fault, **where, **said, "error_s": round(landed.error_s, 6)}
