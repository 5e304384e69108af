"""What a run's trainings have saved is removed with them: by the run's own names, and nothing else."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from chaos_gpu.payloads.followed import Followed, remove_held
from chaos_gpu.payloads.freezer import MARK, STORE, directory_of
from tests.support.killer import Killer
from tests.support.training import Trainer

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def mark() -> str:
    return f"r{uuid4().hex[:8]}.kill.subject"


@pytest.fixture
def store(tmp_path: Path, mark: str) -> Path:
    made = tmp_path / directory_of(mark)
    (made / "step-4").mkdir(parents=True)
    (made / "step-4" / "part").write_bytes(b"x")
    return made


@pytest.fixture
def saving(mark: str, store: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: mark, STORE: str(store)})
    yield process
    process.kill()
    process.wait()


def seen(mark: str) -> Followed:
    followed = Followed("subject", mark)
    assert followed.attach()
    return followed


def test_a_directory_is_removed_once_nobody_saves_to_it(
    tmp_path: Path, mark: str, store: Path, saving: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "model").write_bytes(b"x")
    (store / "link").symlink_to(tmp_path / "theirs")
    followed = seen(mark)
    assert "still there" in followed.clear()
    assert (store / "step-4" / "part").exists()
    saving.kill()
    saving.wait()
    assert followed.clear() == ""
    assert not store.exists()
    assert (tmp_path / "theirs" / "model").exists(), "no link is followed"


def test_a_directory_of_another_name_stays(
    tmp_path: Path, mark: str, store: Path, saving: subprocess.Popen[bytes]
) -> None:
    """A link of the run's name leads elsewhere, or the training saves where it likes."""
    theirs = store.rename(tmp_path / "theirs")
    store.symlink_to(theirs)
    followed = seen(mark)
    saving.kill()
    saving.wait()
    assert "is not what the training saved to" in followed.clear() or "No such file" in followed.clear()
    assert (theirs / "step-4" / "part").exists()


def test_another_directory_that_has_taken_its_name_stays(tmp_path: Path, store: Path) -> None:
    handle = os.open(store, os.O_RDONLY | os.O_DIRECTORY)
    try:
        store.rename(tmp_path / "moved")
        store.mkdir()
        (store / "model").write_bytes(b"x")
        with pytest.raises(OSError, match="is not what the training saved to"):
            remove_held(f"/proc/self/fd/{handle}", store.name)
    finally:
        os.close(handle)
    assert (store / "model").exists()


def test_what_was_never_seen_is_not_looked_for(mark: str, store: Path) -> None:
    assert "never seen" in Followed("subject", mark).clear()
    assert store.exists()


def trainer_of(tmp_path: Path, mark: str, store: Path, **settings: str) -> Trainer:
    trainer = Trainer(tmp_path, mark=mark, STEP_S="0.01", CHECKPOINT_DIR=str(store), **{STORE: str(store)}, **settings)
    trainer.store = store
    return trainer


def test_the_injector_removes_it_when_it_leaves(tmp_path: Path, mark: str, store: Path) -> None:
    (tmp_path / "other").mkdir()
    process = trainer_of(tmp_path, mark, store, SAVE_S="0.5", STEPS="400").start()
    killer = Killer(tmp_path, subject=mark)
    try:
        killer.until("landed")
        process.communicate(timeout=10)
        assert any(store.glob("*.pt*"))
        killer.process.terminate()
        assert killer.until("cleared")["left"] == {}
        assert killer.end() == 0
    finally:
        process.kill()
        process.communicate()
    assert not store.exists()
    assert (tmp_path / "other").exists()


def test_it_does_so_too_when_it_caught_nothing(tmp_path: Path, mark: str, store: Path) -> None:
    killer = Killer(tmp_path, subject=mark, fraction=0.97, record=1)
    killer.until("started")
    process = trainer_of(tmp_path, mark, store, SAVE_S="0.2", STEPS="12").start()
    process.communicate(timeout=30)
    killer.until("failed")
    assert killer.until("cleared")["left"] == {}
    killer.process.communicate(timeout=10)
    assert killer.process.returncode == 3
    assert not store.exists()
