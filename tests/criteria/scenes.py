"""Small words to write timelines with: the record is at 100 s unless a test says otherwise."""

from typing import Any

from chaos_gpu.criteria.device import Landed, NodeState, Timeline

ZERO_S = 100.0
MARKER = "cgpu-0a1b2c3d"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
TEXT = f"NVRM: Xid (PCI:0000:3b:00): 48, An uncorrectable double bit error (DBE) {MARKER}"
HEALTHY = {"GpuXidError": ("False", "Healthy", "")}
SICK = {"GpuXidError": ("True", "Xid48", f"{TEXT} GPU_UUID:{UUID}")}
OURS = f'{{"detector": "gpu-health-agent", "record": "{TEXT}"}}'


def landed(**changes: Any) -> Landed:
    facts: dict[str, Any] = {
        "at_s": ZERO_S,
        "error_s": 0.0,
        "code": 48,
        "pci": "0000:3b:00",
        "gpu_uuid": UUID,
        "node": "n0",
        "node_uid": "u0",
        "marker": MARKER,
        "text": TEXT,
        "seq": 7,
    }
    return Landed(**{**facts, **changes})


def at(
    after_s: float,
    node: str = "n0",
    *,
    cordoned: bool = False,
    sick: bool = False,
    why: str = "",
    uid: str = "",
    conditions: dict[str, tuple[str, str, str]] | None = None,
) -> NodeState:
    """A node's state so many seconds after the record."""
    told = conditions if conditions is not None else SICK if sick else HEALTHY
    return NodeState(ZERO_S + after_s, node, uid or node.replace("n", "u"), not cordoned, told, why)


def timeline(
    *states: NodeState, until: float = 10.0, gaps: tuple[tuple[float, float], ...] = (), **facts: Any
) -> Timeline:
    """Both nodes are well 5 s before the record; then what is given, until so many seconds after it."""
    first = (at(-5, "n0"), at(-5, "n1"))
    moved = tuple((ZERO_S + start, ZERO_S + end) for start, end in gaps)
    return Timeline((*first, *states), ZERO_S + until, moved, **facts)
