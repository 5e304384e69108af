"""The phases of a save, each met by the payload in front of a real process that holds it, and each missed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chaos_gpu.payloads.followed import Followed
from chaos_gpu.payloads.freezer import ENDED, MARK, STORE, Freezer, carriers_of, process_state
from chaos_gpu.payloads.phases import has_come, has_gone
from chaos_gpu.payloads.save_killer import Hunt
from chaos_gpu.payloads.store_watch import Save, StoreWatch
from tests.support.killer import SPEC, Killer

pytestmark = pytest.mark.timeout(120)
SAVER = """
import json, os, sys, time
from pathlib import Path
store, held, pause_s = Path(os.environ["CHAOS_GPU_STORE"]), json.loads(sys.argv[1]), float(sys.argv[2])
def hold(phase):
    time.sleep(held.get(phase, 0.0))
def put(path, data):
    beside = path.with_name(path.name + ".tmp")
    beside.write_bytes(data)
    hold(f"{path.name} beside")
    beside.replace(path)
for number in range(1, 1000):
    made = store / f"checkpoint-{number}"
    made.mkdir()
    for part in ("a", "b"):
        with (made / f"{part}.bin").open("wb", buffering=0) as file:
            for _ in range(8):
                file.write(bytes(65536))
                time.sleep(0.01)
    hold("sync")
    put(made / ".metadata", b"m" * 2000)
    hold("pointer")
    put(store / "latest", made.name.encode())
    old = store / f"checkpoint-{number - 2}"
    for path in sorted(old.glob("*.bin")):
        path.unlink()
        hold("retention")
    time.sleep(pause_s)
"""
MARKER, DATA = ".metadata", {"a.bin", "b.bin"}


class Saver:
    """A process that saves two shards, a marker, a pointer, and removes the shards of the checkpoint before last."""

    def __init__(self, directory: Path, held: dict[str, float], pause_s: float = 0.1) -> None:
        self.store, self.mark = directory / "store", f"saver-{uuid4().hex}"
        self.store.mkdir()
        environment = {**os.environ, MARK: self.mark, STORE: str(self.store)}
        command = [sys.executable, "-IS", "-c", SAVER, json.dumps(held), str(pause_s)]
        self.process = subprocess.Popen(command, env=environment)

    def files(self, checkpoint: int) -> set[str]:
        return {path.name for path in (self.store / f"checkpoint-{checkpoint}").glob("*")}

    @property
    def newest(self) -> int:
        """A directory without a file is no save yet."""
        return max(int(path.parent.name.split("-")[1]) for path in self.store.glob("checkpoint-*/*"))

    @property
    def pointed(self) -> int:
        return int((self.store / "latest").read_text().split("-")[1])


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[Callable[..., Saver]]:
    started: list[Saver] = []

    def start(held: dict[str, float], pause_s: float = 0.1) -> Saver:
        started.append(Saver(tmp_path, held, pause_s))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


def in_sync(saver: Saver) -> bool:
    return saver.files(saver.newest) == DATA


def in_commit(saver: Saver) -> bool:
    return saver.files(saver.newest) == {*DATA, MARKER + ".tmp"}


def in_pointer(saver: Saver) -> bool:
    return saver.files(saver.newest) == {*DATA, MARKER} and saver.pointed == saver.newest - 1


def in_retention(saver: Saver) -> bool:
    return saver.pointed == saver.newest and saver.files(saver.newest - 2) == {"b.bin", MARKER}


def in_step(saver: Saver) -> bool:
    return saver.pointed == saver.newest and saver.files(saver.newest) == {*DATA, MARKER}


PHASES: list[tuple[str, dict[str, float], Callable[[Saver], bool], bool]] = [
    ("sync", {"sync": 0.5}, in_sync, True),
    ("commit", {f"{MARKER} beside": 0.5}, in_commit, True),
    ("pointer", {"latest beside": 0.5}, in_pointer, False),
    ("retention", {"retention": 0.5}, in_retention, False),
    ("step", {}, in_step, False),
]


@pytest.mark.parametrize(("phase", "held", "is_in", "uncommitted"), PHASES, ids=[row[0] for row in PHASES])
def test_a_phase_is_met(
    tmp_path: Path,
    saver: Callable[..., Saver],
    phase: str,
    held: dict[str, float],
    is_in: Callable[[Saver], bool],
    uncommitted: bool,
) -> None:
    training = saver(held)
    killer = Killer(tmp_path, subject=training.mark, phase=phase)
    landed = killer.until("landed", "failed")
    assert landed["event"] == "landed", landed
    training.process.wait(10)
    assert training.process.returncode == -signal.SIGKILL
    assert is_in(training)
    assert (landed["evidence"]["phase"], landed["evidence"]["uncommitted"]) == (phase, uncommitted)
    assert killer.end() == 0


def test_between_two_saves_may_be_long(tmp_path: Path, saver: Callable[..., Saver]) -> None:
    """Longer than it takes to call a save ended: its files alone do not tell how long the pause is to be."""
    training = saver({}, pause_s=2.0)
    killer = Killer(tmp_path, subject=training.mark, phase="step")
    assert killer.until("landed", "failed")["event"] == "landed"
    training.process.wait(10)
    assert in_step(training)
    assert killer.end() == 0


@pytest.mark.parametrize(
    ("phase", "is_in"), [(row[0], row[2]) for row in PHASES[:4]], ids=[row[0] for row in PHASES[:4]]
)
def test_a_phase_that_nobody_holds_is_met_or_missed_and_never_mistaken(
    tmp_path: Path, saver: Callable[..., Saver], phase: str, is_in: Callable[[Saver], bool]
) -> None:
    training = saver({})
    killer = Killer(tmp_path, subject=training.mark, phase=phase, attempts=3, wait_s=5)
    said = killer.until("landed", "failed")
    if said["event"] == "landed":
        training.process.wait(10)
        assert is_in(training) or (phase == "retention" and not training.files(training.newest - 2) & DATA)
        assert killer.end() == 0
    else:
        assert process_state(training.process.pid) not in ("T", *ENDED), "it goes on"
        assert killer.end() == 3


# --- what a phase is, by a store of our own -------------------------------------------------------------------------


class Stored:
    """A store and a watch that has seen one save of it, and a look at each change, a tenth of a second apart."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_ns = root, 0
        root.mkdir()
        self.watch = StoreWatch(str(root))
        for number in (1, 2):
            self.begin(number)
            self.end(number)
        self.begin(3)

    def look(self) -> Save | None:
        self.now_ns += 100_000_000
        return self.watch.look(self.now_ns)

    def put(self, name: str, size: int) -> None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
        self.look()

    def begin(self, number: int) -> None:
        self.put(f"checkpoint-{number}/a.bin", 50_000)

    def data(self, number: int) -> None:
        self.put(f"checkpoint-{number}/b.bin", 50_000)

    def beside(self, number: int) -> None:
        self.put(f"checkpoint-{number}/.metadata.tmp", 1000)

    def commit(self, number: int) -> None:
        self.beside(number)
        made = self.root / f"checkpoint-{number}"
        (made / ".metadata.tmp").replace(made / ".metadata")
        self.look()

    def point(self, number: int) -> None:
        self.put("latest", number)

    def remove(self, number: int) -> None:
        (self.root / f"checkpoint-{number}" / "a.bin").unlink()
        self.look()

    def end(self, number: int) -> None:
        self.data(number)
        self.commit(number)
        self.point(number)

    def phases(self) -> set[str]:
        save = self.watch.current
        return {phase for phase in ("sync", "commit", "pointer", "retention") if has_come(phase, self.watch, save)}


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "store")


def test_a_save_goes_through_its_phases_in_order(stored: Stored) -> None:
    assert stored.phases() == set()
    stored.data(3)
    assert stored.phases() == {"sync"}
    stored.beside(3)
    assert stored.phases() == {"sync", "commit"}
    stored.commit(3)
    assert stored.phases() == {"pointer"}
    stored.point(3)
    assert stored.phases() == set()
    stored.remove(1)
    assert stored.phases() == {"retention"}
    stored.begin(4)
    assert stored.phases() == set(), "what an earlier save had removed is not of this one"


def test_what_is_removed_before_the_commit_is_not_removed_for_it(stored: Stored) -> None:
    stored.remove(1)
    stored.data(3)
    stored.commit(3)
    assert "retention" not in stored.phases()


def test_a_store_without_a_pointer_has_no_time_between_commit_and_pointer(tmp_path: Path) -> None:
    stored = Stored.__new__(Stored)
    stored.point = lambda number: None  # type: ignore[method-assign]
    Stored.__init__(stored, tmp_path / "store")
    stored.data(3)
    stored.commit(3)
    assert stored.phases() == set()


def test_nothing_has_come_before_one_save_was_seen(tmp_path: Path) -> None:
    watch = StoreWatch(str(tmp_path))
    assert not any(has_come(phase, watch, None) for phase in ("sync", "commit", "pointer", "retention", "step"))


MISSED: list[tuple[str, list[str], list[str], str]] = [
    ("data", [], ["data", "commit"], "the save had committed"),
    ("sync", ["data"], ["commit"], "the save had committed"),
    ("commit", ["data", "beside"], ["commit"], "the save had committed"),
    ("pointer", ["data", "commit"], ["point"], "the pointer had been written"),
    ("pointer", ["data", "commit"], ["point", "next"], "the save was over"),
    ("retention", ["data", "commit", "point", "removed"], ["next"], "the save was over"),
    ("step", ["data", "commit", "point"], ["next"], "a save had begun"),
]


@pytest.mark.parametrize(("phase", "before", "meanwhile", "why"), MISSED, ids=[f"{row[0]}-{row[3]}" for row in MISSED])
def test_what_had_gone_when_all_stood_is_missed_and_nobody_killed(
    tmp_path: Path, stored: Stored, phase: str, before: list[str], meanwhile: list[str], why: str
) -> None:
    def go(step: str) -> None:
        if step == "next":
            stored.begin(4)
        elif step == "removed":
            stored.remove(1)
        else:
            getattr(stored, step)(3)

    for each in before:
        go(each)
    seen = stored.watch.current
    assert has_gone(phase, stored.watch, seen) == "", "so far it would be met"
    stored.look = lambda: None  # type: ignore[method-assign] - what comes now is seen only when all stand still
    for each in meanwhile:
        go(each)
    mark = f"standing-{uuid4().hex}"
    with subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: mark}) as process:
        subject = Followed("subject", mark)
        subject.watch = stored.watch
        hunt = Hunt({**SPEC, "phase": phase, "record": 100_000}, subject, [])
        hunt.freezer = Freezer(lambda: carriers_of(MARK, mark))
        evidence: dict[str, Any] | None = hunt._try(stored.watch, seen)
        assert evidence is None
        assert [each["why"] for each in hunt.misses] == [why]
        assert Freezer._await(lambda: process_state(process.pid) == "S", 5), "it goes on"
        process.kill()
