"""The payload that kills a training in the middle of a save, as the node runs it: one file, one process."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaos_gpu.faults.pods import payload_source

SPEC = {"phase": "data", "fraction": 0.5, "means": "freeze", "attempts": 1000, "wait_s": 80, "deadline_s": 100}
STARTED: list[subprocess.Popen[str]] = []
"""Of the test that runs; ended after it."""


class Killer:
    """One run of the payload."""

    def __init__(self, directory: Path, env: dict[str, str] | None = None, **spec: Any) -> None:
        program, file = directory / "payload.py", directory / "spec.json"
        program.write_text(payload_source("save_killer"))
        file.write_text(
            json.dumps({**SPEC, "subject": "test", "reference": "", "namespace": "x", "grace_s": 5, **spec})
        )
        command = [sys.executable, "-I", str(program), "--spec", str(file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
        STARTED.append(self.process)

    def until(self, *names: str) -> dict[str, Any]:
        """Read events up to one of these."""
        for line in self.process.stdout or ():
            event: dict[str, Any] = json.loads(line)
            if event["event"] in names:
                return event
        raise AssertionError(f"it ended without {names}")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        return self.process.returncode
