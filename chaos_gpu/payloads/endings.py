"""How a pod of ours ended: what it was, and whether it could undo its fault."""

from typing import Any, Dict

NOT_UNDONE = 4
"""Exit code of an injector that could not undo its fault."""


def role_of(metadata: Dict[str, Any]) -> str:
    """Say what a pod of ours is."""
    return str((metadata.get("labels") or {}).get("chaos-gpu/role", "injector"))


def could_not_undo(pod: Dict[str, Any]) -> bool:
    """Say whether a pod is an injector that has ended with the exit code for that."""
    states = [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]
    codes = [(state.get("terminated") or {}).get("exitCode") for state in states]
    return role_of(pod["metadata"]) == "injector" and NOT_UNDONE in codes
