"""JSON as an API server's own code writes it. Sent into pods beside what uses it; the runner's client does, too."""

import json
import re
from typing import Any


def encoded(body: Any) -> bytes:
    """Write JSON as Go does: the API server's `test` of a JSON patch compares texts as they are written.

    Go escapes <, >, & and two line separators, and no other character that is not of control.
    """
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    escaped = re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)
    return escaped.encode(errors="backslashreplace")
