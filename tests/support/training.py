"""The lab's training job as a plain process, without a lab."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from chaos_gpu.lab.trainer.manifest import trainer_source
from chaos_gpu.payloads.freezer import MARK, STORE

Process = subprocess.Popen[str]


class Trainer:
    """Starts the training on one store, as often as wanted."""

    def __init__(self, directory: Path, mark: str = "test", defects: tuple[str, ...] = (), **settings: str) -> None:
        self.store, self.mark = directory / "store", mark
        self._program, self._platform = directory / "trainer.py", directory / "platform.json"
        self._program.write_text(trainer_source())
        self._platform.write_text(json.dumps({"defects": [f"trainer-{each}" for each in defects]}))
        self.environment = {
            **os.environ,
            MARK: mark,
            STORE: str(self.store),
            "CHECKPOINT_DIR": str(self.store),
            "LAB_PLATFORM_FILE": str(self._platform),
            **settings,
        }

    def start(self) -> Process:
        """Start it; the caller reads its log from `stdout`."""
        self.store.mkdir(exist_ok=True)
        command = [sys.executable, "-ISB", str(self._program)]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self) -> tuple[int, list[dict[str, Any]]]:
        """Run it to its end; return exit code and log."""
        process = self.start()
        out, _ = process.communicate(timeout=60)
        return process.returncode, list(map(json.loads, out.splitlines()))


def losses(log: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    return [(line["step"], line["loss"], line["lr"]) for line in log if "loss" in line]


def event(log: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(line for line in log if line.get("event") == name)
