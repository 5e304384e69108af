"""Actions: fake Xid and SXid records."""

from typing import Any, Dict

from chaos_gpu.faults.engine import inject_planned
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
    variant: str = "",
) -> Dict[str, Any]:
    """Write one fake Xid (or SXid) to a GPU node's kernel log, and prove by reading it back that it landed.

    A kernel record has no undo. What the platform does about it (condition, cordon) is foreseen in the run's ledger
    and seen through by `recovered`. A fault that drivers write in several records is several here too, one incident.

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        code: an Xid code of NVIDIA's catalogue; for form `sxid` an NVSwitch's.
        form: `process` (with pid and name), `plain` (without), `quoted-pid`, `comma-name`, `mig`, `no-pci`, `nvlink5`,
            `recovery`, `fallen`, `burst`, `sxid`; and what no driver writes: `long-domain`, `function`, `upper-case`.
        node: a GPU node, "" for one that the guard chose under the run's seed.
        gpu: index, UUID or PCI address, "" for one that the guard chose.
        transport: `kmsg` (for readers of raw records), `bracket` (with a time in front, for the journal's), `both`, ""
            for the one that the target's detectors read. Only those who can see the record are judged by it.
        variant: of the form: `mig` takes GPU and compute instance (`1/0`), `recovery` old and new action (`0-1`),
            `nvlink5` `ge_r575`, `lt_r575`, `cut`, `no-link` or `flagged`, `fallen` `xid`, `gpu` or `probe`.

    Returns: {fault, node, gpu, pci, seq, text, records, error_s}: where it landed and how well its time is known.
    Raises: NotLanded when it was not read back whole, TargetError when the target is not fit any more.
    """
    landed = inject_planned(armed_run(configuration), fault)
    where = {"node": landed.node, "gpu": landed.gpu_uuid, "pci": landed.pci, "seq": landed.seq}
    said = {"text": landed.text, "records": landed.evidence.get("records", [])}
    return {"fault": fault, **where, **said, "error_s": round(landed.error_s, 6)}
