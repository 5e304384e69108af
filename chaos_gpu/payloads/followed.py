"""A training and the store that it saves to: its saves as they end, and what the store holds at one moment."""

import datetime
import json
import os
import time
from typing import Any, Dict, List, Optional

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError
from chaos_gpu.payloads.freezer import MARK, STORE, carriers_of, environment_of
from chaos_gpu.payloads.store_watch import Save, StoreWatch, picture

DEEP_BYTES = 1 << 30
"""A store of more bytes is read by headers and sizes only: its training stands still meanwhile."""


def say(event: str, **facts: Any) -> None:
    """Print one event; a reader follows this log line by line."""
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")
    print(json.dumps({"event": event, "at": now, **facts}), flush=True)


class Followed:
    """One training and the store that it saves to, from the first process that is seen of it."""

    def __init__(self, name: str, mark: str) -> None:
        """Nothing is known yet."""
        self.name, self.mark = name, mark
        self.watch: Optional[StoreWatch] = None
        self.told = 0
        self.least = -1
        self.violated_ns = 0

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
        now_ns = time.monotonic_ns()
        current = self.watch.look(now_ns)
        if self.watch.finished:
            complete = len(self.watch.complete())
            self.violated_ns = self.violated_ns or (now_ns if not complete else 0)
            self.least = complete if self.least < 0 else min(self.least, complete)
        return current

    def report(self) -> None:
        """Tell of the saves that have ended since."""
        if not self.watch:
            return
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


def read_state(root: str, names: List[str]) -> Dict[str, Any]:
    """Read step, components and the tensors' CRCs of a checkpoint that has just been saved."""
    tops = {name.split("/", 1)[0] for name in names}
    found: Dict[str, Any] = {"error": "no file of it is there any more"}
    for top in sorted(tops):
        try:
            found = inspect(f"{root}/{top}", deep=False)
        except (CheckpointError, OSError) as error:
            found = {"error": str(error)[:200]}
        else:
            break
    return {key: found.get(key) for key in ("step", "complete", "torn_reason", "components", "state_crcs", "error")}


def look_into(root: str) -> Dict[str, Any]:
    """Read what the store holds while nothing in it changes."""
    size = sum(seen.size for seen in picture(root).values())
    try:
        found = inspect(root, deep=size <= DEEP_BYTES)
    except (CheckpointError, OSError) as error:
        return {"error": str(error)[:300]}
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
