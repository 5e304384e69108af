"""Actions: bad samples in DCGM's cache."""

from typing import Any, Dict

from chaos_gpu.faults.engine import inject_planned
from chaos_gpu.faults.run import armed_run

__all__ = ["inject_dcgm_error"]


def inject_dcgm_error(
    configuration: Dict[str, Any],
    fault: str,
    error: str = "",
    field: int = 0,
    value: str = "",
    allow_sticky: bool = False,
    node: str = "",
    gpu: str = "",
) -> Dict[str, Any]:
    """Put a bad sample for one GPU into its node's DCGM engine, prove that it is there, and keep it there.

    The engine's cache is changed and nothing else: neither GPU nor driver. The sample is renewed before it ages out;
    `revert`, or the injector's own end, puts back the value that was there. Needs a standalone engine (`nvidia-dcgm`).

    Args:
        configuration: the experiment's, given by Chaos Toolkit.
        fault: a name for it, unique in the experiment; probes, `revert` and `recovered` take the same.
        error: `double-bit-ecc`, `row-remap-failure`, `inforom`, `pcie-replay`, `power`, `thermal`, `nvlink` or `xid`;
            "" for a raw field.
        field: DCGM's number of a field, for a raw value; 0 with an error.
        value: a number, as text; "" for the error's own.
        allow_sticky: inject an Xid too, which the health watch keeps until the engine restarts.
        node: a GPU node, "" for one that the guard chose under the run's seed.
        gpu: index, UUID or PCI address, "" for one that the guard chose.

    Returns: {fault, node, gpu, pci, field, value, prior, text}: where it landed, and what was there before.
    Raises: NotLanded when introspection did not show it, TargetError when the target is not fit any more.
    """
    landed = inject_planned(armed_run(configuration), fault)
    what = {key: landed.evidence[key] for key in ("field", "value", "prior")}
    return {"fault": fault, "node": landed.node, "gpu": landed.gpu_uuid, "pci": landed.pci, **what, "text": landed.text}
