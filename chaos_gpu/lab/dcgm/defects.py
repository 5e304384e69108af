"""Which of the planted defects concern a program of DCGM's; as the platform's file says, read when asked."""

import json
import os
from pathlib import Path


def planted(name: str, component: str = "dcgm") -> bool:
    """Whether a defect is planted in a component of this lab."""
    path = os.environ.get("LAB_PLATFORM_FILE", "")
    if not path:
        return False
    facts = json.loads(Path(path).read_text(encoding="utf-8"))
    return f"{component}-{name}" in facts.get("defects", ())
