"""A training and the store that it saves to: its saves as they end, and what the store holds at one moment."""

import os
import shutil
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError
from chaos_gpu.payloads.events import say
from chaos_gpu.payloads.freezer import MARK, STORE, carriers_of, directory_of, environment_of
from chaos_gpu.payloads.store_watch import Save, StoreWatch, picture

DEEP_BYTES = 1 << 30
"""A store of more bytes is read by headers and sizes only: its training stands still meanwhile."""
STATE_BYTES = 256 << 20
"""A checkpoint of more bytes is compared by the CRCs in its headers only: no look falls into the time it is read."""
READ_S = 60.0
UNREADABLE = (
    CheckpointError,
    OSError,
    MemoryError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    RuntimeError,
)
"""What reading files that nobody vouches for may end in, our reader's own mistakes included."""
STATE_KEYS = ("step", "complete", "torn_reason", "components", "state_crcs", "without_crc", "error")


class TooSlow(Exception):
    """The store does not answer in time; no reader takes this for a finding about one of its files."""


class Followed:
    """One training and the store that it saves to, from the first process that is seen of it."""

    def __init__(self, name: str, mark: str) -> None:
        """Nothing is known yet."""
        self.name, self.mark = name, mark
        self.watch: Optional[StoreWatch] = None
        self.told = 0
        self.least = -1

    def attach(self) -> bool:
        """Find a process and the directory; False when there is none yet. Keeps the directory open beyond its mount."""
        if self.watch:
            return True
        for pid in carriers_of(MARK, self.mark):
            try:
                place = environment_of(pid).get(STORE, "")
                handle = os.open(f"/proc/{pid}/root{place}", os.O_RDONLY | os.O_DIRECTORY) if place else -1
            except OSError:
                continue
            if handle >= 0:
                self.watch = StoreWatch(f"/proc/self/fd/{handle}")
                return True
        return False

    def look(self) -> Optional[Save]:
        """Take in what changed in the store, and how many checkpoints are complete at this moment."""
        if not self.watch:
            return None
        current = self.watch.look(time.monotonic_ns())
        if self.watch.finished:
            complete = len(self.watch.complete())
            self.least = complete if self.least < 0 else min(self.least, complete)
        return current

    def clear(self) -> str:
        """Remove its directory with all checkpoints. Returns why it, or something in it, stays; "" if nothing does.

        Only one that bears the training's own name, and where no process of the training is left to save.
        """
        if not self.watch:
            return "it was never seen"
        if carriers_of(MARK, self.mark):
            return "the training is still there"
        try:
            remove_held(self.watch.root, directory_of(self.mark))
        except OSError as error:
            return str(error)
        return ""

    def report(self) -> None:
        """Tell of the saves that have ended since, and once more of one that then went on."""
        if not self.watch:
            return
        self.told = min(self.told, len(self.watch.finished))
        for save in self.watch.finished[self.told :]:
            self.told += 1
            names = sorted(track.name for track in save.tracks)
            kept = self.watch.complete()
            say(
                "saved",
                training=self.name,
                files=names[:50],
                bytes=save.written,
                begun_ns=save.begun_ns,
                durable_ns=save.changed_ns,
                complete=len(kept),
                least=self.least,
                garbage=self.watch.garbage(),
                checkpoint=read_state(self.watch.root, names),
            )


def remove_held(root: str, name: str) -> None:
    """Remove a directory that is held open, by the name that it has where it is; no link is followed.

    Raises: OSError when it has another name, or not all of it can be removed.
    """
    parent = os.open(f"{root}/..", os.O_RDONLY | os.O_DIRECTORY)
    try:
        place = f"/proc/self/fd/{parent}/{name}"
        if not os.path.samestat(os.lstat(place), Path(root).stat()):
            raise OSError(f"{name} is not what the training saved to")
        shutil.rmtree(place)
    finally:
        os.close(parent)


def examine(path: str, deep: bool, limit_s: float = READ_S) -> Dict[str, Any]:
    """Read what lies at a path, at most so many seconds; what keeps it from being read becomes `error`."""
    try:
        with _at_most(limit_s):
            return inspect(path, deep=deep)
    except TooSlow:
        return {"error": f"it could not be read within {limit_s:g} s"}
    except UNREADABLE as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    def over(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, over)
    other = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *other)
        signal.signal(signal.SIGALRM, before)


def read_state(root: str, names: List[str]) -> Dict[str, Any]:
    """Read step, components and the values' CRCs of a checkpoint that has just been saved.

    In full only where its headers do not hold the CRCs of all (safetensors, DCP), and if it is small.
    """
    found: Dict[str, Any] = {"error": "no file of it is there any more"}
    for top in sorted({name.split("/", 1)[0] for name in names}):
        found = examine(f"{root}/{top}", deep=False)
        if "error" not in found:
            if _blind(found) and found.get("bytes", 0) <= STATE_BYTES:
                found = examine(f"{root}/{top}", deep=True)
            break
    return {key: found.get(key) for key in STATE_KEYS}


def _blind(found: Dict[str, Any]) -> bool:
    """Whether a value has no CRC, or a component none at all."""
    proven = {name.split(".", 1)[0] for name in found.get("state_crcs") or ()}
    return bool(found.get("without_crc")) or not proven.issuperset(found.get("components") or ())


def look_into(root: str) -> Dict[str, Any]:
    """Read what the store holds while nothing in it changes."""
    size = sum(seen.size for seen in picture(root).values())
    found = examine(root, deep=size <= DEEP_BYTES)
    if "error" in found:
        return found
    members = found.get("members") or [{**found, "name": "."}]
    short = [{key: each.get(key) for key in ("name", "step", "complete", "torn_reason")} for each in members]
    whole = [each for each in members if each.get("complete") == "yes" and each.get("step") is not None]
    return {
        "newest_complete": found.get("newest_complete"),
        "newest_step": max((each["step"] for each in whole), default=None),
        "pointers": found.get("pointers"),
        "members": short[-20:],
        "deep": size <= DEEP_BYTES,
    }
