"""Actions in words: what each means, what to do first, and which of several is the gravest."""

from typing import NamedTuple


class Advice(NamedTuple):
    """One action, for whoever was woken up."""

    meaning: str
    first: str


GUIDE = {
    "NONE": Advice("nothing to do", "the driver says that the GPU has recovered"),
    "IGNORE": Advice("nothing to do to the GPU", "look for another Xid beside it, or for the fault in the application"),
    "RESTART_APP": Advice("restart the application", "read the application's log; the GPU itself needs nothing"),
    "XID_154_EVAL": Advice(
        "do what Xid 154 says", "find Xid 154 of this GPU in the same log; without one, watch the GPU"
    ),
    "CHECK_UVM": Advice("check unified memory and C2C", "drain the node, look for other records of the same time"),
    "UPDATE_SWFW": Advice("update software or firmware", "compare the host's and the guest's driver versions"),
    "WORKFLOW_NVLINK_ERR": Advice(
        "NVIDIA's NVLink workflow",
        "drain the node, reset the GPU; if it comes again, test cable and switch of the link",
    ),
    "RECOVER_IMEX_DOMAIN": Advice("recover the IMEX domain", "drain the domain's nodes, then restart its IMEX daemons"),
    "DRAIN_P2P": Advice("end peer-to-peer work", "let jobs that span GPUs end, then let the GPU recover"),
    "CONTACT_SUPPORT": Advice(
        "not known, or no action published: ask NVIDIA", "cordon the node, collect nvidia-bug-report.sh, open a case"
    ),
    "RESET_GPU": Advice("reset the GPU", "cordon the node, let its jobs end, then nvidia-smi --gpu-reset"),
    "DRAIN_AND_RESET": Advice("drain, then reset the GPU", "cordon and drain the node, then nvidia-smi --gpu-reset"),
    "RESTART_VM": Advice("restart the virtual machine", "cordon and drain the node, then restart it"),
    "RESTART_BM": Advice(
        "restart the machine", "cordon and drain the node, then reboot; if it comes again, the hardware"
    ),
    "CHECK_MECHANICALS": Advice(
        "check power cables and seating", "cordon and drain the node, then send somebody to it"
    ),
}
"""In order of gravity."""

_RANK = {action: rank for rank, action in enumerate(GUIDE)}


def gravity(action: str) -> int:
    """Return the rank of an action; one that is not in the table counts as the gravest."""
    return _RANK.get(action, len(_RANK))


def advice_for(action: str) -> Advice:
    """Return an action in words; of one that is not in the table, the careful ones."""
    return GUIDE.get(action, GUIDE["CONTACT_SUPPORT"])
