"""The part of JSONPath that printer columns use: fields, indices, `[?(@.type=="Ready")]`. Pure."""

import re
from typing import Any

_STEP = re.compile(
    r"""\.?(?P<field>(?:[^.\[\]\\]|\\.)+)
      | \[(?P<index>-?\d{1,9})\]
      | \[['"](?P<quoted>[^'"]*)['"]\]
      | \[\?\(@\.(?P<key>[^=\s]+)\s*==\s*(?P<value>[^\]]*?)\s*\)\]
      | \[(?P<all>\*)\]""",
    re.VERBOSE,
)


def find(obj: Any, path: str) -> Any:
    """Return the first value at that path, or None: also for a path that is not understood."""
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or obj is None:
            return None
        obj = _step(obj, match)
        at = match.end()
    return obj


def _step(obj: Any, match: re.Match[str]) -> Any:
    name = match["field"] or match["quoted"]
    if name:
        return obj.get(re.sub(r"\\(.)", r"\1", name)) if isinstance(obj, dict) else None
    if not isinstance(obj, list):
        return None
    if match["index"] or match["all"]:
        index = int(match["index"] or 0)
        return obj[index] if -len(obj) <= index < len(obj) else None
    wanted = match["value"].strip("\"'")
    return next((item for item in obj if isinstance(item, dict) and str(item.get(match["key"])) == wanted), None)
