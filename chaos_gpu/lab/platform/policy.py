"""The platform's policy and its planted defects, as the file that the lab writes for it (`platform.json`).

Codes follow the resolution buckets of NVIDIA's Xid catalog: what only asks for the application to be restarted or may
be ignored keeps the node; everything else takes it out of service, and so does a code that nobody knows.
"""

from collections.abc import Sequence
from typing import Any

POLICY: dict[str, Any] = {
    "source": "NVIDIA Xid Catalog, immediate action buckets (workbook of the deployment guide, codes 1-172)",
    "fatal": [
        *(46, 48, 54, 62, 64, 74, 78, 79, 95, 109, 110, 119, 120, 136, 140, 142, 143),
        *(*range(144, 152), 154, 155, 156, 158),
    ],
    "application": [
        *(8, 11, 13, 14, 25, 31, 32, 37, 38, 39, 40, 41, 43, 44, 45, 60, 63, 66, 67, 68, 69, 70, 71, 72),
        *(75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 92, 93, 94, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105),
        *(106, 107, 108, 121, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 137, 139, 141, 152, 153, 157, 160, 161),
    ],
}


def platform_file(defects: Sequence[str], cordon_s: float, returned_by: str = "gpu-health-agent") -> dict[str, Any]:
    """Return the content of platform.json.

    Args:
        defects: what is planted.
        cordon_s: the cordon limit that slow defects overrun, seconds.
        returned_by: who returns a node that the detector cordoned: the detector, or the health policy after r3.
    """
    facts = {"policy": POLICY, "cordon_s": cordon_s, "return_after_s": 1.0, "returned_by": returned_by}
    return {**facts, "defects": list(defects)}
