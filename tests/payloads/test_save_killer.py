"""The killer as the node runs it, one file, against the lab's training as a plain process."""

import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.eviction import remove_pod
from chaos_gpu.payloads.followed import Followed
from chaos_gpu.payloads.freezer import ENDED, MARK, Freezer, carriers_of, process_state
from chaos_gpu.payloads.save_killer import Hunt
from chaos_gpu.payloads.store_watch import StoreWatch
from tests.support.killer import SPEC, Killer
from tests.support.training import Process, Trainer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path, mark=f"test-{uuid4().hex}", SAVE_S="0.5", STEP_S="0.01")


@pytest.fixture
def training(trainer: Trainer) -> Iterator[Process]:
    trainer.environment["STEPS"] = "400"  # on a busy machine some saves are missed: there are always more
    process = trainer.start()
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.75])
def test_a_kill_lands_where_it_was_asked_for(
    tmp_path: Path, trainer: Trainer, training: Process, fraction: float
) -> None:
    killer = Killer(tmp_path, subject=trainer.mark, fraction=fraction)
    evidence = killer.until("landed", "failed").get("evidence")
    assert evidence
    training.communicate(timeout=10)
    assert training.returncode == -signal.SIGKILL
    assert evidence["uncommitted"] is True
    assert evidence["dead"] is True
    (torn,) = evidence["files"]
    left = (trainer.store / torn).stat().st_size
    assert left == evidence["written_bytes"]
    assert abs(left - fraction * evidence["expected_bytes"]) <= evidence["record_bytes"]
    assert not zipfile.is_zipfile(trainer.store / torn)
    newest = evidence["store"]["newest_complete"]
    assert newest == inspect(str(trainer.store))["newest_complete"]
    assert evidence["store"]["newest_step"] < int(torn.split("-")[1].split(".")[0])
    assert killer.end() == 0


def test_what_is_saved_after_a_restart_is_reported(tmp_path: Path, trainer: Trainer, training: Process) -> None:
    killer = Killer(tmp_path, subject=trainer.mark)
    landed = killer.until("landed")
    training.communicate(timeout=10)
    again = trainer.start()
    try:
        saved = killer.until("saved")
        while saved["begun_ns"] < landed["evidence"]["between_ns"][0]:
            saved = killer.until("saved")
    finally:
        again.kill()
        again.communicate()
    assert saved["checkpoint"]["complete"] == "yes"
    assert saved["checkpoint"]["state_crcs"]
    assert saved["durable_ns"] > saved["begun_ns"]
    assert saved["least"] >= 1
    assert killer.end() == 0


def test_a_save_that_is_too_quick_is_let_go_on(tmp_path: Path) -> None:
    """One write brings the last tenth of the file: no look sees 95 %, and nothing is killed."""
    trainer = Trainer(tmp_path, mark=f"quick-{uuid4().hex}", SAVE_S="0.2", STEPS="12")
    process = trainer.start()
    killer = Killer(tmp_path, subject=trainer.mark, fraction=0.97, record=1)
    assert killer.until("landed", "failed")["event"] == "failed"
    killer.process.communicate(timeout=10)
    process.communicate(timeout=30)
    assert process.returncode == 0, "it ran to its end"


def test_no_training_is_said(tmp_path: Path) -> None:
    killer = Killer(tmp_path, subject="nobody", wait_s=0.3)
    assert "no process of the training" in killer.until("failed")["reason"]
    killer.process.communicate(timeout=10)
    assert killer.process.returncode == 3


LAUNCHED = """
import os, subprocess, sys, time
from pathlib import Path
import trainer
role, again = sys.argv[1], [sys.executable, __file__]
if role == "launcher":
    subprocess.Popen([*again, "rank"], env={**os.environ, "RANK": "0"}).wait()
    time.sleep(60)
elif role == "rank":
    for step in range(4, 44, 4):
        subprocess.Popen([*again, str(step)]).wait()
else:
    training = trainer.Training(40)
    training.step = int(role)
    trainer.Store(Path(os.environ["CHECKPOINT_DIR"]), 9, frozenset()).save(training.state(), 1.2)
"""


def test_a_writer_that_outlives_its_rank_is_waited_for(tmp_path: Path, trainer: Trainer) -> None:
    """An asynchronous writer of its own process commits after the rank's death: that checkpoint counts."""
    program = tmp_path / "launched.py"
    program.write_text(LAUNCHED)
    trainer.store.mkdir()
    launcher = subprocess.Popen([sys.executable, str(program), "launcher"], env=trainer.environment)
    killer = Killer(tmp_path, subject=trainer.mark, means="rank")
    try:
        evidence = killer.until("landed", "failed").get("evidence")
        assert evidence
        assert evidence["uncommitted"] is True
        (torn,) = evidence["files"]
        assert len(evidence["pids"]) == 3
        assert evidence["orphans"] == evidence["pids"][-1:]
        assert evidence["store"]["newest_complete"] == torn.split(".tmp")[0]
        assert launcher.poll() is None, "only the rank was killed"
        assert killer.end() == 0
    finally:
        launcher.kill()
        launcher.wait()


def test_a_container_s_first_process_may_be_killed_alone(tmp_path: Path, trainer: Trainer, training: Process) -> None:
    killer = Killer(tmp_path, subject=trainer.mark, means="init")
    assert killer.until("landed", "failed")["evidence"]["pids"] == [training.pid]
    training.communicate(timeout=10)
    assert training.returncode == -signal.SIGKILL
    assert killer.end() == 0


class Evictions(BaseHTTPRequestHandler):
    """An API server that ends the training when its pod is evicted, as a kubelet would."""

    training: Process
    asked: list[str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(f"{self.path} {body['kind']} {self.headers['Authorization']}")
        self.training.send_signal(signal.SIGTERM)
        self.send_response(201)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        """Be silent."""


def test_a_preempted_training_is_watched_to_its_end(tmp_path: Path, trainer: Trainer) -> None:
    trainer.environment["CHAOS_GPU_POD"] = "pod-1"
    (tmp_path / "token").write_text("secret")
    training = trainer.start()
    handler = type("Handler", (Evictions,), {"training": training, "asked": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = {"KUBERNETES_API_URL": f"http://127.0.0.1:{server.server_port}", "SERVICEACCOUNT_DIR": str(tmp_path)}
        killer = Killer(tmp_path, {**os.environ, **where}, subject=trainer.mark, phase="step", means="evict")
        try:
            evidence = killer.until("landed", "failed").get("evidence")
            ended = killer.until("ended")
            training.communicate(timeout=10)
            assert killer.end() == 0
        finally:
            server.shutdown()
    assert evidence
    assert handler.asked == ["/api/v1/namespaces/x/pods/pod-1/eviction Eviction Bearer secret"]
    assert training.returncode == 143
    assert ended["ended_ns"] > evidence["between_ns"][0]
    assert ended["store"]["newest_step"] > evidence["store"]["newest_step"]


def test_a_hunt_that_is_told_to_go_leaves_at_once(tmp_path: Path, trainer: Trainer, training: Process) -> None:
    killer = Killer(tmp_path, subject=trainer.mark, fraction=0.97, record=1, attempts=1000, wait_s=60)
    killer.until("saved")
    assert killer.end() == 3
    assert process_state(training.pid) not in ("T", *ENDED)


class Standing:
    """A hunt in front of a real process and a store in the middle of a save."""

    def __init__(self, directory: Path, **spec: Any) -> None:
        self.store = directory / "store"
        self.store.mkdir()
        mark = f"standing-{directory.name}"
        self.process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: mark})
        subject = Followed("subject", mark)
        subject.watch = StoreWatch(str(self.store))
        for step in (4, 8):
            for size in (1000, 2000):
                (self.store / f"step-{step}.pt").write_bytes(b"x" * size)
                self.save = subject.look()
        (self.store / "step-12.pt").write_bytes(b"x" * 1000)
        self.save = subject.look()
        self.told: list[int] = []
        self.hunt = Hunt({**SPEC, "namespace": "x", "grace_s": 5, "fraction": 0.5, **spec}, subject, [], self.told)
        self.hunt.freezer = Freezer(lambda: carriers_of(MARK, mark))

    def strike(self) -> dict[str, Any] | None:
        assert self.hunt.subject.watch is not None
        return self.hunt._try(self.hunt.subject.watch, self.save)

    @property
    def state(self) -> str:
        return process_state(self.process.pid)


@pytest.fixture
def standing(tmp_path: Path) -> Iterator[Standing]:
    made = Standing(tmp_path)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize("failure", [IndexError, MemoryError, KeyboardInterrupt])
def test_whatever_happens_before_the_kill_it_goes_on(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]
) -> None:
    def fails(root: str) -> None:
        assert standing.state == "T"
        raise failure

    monkeypatch.setattr("chaos_gpu.payloads.save_killer.look_into", fails)
    with pytest.raises(failure):
        standing.strike()
    assert Freezer._await(lambda: standing.state != "T", 5)
    assert standing.process.poll() is None


def test_told_to_go_while_it_looks_it_kills_nobody(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_gpu.payloads.save_killer.look_into", lambda root: standing.told.append(15))
    assert standing.strike() is None
    assert Freezer._await(lambda: standing.state != "T", 5)
    assert standing.process.poll() is None


def test_a_process_that_does_not_die_was_not_killed_in_a_save(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing.hunt.freezer, "kill", lambda only: False)
    evidence = standing.strike()
    assert evidence is not None
    assert evidence["dead"] is False
    assert evidence["uncommitted"] is False


def test_more_files_than_asked_for_are_a_miss(tmp_path: Path) -> None:
    standing = Standing(tmp_path, files=1)
    try:
        assert standing.save is not None
        (standing.store / "step-12.extra").write_bytes(b"x")
        assert standing.strike() is None
        assert standing.hunt.misses[0]["why"] == "2 files were there"
        (standing.store / "step-12.extra").unlink()
    finally:
        standing.process.kill()
        standing.process.wait()


def test_nobody_left_to_kill_is_a_miss(standing: Standing) -> None:
    standing.process.kill()
    standing.process.wait()
    assert standing.strike() is None
    assert standing.hunt.misses


@pytest.mark.parametrize("pod", ["", "..", "a/b", "a?x=1", "A", "a" * 254])
@pytest.mark.parametrize("means", ["delete", "force", "evict"])
def test_what_is_no_name_of_a_pod_is_not_removed(pod: str, means: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_gpu.payloads.eviction._request", lambda *_: pytest.fail("it was asked for"))
    with pytest.raises(ValueError, match="no name of a pod"):
        remove_pod("x", pod, means)


def test_a_writer_between_two_files_is_waited_for(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shard is closed, its marker not yet open: at that look it holds nothing, and it is not done."""
    looks = iter([[7], [], [], [7], []])
    monkeypatch.setattr("chaos_gpu.payloads.save_killer.BETWEEN_S", 2.0)  # a busy machine is slow to look
    monkeypatch.setattr("chaos_gpu.payloads.save_killer.writers", lambda root: next(looks, []))
    monkeypatch.setattr("chaos_gpu.payloads.save_killer.process_state", lambda pid: "R")
    assert standing.hunt._await_writers(str(standing.store), [], alone=True) == [7]
    assert next(looks, None) is None, "it looked on after the moment between"
