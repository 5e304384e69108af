"""Real processes: frozen together, let go, killed; and what is never touched."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from chaos_gpu.payloads.freezer import (
    MARK,
    SIGNALS,
    V1,
    V2,
    Freezer,
    carriers_of,
    environment_of,
    process_state,
    writers,
)

CHILDREN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-ISc", "import time; print('up', flush=True); time.sleep(60)"])
file = open(sys.argv[1], "w")
time.sleep(60)
"""


@pytest.fixture
def workload(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Two processes, parent and child, of which the parent has a file open."""
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    command = [sys.executable, "-ISc", CHILDREN, str(tmp_path / "open")]
    parent = subprocess.Popen(command, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "up\n"
    yield mark, tmp_path
    for pid in carriers_of(MARK, mark):
        os.kill(pid, 9)
    parent.stdout.close()
    parent.wait()


def test_all_of_them_stop_and_go_on(workload: tuple[str, Path]) -> None:
    mark, _ = workload
    freezer = Freezer(lambda: carriers_of(MARK, mark))
    assert freezer.means == SIGNALS, "they share their cgroup with this test: that must not be frozen"
    assert len(freezer.pids) == 2
    assert freezer.freeze()
    assert {process_state(pid) for pid in freezer.pids} == {"T"}
    freezer.thaw()
    assert freezer._await(lambda: not freezer.frozen(), 5)


def test_a_kill_ends_all_or_one(workload: tuple[str, Path]) -> None:
    mark, _ = workload
    freezer = Freezer(lambda: carriers_of(MARK, mark))
    assert freezer.freeze()
    parent, child = freezer.pids
    assert freezer.kill([child])
    assert carriers_of(MARK, mark) == [parent]
    assert Freezer(lambda: carriers_of(MARK, mark)).kill()
    assert carriers_of(MARK, mark) == []


def cgroup(version: str) -> Path:
    """Where a group of this version can be made."""
    root = Path("/sys/fs/cgroup")
    if version == V1:
        return root / "freezer"
    return root / "unified" if (root / "unified").is_dir() else root


@pytest.fixture(params=[V1, V2])
def group(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """A cgroup of its own with a freezer; skipped where none can be made."""
    path = cgroup(request.param) / f"chaos-gpu-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    if not (path / ("freezer.state" if request.param == V1 else "cgroup.freeze")).exists():
        path.rmdir()
        pytest.skip(f"no freezer in {path}")
    yield request.param, path
    end = time.monotonic() + 10
    while path.exists() and time.monotonic() < end:
        with suppress(OSError):  # its processes are not all gone yet
            path.rmdir()


def test_a_cgroup_of_its_own_is_frozen_and_killed(group: tuple[str, Path], workload: tuple[str, Path]) -> None:
    (version, path), (mark, _) = group, workload
    pids = carriers_of(MARK, mark)
    for pid in pids:
        (path / "cgroup.procs").write_text(str(pid))
    freezer = Freezer(lambda: carriers_of(MARK, mark))
    assert (freezer.means, freezer.directory) == (version, path)
    assert freezer.freeze()
    assert freezer.frozen()
    freezer.thaw()
    assert freezer._await(lambda: not freezer.frozen(), 5)
    assert freezer.freeze()
    assert freezer.kill()
    assert carriers_of(MARK, mark) == []


def test_a_cgroup_with_others_in_it_is_left_alone(group: tuple[str, Path], workload: tuple[str, Path]) -> None:
    (_, path), (mark, _) = group, workload
    with subprocess.Popen(["sleep", "60"]) as other:
        for pid in [*carriers_of(MARK, mark), other.pid]:
            (path / "cgroup.procs").write_text(str(pid))
        assert Freezer(lambda: carriers_of(MARK, mark)).means == SIGNALS
        other.kill()


def test_who_has_a_file_open_is_found(workload: tuple[str, Path]) -> None:
    mark, root = workload
    parent = carriers_of(MARK, mark)[0]
    assert Freezer._await(lambda: writers(root) == [parent], 5)
    assert environment_of(parent)[MARK] == mark


def test_a_mark_is_compared_whole(workload: tuple[str, Path]) -> None:
    mark, _ = workload
    assert carriers_of(MARK, mark[:-1]) == []
    assert carriers_of(MARK[:-1], mark) == []
    assert os.getpid() not in carriers_of("PATH", os.environ["PATH"])


def test_a_process_that_has_ended_has_no_state() -> None:
    child = subprocess.Popen([sys.executable, "-ISc", ""])
    child.wait()
    assert process_state(child.pid) == ""


def test_where_nobody_is_left_nothing_is_frozen_or_killed(workload: tuple[str, Path]) -> None:
    mark, _ = workload
    freezer = Freezer(lambda: carriers_of(MARK, mark))
    for pid in freezer.pids:
        os.kill(pid, signal.SIGKILL)
    assert Freezer._await(lambda: carriers_of(MARK, mark) == [], 5)
    assert freezer.freeze() is False
    assert freezer.kill() is False
    assert Freezer(list).freeze() is False


def test_a_number_that_another_process_has_by_now_is_let_alone(
    workload: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, _ = workload
    freezer = Freezer(lambda: carriers_of(MARK, mark))
    sent: list[int] = []
    freezer._started = {pid: begun - 1 for pid, begun in freezer._started.items()}
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
    assert freezer.freeze() is False
    assert freezer.kill() is False
    freezer.thaw()
    assert sent == []
    assert freezer.ended()
