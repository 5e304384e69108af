"""What a detector of the platform does about a code, and which defects are planted in it. Stdlib only.

A part of the agents' single file; see `agent_source` in `manifests`.
"""

import json
import re
from pathlib import Path
from typing import Any

from chaos_gpu.lab.platform.records import Xid

AGENT = "gpu-health-agent"
RECOVERED = re.compile(r"GPU recovery action changed from .* to 0x0 \(None\)")


class Policy:
    """What to do about a code, and which defects are planted; follows the platform file."""

    def __init__(self, path: str, component: str = "detector") -> None:
        self._path = Path(path) if path else None
        self._component = component
        self._changed = 0
        self._facts: dict[str, Any] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the file again if it has changed; a file that is being written is read next time."""
        try:
            changed = self._path.stat().st_mtime_ns if self._path else 0
            if self._path and changed != self._changed:
                self._facts = json.loads(self._path.read_text())
                self._changed = changed
        except (OSError, ValueError):
            return

    def has(self, defect: str) -> bool:
        """Whether a defect is planted in this agent."""
        return f"{self._component}-{defect}" in self._facts.get("defects", ())

    def seconds(self, name: str, default: float) -> float:
        """Return a time of the policy."""
        return float(self._facts.get(name, default))

    def replays(self) -> bool:
        """Whether a new process reads the log from its beginning, as a reader of the real device does."""
        return bool(self._facts.get("replays_log"))

    def returns_nodes(self) -> bool:
        """Whether this detector returns what it cordoned; else somebody does who diagnoses the node first."""
        return bool(self._facts.get("returned_by", AGENT) == AGENT)

    def is_fatal(self, xid: Xid) -> bool:
        """Whether the node must go; unknown codes count as fatal."""
        if xid.kind == "SXid":
            return xid.fatal
        if xid.code == 13 and self.has("cordons-13"):
            return True
        if xid.code == 154 and RECOVERED.search(xid.record.text):
            return False
        policy = self._facts.get("policy", {})
        if self.has("unknown-harmless"):
            return xid.code in policy.get("fatal", (48, 74, 79))
        return xid.code not in policy.get("application", (13, 31, 43))

    def overlooks(self, xid: Xid) -> bool:
        """Whether a planted defect keeps a fault from being seen."""
        blind_to_form = " GPU-I:" in xid.record.text and self.has("blind-to-mig")
        return blind_to_form or (xid.code == 74 and self.has("ignores-74"))
