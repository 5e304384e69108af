"""The training job's program: train, save every few steps, log each step, resume where the last run was interrupted.

Environment: CHECKPOINT_DIR; STEPS; INPUTS, how wide the network is; SAVE_EVERY, KEEP (checkpoints kept); STEP_S and
SAVE_S, how long a step and a save are to take, in seconds; LAB_PLATFORM_FILE, whose planted defects begin with
`trainer-`. On stdout one JSON object a line: `{"step", "loss", "lr", "at"}` for each step, else
`{"event": resumed|saving|saved|stopping|finished, …}`. `at` is CLOCK_MONOTONIC in seconds. On SIGTERM it saves at the
end of the step and exits 143. Stdlib only; `trainer_source` in `manifest` makes one file of this package.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from chaos_gpu.lab.trainer.model import COMPONENTS, INPUTS, Json, Training
from chaos_gpu.lab.trainer.store import Store

PREEMPTED = 143
SLOW = 3
"""A slow save takes so many times as long as it should."""


def say(**facts: Any) -> None:
    """Log one line."""
    sys.stdout.write(json.dumps({**facts, "at": time.monotonic()}) + "\n")
    sys.stdout.flush()


def planted() -> frozenset[str]:
    """Return the names of this job's planted defects."""
    try:
        platform = json.loads(Path(os.environ["LAB_PLATFORM_FILE"]).read_text(encoding="utf-8"))
    except (KeyError, OSError):
        return frozenset()
    return frozenset(name for name in platform["defects"] if name.startswith("trainer-"))


class Job:
    """One run of the job, from its start or from a checkpoint to the end of the training."""

    def __init__(self, environment: dict[str, str], defects: frozenset[str]) -> None:
        """Read the settings."""
        self._defects = defects
        self._every = int(environment.get("SAVE_EVERY", "4"))
        self._step_s, self._save_s = (float(environment.get(name, "0")) for name in ("STEP_S", "SAVE_S"))
        self._training = Training(int(environment.get("STEPS", "24")), int(environment.get("INPUTS", str(INPUTS))))
        self._store = Store(Path(environment["CHECKPOINT_DIR"]), int(environment.get("KEEP", "2")), defects)
        self._saves, self._stopping, self._resumed = 0, False, False

    def run(self) -> int:
        """Train to the end, or until told to stop; return the exit code."""
        signal.signal(signal.SIGTERM, self._stop)
        self._resume()
        training = self._training
        while training.step < training.steps and not self._stopping:
            begun_s = time.monotonic()
            facts = training.advance()
            time.sleep(max(0.0, begun_s + self._step_s - time.monotonic()))
            if "trainer-loss-jumps" in self._defects and self._resumed:
                facts["loss"] *= 10
            say(**facts)
            if training.step % self._every == 0 or training.step == training.steps or self._stopping:
                self._save()
        say(event="stopping" if self._stopping else "finished", step=training.step)
        return PREEMPTED if self._stopping else 0

    def _stop(self, _number: int, _frame: object) -> None:
        if "trainer-ignores-sigterm" not in self._defects:
            self._stopping = True

    def _resume(self) -> None:
        found = None if "trainer-restarts-at-zero" in self._defects else self._store.newest()
        if found is None:
            return
        self._resumed = True
        self._training.restore(found.state)
        step = self._training.step
        self._training.step = step + ("trainer-skips" in self._defects) - ("trainer-repeats-a-step" in self._defects)
        if "trainer-resets-lr" in self._defects:
            self._training.scheduled = 0
        say(event="resumed", source=found.name, step=step)

    def _save(self) -> None:
        state: Json = self._training.state()
        for component in COMPONENTS:
            if f"trainer-drops-{component}" in self._defects:
                del state[component]
        self._saves += 1
        slow = "trainer-saves-slowly" in self._defects and self._saves > 2
        begun_s = time.monotonic()
        say(event="saving", step=state["step"])
        name = self._store.save(state, self._save_s * (SLOW if slow else 1))
        say(event="saved", step=state["step"], name=name, blocked_s=round(time.monotonic() - begun_s, 6))


if __name__ == "__main__":
    sys.exit(Job(dict(os.environ), planted()).run())
