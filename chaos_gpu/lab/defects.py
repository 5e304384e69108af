"""The planted defects: what each changes in the platform, and which criteria must notice.

A defect changes only behaviour that a real client can see. Components can be left out instead (`--without`).
"""

from typing import NamedTuple


class Defect(NamedTuple):
    """One switch of the platform."""

    name: str
    component: str
    changes: str
    """What the component does differently, in one line."""
    criteria: tuple[str, ...]
    """Ids of the criteria that fail under it."""


DEFECTS: tuple[Defect, ...] = (
    Defect("detector-ignores-74", "detector", "does not react to Xid 74", ("DEV-02", "DEV-06", "DEV-07")),
    Defect("detector-cordons-13", "detector", "treats Xid 13 as fatal and cordons the node", ("DEV-06",)),
    Defect("detector-slow", "detector", "reacts at 1.5 times the cordon limit", ("DEV-07",)),
    Defect(
        "detector-cordons-wrong-node",
        "detector",
        "cordons another node than the one with the Xid",
        ("DEV-02", "DEV-06"),
    ),
    Defect("detector-never-returns", "detector", "does not return the node it has cordoned", ()),
    Defect(
        "detector-never-cordons", "detector", "sets the condition but never cordons", ("DEV-02", "DEV-06", "DEV-07")
    ),
    Defect(
        "detector-cordons-and-uncordons", "detector", "uncordons and clears the condition at once", ("DEV-02", "DEV-06")
    ),
    Defect(
        "detector-misses-every-second",
        "detector",
        "overlooks every second fatal record",
        ("DEV-02", "DEV-06", "DEV-07"),
    ),
    Defect("detector-unknown-harmless", "detector", "leaves a node alone on a code that nobody knows", ("DEV-06",)),
    Defect("detector-blind-to-mig", "detector", "does not see records that name a MIG instance", ("DEV-06",)),
)

COMPONENTS: dict[str, str] = {
    "detector": "the gpu-health-agent DaemonSet: reads kernel logs, cordons and returns nodes; and the journal's",
    "journal": "the gpu-journal-watch DaemonSet: reads what the journal shows, and only tells",
}
"""What `--without` can leave out."""


def unknown_defects(names: tuple[str, ...]) -> list[str]:
    """Return the names that are no defect."""
    known = {defect.name for defect in DEFECTS}
    return [name for name in names if name not in known]
