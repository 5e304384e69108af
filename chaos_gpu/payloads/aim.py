"""When to strike, so that a writer that goes on meanwhile stops where it is meant to.

From the look that sees a writer to the moment in which it stands it goes on writing. How far, follows from its pace of
the last moment or that of the save before at this place, whichever is faster (a busy node lets it wait at times), and
from the time that the look and the stop take: all are measured. What a miss shows beyond that is learned from.
"""

from typing import Any, Dict

from chaos_gpu.payloads.store_watch import Learned

BEFORE = 0.75
"""So much of a write before the place: on average half of one is ended yet, and a strike is rather late than early."""
FORESEEN = 2
"""So many writes at most: where a look had to wait, what it saw looks faster than it was."""


class Aim:
    """A place in the bytes of a save, as the save before lets it be foreseen."""

    def __init__(self, spec: Dict[str, Any], learned: Learned) -> None:
        """Take the place from the spec's `bytes` or `fraction`; it is the end of the data for a phase after these.

        How near is near enough is said by its `record`. When a number of `files` is reached cannot be foreseen.
        """
        self.learned = learned
        asked = spec.get("bytes") or spec.get("fraction", 0.0) * learned.size
        self.wanted = float(asked if spec["phase"] == "data" else learned.data)
        self.record = int(spec.get("record") or learned.record_at(self.wanted))
        self.pace = 0.0 if spec.get("files") else learned.pace_at(self.wanted)

    def due(self, written: int, pace: float, ahead_s: float) -> bool:
        """Whether a strike that stops a writer `ahead_s` after it was seen, so fast, hits better than a later one."""
        further = min(max(pace, self.pace) * ahead_s, FORESEEN * self.record)
        return written + further + BEFORE * self.record >= self.wanted

    def left_s(self, written: int) -> float:
        """Return how long it takes a writer to get there, at the pace of the save before."""
        return max(0.0, self.wanted - written) / self.pace if self.pace else float("inf")

    def missed(self, written: int) -> str:
        """Say how far from the place a writer stands; "" if that is near enough."""
        over = written - self.wanted
        return (
            f"{over:+.0f} bytes from the place asked for, one write is {self.record}" if abs(over) > self.record else ""
        )

    def late_s(self, written: int) -> float:
        """Return how much earlier the next strike should be: half of what this one was late, as no two are alike."""
        return (written - self.wanted) / self.pace / 2 if self.pace else 0.0
