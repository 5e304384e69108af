"""What a run has left: objects, marks and processes of ours, and what the platform did about them."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from tests.engine.site import Json, Site
from tests.lab.conftest import ApiError

OURS = "api/v1/namespaces/chaos-gpu"
CONDITION = "GpuXidError"
ATTRIBUTION = "gpu-health.lab/cordoned-by"
EXERCISE = "chaos-gpu/exercise"


@dataclass(frozen=True)
class Leftovers:
    """A look at the cluster.

    Attributes:
        changes: what we did to the cluster and is still there: injectors, marks on nodes, their processes.
        helpers: what undoes it and is still there: reverter, its Job, the Lease.
        reactions: what the platform did to nodes and has not taken back: (node, what).
        state: of the run's ledger, "" when there is none.
        open_items: what the ledger says remains.
    """

    changes: list[str]
    helpers: list[str]
    reactions: list[tuple[str, str]]
    state: str
    open_items: list[str]

    @property
    def ours(self) -> list[str]:
        return self.changes + self.helpers


def look(site: Site, run: str, processes: bool = False) -> Leftovers:
    """Look at everything. Processes are looked for when no object is left, or when asked for."""
    nodes, pods = site.items("api/v1/nodes"), site.items(f"{OURS}/pods")
    changes = [f"pod {_name(pod)}" for pod in pods if not _helps(pod)]
    changes += [f"mark on {_name(node)}" for node in nodes if EXERCISE in _annotations(node)]
    helpers = [f"pod {_name(pod)}" for pod in pods if _helps(pod)]
    helpers += [f"job {_name(job)}" for job in site.items("apis/batch/v1/namespaces/chaos-gpu/jobs")]
    leases = "apis/coordination.k8s.io/v1/namespaces/chaos-gpu/leases"
    helpers += [f"lease {_name(lease)}" for lease in site.items(leases)]
    if processes or not changes + helpers:
        changes += payload_processes(site)
    reactions = [(_name(node), what) for node in nodes for what in reactions_on(node)]
    state, open_items = "", []
    with contextlib.suppress(ApiError):
        ledger = site.ledger(run)
        state, open_items = ledger["state"], ledger.get("recovery", {}).get("open", [])
    return Leftovers(changes, helpers, reactions, state, open_items)


def reactions_on(node: Json) -> list[str]:
    """List what a node of a healthy lab would not have."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    found = ["cordon"] if node["spec"].get("unschedulable") else []
    found += [f"taint {each['key']}" for each in node["spec"].get("taints") or ()]
    found += ["attribution"] if ATTRIBUTION in _annotations(node) else []
    return found + [each["type"] for each in conditions if each["type"] == CONDITION and each["status"] == "True"]


def payload_processes(site: Site) -> list[str]:
    """List the processes of this lab that run one of our payloads."""
    mark, found = f"CHAOS_GPU_LAB={site.lab.facts['mark']}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                if b"payload.py" in command and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(f"process {entry.name}")
    return found


def named_exactly(left: Leftovers) -> list[str]:
    """Say where a stuck ledger's list of what remains differs from what does remain."""
    unnamed = [f"{node} {what}" for node, what in left.reactions if not _named(node, what, left)]
    there = {node for node, _ in left.reactions}
    untrue = [item for item in left.open_items if not any(node in item for node in there)]
    return [f"the ledger does not name: {each}" for each in unnamed] + [f"is not there: {each}" for each in untrue]


def _named(node: str, what: str, left: Leftovers) -> bool:
    return any(node in item and (what in item or what == "attribution") for item in left.open_items)


def _helps(pod: Json) -> bool:
    return (pod["metadata"].get("labels") or {}).get("chaos-gpu/role") != "injector"


def _name(found: Json) -> str:
    return str(found["metadata"]["name"])


def _annotations(found: Json) -> Json:
    annotations: Json = found["metadata"].get("annotations") or {}
    return annotations
