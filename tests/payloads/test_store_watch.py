"""What a store's files tell of its saves: one look after each change, with a clock of our own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos_gpu.payloads.store_watch import Save, StoreWatch, kind_of_name, member_of

SECOND = 1_000_000_000
Write = Callable[[int], None]


class Watched:
    """A store and its watch; each `look` comes a tenth of a second after the one before."""

    def __init__(self, root: Path) -> None:
        self.root, self.now_ns, self.watch = root, 0, StoreWatch(str(root))

    def look(self) -> Save | None:
        self.now_ns += SECOND // 10
        return self.watch.look(self.now_ns)

    def grow(self, name: str, size: int) -> Save | None:
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        with path.open("ab") as file:
            file.write(b"x" * size)
        return self.look()

    def rename(self, old: str, new: str) -> Save | None:
        (self.root / old).rename(self.root / new)
        return self.look()

    def point(self, text: str) -> Save | None:
        beside = self.root / ".latest.tmp"
        beside.write_text(text)
        beside.replace(self.root / "latest")
        return self.look()

    def remove(self, name: str) -> Save | None:
        (self.root / name).unlink()
        return self.look()

    def save(self, step: int, parts: int = 4) -> None:
        for _ in range(parts):
            self.grow(f"step-{step}.pt.tmp", 1000)
        self.rename(f"step-{step}.pt.tmp", f"step-{step}.pt")
        self.point(f"step-{step}.pt")


@pytest.fixture
def store(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_a_save_is_learned_and_the_next_measured_by_it(store: Watched) -> None:
    store.save(4)
    assert store.watch.learned is None
    save = store.grow("step-8.pt.tmp", 1000)
    learned = store.watch.learned
    assert learned is not None
    assert learned.names == {"step-#.pt"}
    assert (learned.size, learned.points) == (4000, True)
    assert [rung.size for rung in learned.ladder] == [1000, 2000, 3000, 4000]
    assert [learned.record_at(place) for place in (1, 1000, 1001, 4000, 4001)] == [1000, 1000, 1000, 1000, 0]
    assert learned.duration_s == pytest.approx(0.5)
    assert save is not None
    assert save.written == 1000
    assert store.watch.committed(save) is False
    for _ in range(3):
        store.grow("step-8.pt.tmp", 1000)
    assert store.watch.committed(save) is False, "all bytes, but not its name"
    store.rename("step-8.pt.tmp", "step-8.pt")
    assert store.watch.committed(save) is True
    assert not save.pointed_ns
    store.point("step-8.pt")
    assert save.pointed_ns == store.now_ns


def test_durable_is_the_last_change_that_was_no_removal(store: Watched) -> None:
    store.save(4)
    store.save(8)
    before = store.now_ns
    store.remove("step-4.pt")
    store.look()
    store.grow("step-12.pt.tmp", 10)
    last = store.watch.finished[-1]
    assert last.begun_ns + last.durable_s * SECOND == before


def test_one_that_writes_in_place_is_committed_by_its_bytes(store: Watched) -> None:
    for step in (4, 8):
        store.grow(f"step-{step}.pt", 1000)
        save = store.grow(f"step-{step}.pt", 1000)
    assert save is not None
    assert store.watch.committed(save) is True
    save = store.grow("step-12.pt", 1000)
    assert save is not None
    assert store.watch.committed(save) is False


def test_two_that_come_between_two_looks_are_two(store: Watched) -> None:
    store.save(4)
    (store.root / "step-8.pt").write_bytes(b"x" * 4000)
    store.grow("step-12.pt.tmp", 1000)
    assert [sorted(save.members) for save in store.watch.finished] == [["step-4.pt"], ["step-8.pt"]]
    assert store.watch.current is not None
    assert store.watch.current.members == {"step-12.pt"}


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("step-8.pt.tmp", "step-8.pt"),
        ("tmp-checkpoint-8/optimizer.pt", "checkpoint-8"),
        ("10.orbax-checkpoint-tmp-1699/d/x", "10"),
        (".tmpAb3x", "tmp"),
        ("iter_0000100/__0_0.distcp", "iter_0000100"),
        ("last.ckpt", "last.ckpt"),
    ],
)
def test_which_checkpoint_a_file_belongs_to(name: str, member: str) -> None:
    assert member_of(name) == member


def test_the_same_name_again_is_a_new_save(store: Watched) -> None:
    store.grow("last.ckpt", 3000)
    with (store.root / "last.ckpt").open("wb") as file:
        file.write(b"x" * 1500)
    save = store.look()
    assert save is not None
    assert len(store.watch.finished) == 1
    assert save.written == 1500
    assert store.watch.committed(save) is False


def test_shards_of_a_directory_are_one_save(store: Watched) -> None:
    for step in (4, 8):
        for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"):
            store.grow(f"checkpoint-{step}/{name}", 2000)
        save = store.grow(f"checkpoint-{step}/trainer_state.json", 100)
    assert len(store.watch.finished) == 1
    assert save is not None
    assert len(save.tracks) == 3
    assert store.watch.committed(save) is True
    store.grow("checkpoint-12/model-00001-of-00002.safetensors", 4100)
    assert store.watch.current is not None
    assert store.watch.committed(store.watch.current) is False, "all bytes, but not the marker"


def test_an_interrupted_save_is_none_to_measure_by(store: Watched) -> None:
    store.save(4)
    store.grow("step-8.pt.tmp", 1000)
    store.watch.cut()
    store.remove("step-8.pt.tmp")
    store.save(8)
    store.grow("step-12.pt.tmp", 1000)
    assert store.watch.learned is not None
    assert store.watch.learned.size == 4000
    assert len(store.watch.finished) == 2


def test_what_an_interrupted_save_left_is_garbage(store: Watched) -> None:
    store.save(4)
    store.grow("step-8.pt.tmp", 1000)
    store.watch.cut()
    store.save(12)
    store.look()
    assert store.watch.garbage() == {"step-8.pt.tmp": 1000}
    store.remove("step-8.pt.tmp")
    assert store.watch.garbage() == {}


def test_complete_ones_are_counted_at_every_instant(store: Watched) -> None:
    store.save(4)
    store.grow("step-8.pt.tmp", 1000)
    assert len(store.watch.complete()) == 1
    store.remove("step-4.pt")
    assert store.watch.complete() == [], "the old one is gone, the new one not there"
    for _ in range(3):
        store.grow("step-8.pt.tmp", 1000)
    store.rename("step-8.pt.tmp", "step-8.pt")
    assert len(store.watch.complete()) == 1


def test_a_file_that_takes_the_inode_of_a_removed_one_is_another(store: Watched) -> None:
    store.save(4)
    inode = (store.root / "step-4.pt").stat().st_ino
    (store.root / "step-4.pt").unlink()
    save = store.grow("step-8.pt.tmp", 500)
    assert save is not None
    assert save.written == 500
    if (store.root / "step-8.pt.tmp").stat().st_ino == inode:
        assert store.watch.complete() == []


def test_a_preallocated_file_is_measured_by_what_is_written(store: Watched) -> None:
    store.grow("step-4.pt", 1 << 20)
    with (store.root / "step-8.pt").open("wb") as file:
        os.truncate(file.fileno(), 1 << 20)
        save = store.look()
        assert save is not None
        assert save.written == 0
        assert store.watch.committed(save) is False


def test_a_save_is_over_when_nothing_changes(store: Watched) -> None:
    store.save(4)
    for _ in range(12):
        store.look()
    assert store.watch.current is None
    assert len(store.watch.finished) == 1


def test_one_whose_writer_had_only_waited_goes_on(store: Watched) -> None:
    """Else a part of it would be what the next is measured by, and a kill would land elsewhere than it says."""
    store.save(4)
    store.grow("step-8.pt.tmp", 1000)
    for _ in range(12):
        store.look()
    assert len(store.watch.finished) == 2, "it is taken for one that was given up"
    store.grow("step-8.pt.tmp", 3000)
    save = store.rename("step-8.pt.tmp", "step-8.pt")
    assert save is not None
    assert (save.written, save.names, len(store.watch.finished)) == (4000, {"step-#.pt"}, 1)
    assert store.watch.committed(save) is True
    store.grow("step-12.pt.tmp", 1000)
    assert store.watch.learned is not None
    assert (store.watch.learned.size, store.watch.learned.names) == (4000, {"step-#.pt"})


@pytest.mark.parametrize(("was", "again"), [("step-8.pt.tmp", True), ("step-8.pt", False)])
def test_a_late_name_is_part_of_a_save_if_it_was_none_before(store: Watched, was: str, again: bool) -> None:
    """A sync may take long, and an old checkpoint may be moved away."""
    store.save(4)
    store.grow(was, 4000)
    for _ in range(12):
        store.look()
    assert store.watch.current is None
    assert (store.rename(was, "moved-8.pt") is not None) is again
    assert len(store.watch.finished) == 2 - again


def wait(store: Watched) -> None:
    store.now_ns += 100 * SECOND
    assert store.look() is None


def sharded(store: Watched, step: int, late: bool = False) -> None:
    for part in ("a", "b"):
        store.grow(f"checkpoint-{step}/{part}.bin", 50_000)
    if late:
        wait(store)
    store.grow(f"checkpoint-{step}/.metadata.tmp", 1000)
    store.rename(f"checkpoint-{step}/.metadata.tmp", f"checkpoint-{step}/.metadata")


def test_a_marker_that_comes_after_a_long_sync_is_of_its_save(store: Watched) -> None:
    """Also of the first one, of which nothing is known."""
    for step in (4, 8):
        sharded(store, step, late=True)
        save = store.watch.current
        assert save is not None
        assert len(save.tracks) == 3
    assert store.watch.learned is not None
    assert (store.watch.learned.size, store.watch.learned.data) == (101_000, 100_000)


def test_what_is_added_to_a_whole_checkpoint_is_no_save(store: Watched) -> None:
    for step in (4, 8):
        sharded(store, step)
    wait(store)
    before = [(save.changed_ns, store.watch.learned) for save in store.watch.finished]
    store.grow("checkpoint-8/eval.json", 10)
    store.grow("checkpoint-8/eval.json", 10)
    store.grow("checkpoint-4/eval.json", 10)
    assert store.watch.current is None
    assert [(save.changed_ns, store.watch.learned) for save in store.watch.finished] == before
    assert store.watch.garbage() == {}
    save = store.grow("checkpoint-12/a.bin", 50_000)
    store.grow("checkpoint-8/more.json", 10)
    assert store.watch.current is save, "nor does it end the one that is going on"


def test_a_marker_that_comes_when_the_watch_has_just_begun_is_none_to_measure_by(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "a.bin").write_bytes(b"x" * 50_000)
    (tmp_path / ".tmpAb3x").write_bytes(b"x")
    store = Watched(tmp_path)
    store.grow("checkpoint-4/.metadata", 1000)
    store.grow("checkpoint-8/a.bin", 50_000)
    assert store.watch.learned is None
    store.grow(".tmpZ9", 5000)
    store.rename(".tmpZ9", "step-12.pt")
    store.grow("step-16.pt", 10)
    assert store.watch.learned is not None


@pytest.mark.parametrize("names", [["last/a.bin.tmp", "last/a.bin"], [".tmp{}/a.bin", "last/a.bin"]])
def test_the_same_checkpoint_written_anew_is_a_new_save(store: Watched, names: list[str]) -> None:
    for number in range(3):
        beside, final = (name.format(number) for name in names)
        store.grow(beside, 50_000)
        (store.root / "last").mkdir(exist_ok=True)
        store.rename(beside, final)
        wait(store)
    assert [len(save.tracks) for save in store.watch.finished] == [1, 1, 1]


@pytest.mark.parametrize(("last", "data"), [(2000, 98_000), (2001, 100_001)])
def test_a_small_file_that_comes_last_is_a_marker(store: Watched, last: int, data: int) -> None:
    store.grow("checkpoint-4/a.bin", 98_000)
    store.grow("checkpoint-4/b", last)
    store.grow("checkpoint-8/a.bin", 100)
    assert store.watch.learned is not None
    assert store.watch.learned.data == data


def test_the_pace_around_a_place_is_that_of_the_looks_about_it(store: Watched) -> None:
    for part in (1000, 1000, 4000, 4000):  # a tenth of a second each
        store.grow("step-4.pt.tmp", part)
    store.rename("step-4.pt.tmp", "step-4.pt")
    store.grow("step-8.pt.tmp", 1000)
    learned = store.watch.learned
    assert learned is not None
    places = (500, 2000, 4000, 7000, 9500)
    assert [learned.pace_at(place) for place in places] == pytest.approx([10_000, 25_000, 40_000, 40_000, 40_000])
    assert learned._replace(ladder=()).pace_at(500) == 0
    assert learned._replace(ladder=learned.ladder[:1]).pace_at(500) == 0


def test_the_pace_of_the_last_moment(store: Watched) -> None:
    save = store.grow("step-4.pt.tmp", 1000)
    assert save is not None
    assert save.pace(store.now_ns) == 0, "since when these have come is not known"
    store.grow("step-4.pt.tmp", 2000)
    assert save.pace(store.now_ns) == pytest.approx(20_000)
    assert save.pace(store.now_ns + SECOND) == 0, "it has stood still since"


def test_a_save_that_had_begun_before_the_watch_is_none_to_measure_by(tmp_path: Path) -> None:
    (tmp_path / "step-4.pt.tmp").write_bytes(b"x" * 3000)
    store = Watched(tmp_path)
    store.grow("step-4.pt.tmp", 1000)
    store.rename("step-4.pt.tmp", "step-4.pt")
    store.grow("step-8.pt.tmp", 1000)
    assert len(store.watch.finished) == 1
    assert store.watch.learned is None
    store.save(8, parts=3)
    store.grow("step-12.pt.tmp", 1000)
    assert store.watch.learned is not None
    assert [rung.size for rung in store.watch.learned.ladder] == [1000, 2000, 3000, 4000]


def test_logs_belong_to_no_save(store: Watched) -> None:
    assert store.grow("train.log", 2000) is None
    assert store.watch.garbage() == {}


def test_what_was_there_before_is_no_save(tmp_path: Path) -> None:
    (tmp_path / "step-4.pt").write_bytes(b"x" * 5000)
    store = Watched(tmp_path)
    assert store.look() is None
    assert store.watch.garbage() == {"step-4.pt": 5000}


@pytest.mark.parametrize(
    ("one", "other"),
    [("step-4.pt", "step-1200.pt"), (".tmpAb3x", ".tmpZ9"), ("tmp-checkpoint-4/a", "tmp-checkpoint-8/a")],
)
def test_names_of_the_same_kind(one: str, other: str) -> None:
    assert kind_of_name(one) == kind_of_name(other)


@pytest.mark.parametrize("whole", [True, False], ids=["directory", "file"])
def test_what_is_renamed_while_it_is_listed_is_the_same_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """The old name was listed, the new one not yet: neither was there, and the file counted twice as two."""
    beside, final = (tmp_path / "tmp-1", tmp_path / "step-1") if whole else (tmp_path / "a.pt.tmp", tmp_path / "a.pt")
    (beside.mkdir() or beside / "a.pt" if whole else beside).write_bytes(b"x" * 5000)
    watch, scan = StoreWatch(str(tmp_path)), os.scandir

    def renaming(path: str) -> list[os.DirEntry[str]]:
        entries = list(scan(path))
        if beside.exists():
            beside.rename(final)
        return entries

    (tmp_path / "b.pt").write_bytes(b"y" * 5000)  # of the same save, so that there is one
    watch._past.clear()
    watch.look(1)
    monkeypatch.setattr(os, "scandir", renaming)
    save = watch.look(2)
    assert save is not None
    assert save.written == 10_000
    assert sorted(track.name for track in save.tracks if not track.gone) == sorted(
        ["b.pt", "step-1/a.pt" if whole else "a.pt"]
    )
    assert not any(track.gone for track in save.tracks)
