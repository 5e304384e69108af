"""The planted defects: what each changes in the platform, and which criteria must notice.

A defect changes only behaviour that a real client can see. Components can be left out instead (`--without`).
"""

from typing import NamedTuple

from chaos_gpu.lab.trainer.planted import COMPONENT, PLANTED


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
    Defect("dcgm-warn-as-fail", "dcgm", "dcgmi prints a warning as a failure", ("DEV-08",)),
    Defect("dcgm-paused-says-healthy", "dcgm", "the engine is paused and says Healthy", ("DEV-08",)),
    Defect("dcgm-truncated-json", "dcgm", "dcgmi diag -j is cut off and exits 0", ("DEV-08",)),
    Defect("exporter-not-updated", "exporter", "the exporter does not show what the engine holds", ("DEV-09",)),
    Defect("health-not-watched", "dcgm-agent", "nobody looks at what DCGM's health says", ("DEV-09",)),
    Defect("policy-admits-undiagnosed", "health-policy", "lets a node work that has no r2", ("DEV-01",)),
    Defect("policy-admits-warn", "health-policy", "lets a node work whose r2 warns, unconfirmed", ("DEV-01",)),
    Defect("policy-admits-failed", "health-policy", "lets a node work whose r2 failed", ("DEV-01",)),
    Defect("policy-returns-without-r3", "health-policy", "returns a node after an Xid without r3", ("DEV-03",)),
    Defect(
        "policy-returns-failed", "health-policy", "returns a node whose r3 failed; each has such a GPU", ("DEV-03",)
    ),
    Defect("policy-diagnoses-busy-node", "health-policy", "runs r3 while a job has GPUs", ("DEV-02", "DEV-03")),
    Defect("policy-skips-week", "health-policy", "leaves an idle node's r2 to get 8 days old", ("DEV-04",)),
    Defect("policy-never-diagnoses", "health-policy", "never runs r2 on one idle node", ("DEV-04",)),
    Defect("policy-record-without-uuid", "health-policy", "leaves the UUID out of a record", ("DEV-05",)),
    Defect("policy-record-wrong-action", "health-policy", "records the opposite of what it does", ("DEV-05",)),
    Defect("policy-record-lost", "health-policy", "keeps no record of one GPU", ("DEV-05",)),
    *(Defect(name, COMPONENT, changes, criteria) for name, changes, criteria in PLANTED),
)

COMPONENTS: dict[str, str] = {
    COMPONENT: "the manifest of a training job, in CHAOS_GPU_JOB: it trains, saves and resumes",
    "detector": "the gpu-health-agent DaemonSet: reads kernel logs, cordons and returns nodes; and the journal's",
    "health-policy": "the gpu-health-policy Deployment: r2 before work and weekly, r3 after an Xid, records",
    "journal": "the gpu-journal-watch DaemonSet: reads what the journal shows, and only tells",
    "dcgm-engine": "the standalone DCGM engines: the exporter has its embedded one, as by the operator's defaults",
    "dcgm-exporter": "the metrics exporters",
    "dcgm-agent": "the dcgm-health-agent: watches DCGM's health, cordons and returns nodes",
}
"""What `--without` can leave out."""


def unknown_defects(names: tuple[str, ...]) -> list[str]:
    """Return the names that are no defect."""
    known = {defect.name for defect in DEFECTS}
    return [name for name in names if name not in known]
