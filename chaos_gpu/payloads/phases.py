"""The phases of a save that have no number: when one has come, and whether it had gone by the time all stood still."""

import time
from typing import Optional

from chaos_gpu.payloads.store_watch import Save, StoreWatch


def has_come(phase: str, watch: StoreWatch, save: Optional[Save]) -> bool:
    """Whether a save, of which there is one before, is in a phase: sync, commit, pointer, retention or step."""
    learned = watch.learned
    if learned is None:
        return False
    if save is None:
        return phase == "step"
    if watch.committed(save):
        return bool(
            (phase == "step" and is_between(watch, save))
            or (phase == "pointer" and learned.points and not save.pointed_ns)
            or (phase == "retention" and save.removed)
        )
    if phase == "sync":
        return save.written >= learned.data
    return phase == "commit" and save.written >= learned.size and len(learned.names - save.names) == 1


def has_gone(phase: str, watch: StoreWatch, save: Optional[Save]) -> str:
    """Say why the frozen store is not in the phase that it was seen in, data included; "" if it is."""
    now = watch.current
    if phase == "step" or save is None:
        return "a save had begun" if now and not watch.committed(now) else ""
    if now is not save:
        return "the save was over"
    if phase == "retention":
        return ""
    if phase == "pointer":
        return "the pointer had been written" if save.pointed_ns else ""
    return "the save had committed" if watch.committed(save) else ""


def is_between(watch: StoreWatch, save: Save) -> bool:
    """Whether the pause after a save is half over: what still belonged to that save is done."""
    pause_ns = save.begun_ns - watch.finished[-1].changed_ns
    return time.monotonic_ns() - save.changed_ns >= pause_ns / 2
