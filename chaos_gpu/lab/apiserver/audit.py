"""The audit log: one JSON line per finished request that changed something, and per list and watch.

`at` and `monotonic` are taken when the change is stored, so that reactions can be timed against this file.
"""

import json
from pathlib import Path
from typing import IO

from chaos_gpu.lab.apiserver.calls import Call
from chaos_gpu.lab.apiserver.clock import Stamp, rfc3339_micro

_READS = frozenset({"list", "watch"})


class AuditLog:
    """Appends to a file; without a path it writes nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file: IO[str] | None = path.open("a", encoding="utf-8") if path else None

    def write(self, call: Call, code: int, revision: str, moment: Stamp) -> None:
        """Log one request; changes are flushed at once, reads with the next change."""
        target = call.target
        if self._file is None or (call.verb == "get" and target.subresource != "exec"):
            return
        line = {
            "at": rfc3339_micro(moment.at),
            "monotonic": moment.monotonic,
            "verb": call.verb,
            "user": call.user.name,
            "userAgent": call.agent[:256],
            "group": target.group,
            "resource": target.plural,
            "subresource": target.subresource,
            "namespace": target.namespace,
            "name": target.name,
            "code": code,
            "resourceVersion": revision,
        }
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        if call.verb not in _READS:
            self._file.flush()

    def close(self) -> None:
        """Write out what is buffered, and close."""
        if self._file is not None:
            self._file.close()
            self._file = None
