"""How payloads speak: one JSON object a line, on standard output."""

import datetime
import json
from typing import Any


def say(event: str, **facts: Any) -> None:
    """Print one event; a reader follows this log line by line."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
    print(json.dumps({"event": event, "at": now, **facts}), flush=True)
