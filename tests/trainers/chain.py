"""A real training that is killed again and again, as a chain: each start resumes, is seen to save, and is killed.

The killer is the payload as a node runs it, one file and one process for each kill. The training goes by the marks in
its environment alone. What each kill left is read before the next start.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from chaos_gpu.criteria.job.story import Attempt, Kill, Saved, Story
from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.freezer import MARK, STORE
from tests.support.killer import STARTED
from tests.support.killer import Killer as Payload

PYTHON = os.environ.get("CHAOS_GPU_TORCH_PYTHON", sys.executable)
PROGRAMS = Path(__file__).with_name("programs")
EVERY, FOREVER = 2, 100_000
SPEC = {"attempts": 12, "wait_s": 200, "deadline_s": 240}
SLOW = {"SLOW_MIB_PER_S": "24"}
Process = subprocess.Popen[bytes]


class Trainer:
    """Starts one program on one store, as often as wanted; each start has a log of its own."""

    def __init__(self, program: str, directory: Path, **settings: str) -> None:
        self.directory, self.store, self.mark = directory, directory / "checkpoints", f"real-{uuid4().hex}"
        self.store.mkdir(parents=True)
        self._program, self._settings = PROGRAMS / f"{program}.py", settings
        self.started: list[Process] = []

    def start(self, stop_at: int) -> Process:
        marks = {MARK: self.mark, STORE: str(self.store), "STOP_AT": str(stop_at)}
        log = self.log(len(self.started))
        with log.open("wb") as out, log.with_suffix(".err").open("wb") as err:
            command = [PYTHON, "-B", str(self._program)]
            environment = {**os.environ, **marks, **self._settings}
            process = subprocess.Popen(command, env=environment, stdout=out, stderr=err, cwd=self.directory)
        self.started.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.directory / f"start-{number}.log"

    def attempt(self, number: int) -> Attempt:
        """What one start logged."""
        return Attempt.of(self.log(number).read_text().splitlines(), self.started[number].poll())

    def run(self, stop_at: int, limit_s: float = 300.0) -> Attempt:
        """Start it once more and wait for its end, whatever that is."""
        self.start(stop_at).wait(timeout=limit_s)
        return self.attempt(len(self.started) - 1)

    def complaint(self) -> str:
        """The end of what the last start said on stderr."""
        return self.log(len(self.started) - 1).with_suffix(".err").read_text()[-2000:]

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()


class Killer(Payload):
    """One run of the payload, from before the training starts; it keeps what is said of saves."""

    def __init__(self, trainer: Trainer, **spec: Any) -> None:
        super().__init__(trainer.directory, **{**SPEC, "subject": trainer.mark, **spec})
        self.saved: list[Saved] = []
        self.until("started")

    def until(self, *names: str) -> dict[str, Any]:
        """Read up to one of these events; saves are kept."""
        while (event := super().until("saved", *names))["event"] not in names:
            self.saved.append(Saved.of(event))
        return event

    def leave(self) -> None:
        """Have it go, and take in what it still says."""
        self.process.terminate()
        out, _ = self.process.communicate(timeout=30)
        events = map(json.loads, out.splitlines())
        self.saved += [Saved.of(event) for event in events if event["event"] == "saved"]


@dataclass(frozen=True)
class Left:
    """What one kill left."""

    number: int
    evidence: dict[str, Any]
    store: dict[str, Any]

    @property
    def kill(self) -> Kill:
        return Kill.of(self.evidence)

    def verdict(self, name: str) -> str:
        """What the reader says of one member: yes, no, suspect; "gone" if there is none of that name."""
        return next((each["complete"] for each in self.store["members"] if each["name"] == name), "gone")


@dataclass
class Chain:
    """The kills of one training, and the saves seen meanwhile."""

    trainer: Trainer
    kills: list[Left] = field(default_factory=list)
    saves: list[Saved] = field(default_factory=list)
    _killer: Killer | None = None

    def kill(self, **spec: Any) -> Left:
        """Start the training, kill it in the middle of a save, and read what is left."""
        self._end_killer()
        self._killer = Killer(self.trainer, **spec)
        process = self.trainer.start(FOREVER)
        event = self._killer.until("landed", "failed")
        assert event["event"] == "landed", f"{event}\n{self.trainer.complaint()}"
        process.wait(timeout=30)
        number = len(self.trainer.started) - 1
        self.kills.append(Left(number, event["evidence"], inspect(str(self.trainer.store))))
        return self.kills[-1]

    def finish(self, saves: int = 2) -> Attempt:
        """Start it a last time; it ends by itself after so many more saves."""
        newest = self.kills[-1].kill.newest_step
        attempt = self.trainer.run((newest or 0) + saves * EVERY)
        self._end_killer()
        return attempt

    def _end_killer(self) -> None:
        if self._killer:
            self._killer.leave()
            self.saves += self._killer.saved
            self._killer = None

    def end(self) -> None:
        """End all that it started."""
        self.trainer.end()
        while STARTED:
            process = STARTED.pop()
            process.kill()
            process.communicate()

    def stories(self, reference: "Reference") -> Iterator[Story]:
        """What is known of each kill, for the judges; the last one has what came after it to the training's end."""
        numbers = [each.number for each in self.kills]
        attempts = map(self.trainer.attempt, range(len(self.trainer.started)))
        reference.reach(max(each.step for attempt in attempts for each in attempt.steps))
        for left, (number, then) in zip(self.kills, pairwise([*numbers, len(self.trainer.started) - 1]), strict=True):
            after = self.trainer.attempt(then)
            yield Story(
                kill=left.kill,
                before=self._before(number),
                after=(after,),
                restarts=1,
                failed="",
                finished=after.exit_code == 0,
                references=(reference.attempt_to(after),),
                saves=tuple(self.saves),
                reference_saves=reference.saves(),
            )

    def _before(self, number: int) -> Attempt:
        """Join what counts of the starts before with all of the one that was killed."""
        steps = {}
        for each in range(number + 1):
            attempt = self.trainer.attempt(each)
            first = attempt.steps[0].step if attempt.steps else FOREVER
            steps = {step: value for step, value in steps.items() if step < first}
            steps |= {step.step: step for step in attempt.steps}
        return Attempt(tuple(steps[each] for each in sorted(steps)))


class Reference:
    """The same training, left alone, at full speed, with all its checkpoints."""

    def __init__(self, program: str, directory: Path, **settings: str) -> None:
        self._make = lambda: Trainer(program, directory / f"{program}-{uuid4().hex}", KEEP="0", **settings)
        self.trainer: Trainer | None = None
        self.attempt = Attempt()
        self._saves: tuple[Saved, ...] = ()

    def reach(self, step: int, enough: int = 20) -> Self:
        """Run it up to a step, unless it came that far already."""
        if step > max((each.step for each in self.attempt.steps), default=0):
            self.remove()
            self.trainer = self._make()
            self.attempt = self.trainer.run(max(step, enough))
            assert self.attempt.exit_code == 0, self.trainer.complaint()
            self._saves = tuple(map(saved, inspect(str(self.trainer.store))["members"]))
        return self

    def attempt_to(self, other: Attempt) -> Attempt:
        """Its log as far as another start came."""
        last = max((each.step for each in other.steps), default=0)
        return Attempt(tuple(each for each in self.attempt.steps if each.step <= last))

    def saves(self) -> tuple[Saved, ...]:
        return self._saves

    def of_step(self, step: int | None) -> Path:
        assert self.trainer is not None
        members = inspect(str(self.trainer.store), deep=False)["members"]
        return self.trainer.store / next(str(each["name"]) for each in members if each["step"] == step)

    def remove(self) -> None:
        if self.trainer:
            self.trainer.end()
            shutil.rmtree(self.trainer.directory)


def saved(member: dict[str, Any]) -> Saved:
    """Read a member of a store as if its save had been watched."""
    return Saved.of({"checkpoint": member, "begun_ns": 0, "durable_ns": 0})
