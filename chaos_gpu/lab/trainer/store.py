"""Where checkpoints are kept: saved beside, seen on the disk, renamed, pointed at; old ones and leftovers removed.

    step-12.pt       a checkpoint; its name appears only when all of it is there
    step-16.pt.tmp…  one that is being written, or that a killed run has left
    latest           the name of the newest, written only after it

A planted defect changes one of these rules; see `chaos_gpu.lab.defects`.
"""

import os
import re
import secrets
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from chaos_gpu.lab.trainer.torch_zip import read, write

NAME = re.compile(r"step-(\d+)\.pt")
LEFTOVER = re.compile(r"step-(\d+)\.pt\.tmp\w+")
POINTER = "latest"

Json = dict[str, Any]


class Found(NamedTuple):
    """What a run resumes from."""

    name: str
    state: Json


class Store:
    """The checkpoints of one training."""

    def __init__(self, directory: Path, keep: int, defects: frozenset[str]) -> None:
        """Make the directory if needed, and remove what an interrupted save has left.

        Args:
            directory: where they are.
            keep: how many.
            defects: names of planted defects.
        """
        self._directory, self._keep, self._defects = directory, keep, defects
        directory.mkdir(parents=True, exist_ok=True)
        if not defects & {"trainer-never-cleans", "trainer-resumes-torn"}:
            for name, _ in self._numbered(LEFTOVER):
                (directory / name).unlink()

    def save(self, state: Json, save_s: float) -> str:
        """Write one checkpoint, taking `save_s` seconds; return its name.

        Raises:
            OSError: as the file system gives it.
        """
        name = f"step-{state['step']}.pt"
        if "trainer-deletes-before-saving" in self._defects:
            self._remove_old(keep=0)
        if "trainer-points-before-data" in self._defects:
            self._point_at(name)
        self._write(name, state, save_s)
        self._point_at(name)
        self._remove_old(self._keep)
        return name

    def _write(self, name: str, state: Json, save_s: float) -> None:
        stem = name.removesuffix(".pt")
        if self._defects & {"trainer-writes-in-place", "trainer-points-before-data"}:
            write(self._directory / name, state, stem, save_s)
            return
        beside = self._directory / f"{name}.tmp{secrets.token_hex(3)}"
        write(beside, state, stem, save_s)
        beside.rename(self._directory / name)
        self._sync()

    def _point_at(self, name: str) -> None:
        beside = self._directory / f".{POINTER}.tmp"
        with beside.open("w", encoding="utf-8") as file:
            file.write(name + "\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._directory / POINTER)
        self._sync()

    def _sync(self) -> None:
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _remove_old(self, keep: int) -> None:
        names = [name for name, _ in self._numbered(NAME)]
        for name in names[: max(0, len(names) - keep)]:
            (self._directory / name).unlink()

    def _numbered(self, pattern: "re.Pattern[str]") -> list[tuple[str, int]]:
        """List the files of one kind, oldest first."""
        found = (pattern.fullmatch(path.name) for path in self._directory.iterdir())
        return sorted(((match[0], int(match[1])) for match in found if match), key=lambda each: each[1])

    def newest(self) -> Found | None:
        """Read what to resume from: the newest that is whole; None if there is none.

        Raises:
            zipfile.BadZipFile: with a defect, what is chosen is torn.
            OSError: likewise, or as the file system gives it.
        """
        if "trainer-points-before-data" in self._defects:
            pointer = self._directory / POINTER
            return self._read(pointer.read_text(encoding="utf-8").strip()) if pointer.exists() else None
        if "trainer-resumes-torn" in self._defects and (torn := self._numbered(LEFTOVER)):
            return Found(torn[-1][0], {"step": torn[-1][1]})
        whole = self._numbered(NAME)
        if "trainer-writes-in-place" in self._defects:
            return self._read(whole[-1][0]) if whole else None
        return next((found for name, _ in reversed(whole) if (found := self._read_whole(name))), None)

    def _read(self, name: str) -> Found:
        return Found(name, read(self._directory / name))

    def _read_whole(self, name: str) -> Found | None:
        try:
            return self._read(name)
        except (zipfile.BadZipFile, OSError):
            return None
