"""What to do about one event: NVIDIA's bucket, and the action that its workflow comes to for this record.

Source: NVIDIA's Xid catalogue workbook; the driver's `gpu.c` for the recovery actions of Xid 154. Whatever is not
known, for lack of a bucket, of a rule, or of readable text, means `CONTACT_SUPPORT`.
"""

import re
from functools import lru_cache

from chaos_gpu.criteria.xid.catalog import CONTACT_SUPPORT, catalogue
from chaos_gpu.criteria.xid.nvlink5 import NO_RULE, Resolution

IGNORE, RESET_GPU, RESTART_APP = "IGNORE", "RESET_GPU", "RESTART_APP"
DRAIN_AND_RESET = "DRAIN_AND_RESET"

RECOVERY = {
    0: ("None", "NONE"),
    1: ("GPU Reset Required", RESET_GPU),
    2: ("Node Reboot Required", "RESTART_BM"),
    3: ("Drain P2P", "DRAIN_P2P"),
    4: ("Drain and Reset", DRAIN_AND_RESET),
    5: ("Recover IMEX Domain", "RECOVER_IMEX_DOMAIN"),
}
"""The driver's recovery actions by number: its name, and ours in the style of NVIDIA's buckets."""

_CHANGE = re.compile(
    r"GPU recovery action changed from 0x(?P<old>[0-9a-f]{1,8}) \([^()]{0,64}\) to "
    r"0x(?P<new>[0-9a-f]{1,8})(?![0-9a-f])(?: \((?P<name>[^()]{0,64}))?",
    re.ASCII,
)
_SYMPATHETIC = re.compile(r"caused by previous Xid [1-9][0-9]{0,4}(?![0-9])", re.ASCII)


@lru_cache(maxsize=4096)
def bucket_of(code: int) -> str | None:
    """Return NVIDIA's immediate bucket of an Xid; None for an unknown code and one without a published bucket."""
    row = catalogue().get(code)
    return row.bucket or None if row else None


def action_of(code: int, text: str, resolution: Resolution | None) -> str:
    """Return what to do about one Xid, seen by itself."""
    bucket = bucket_of(code)
    match bucket:
        case None:
            return CONTACT_SUPPORT
        case "WORKFLOW_XID_48":  # with 63 or 64 beside it: drain first; that is for who sees the whole incident
            return RESET_GPU
        case "WORKFLOW_XID_45":
            return IGNORE if _SYMPATHETIC.search(text) else RESTART_APP
        case "WORKFLOW_NVLINK5_ERR":
            known = resolution is not None and resolution.action != NO_RULE
            return resolution.action if resolution and known else CONTACT_SUPPORT
        case "XID_154":
            return recovery_action(text)
        case _:
            return bucket


def recovery_action(text: str) -> str:
    """Return the action that an Xid 154 now asks for; number and name must agree, a name may be cut off."""
    match = _CHANGE.match(text)
    known = RECOVERY.get(int(match["new"], 16)) if match else None
    if match is None or known is None or not known[0].startswith(match["name"] or ""):
        return CONTACT_SUPPORT
    return known[1]
