"""JSON as an API server's own code writes it. A part of each program that is one file; the judge has its own."""

import json
import re
from typing import Any


def encoded(body: Any) -> bytes:
    """Write JSON as Go does: the API server's `test` of a JSON patch compares texts as they are written."""
    text = json.dumps(body, ensure_ascii=False)
    escaped = re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)
    return escaped.encode(errors="backslashreplace")
