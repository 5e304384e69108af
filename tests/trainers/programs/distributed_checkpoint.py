"""Train in plain PyTorch and save with `torch.distributed.checkpoint`: MODE is sync, thread or process.

The last two are its asynchronous saves: the training goes on while a thread, or a process of its own, writes.
"""

import os
from pathlib import Path
from typing import Any

import torch.distributed as dist  # type: ignore[import-not-found,unused-ignore]
import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found,unused-ignore]
from basics import STORE, Training, newest, rotate
from slow_disk import slow_down
from torch.distributed.checkpoint.state_dict_saver import (  # type: ignore[import-not-found,unused-ignore]
    AsyncCheckpointerType,
)

MODE = os.environ.get("MODE", "sync")
slow_down()  # here: the writer that is a process of its own imports this file, and is slow too


class Saver:
    def __init__(self) -> None:
        self.pending: Any = None

    def save(self, training: Training) -> None:
        place = str(STORE / f"step-{training.step}")
        self.wait()
        if MODE == "sync":
            dcp.save(training.state(), checkpoint_id=place)
            rotate("step-*")
        else:
            kind = AsyncCheckpointerType.PROCESS if MODE == "process" else AsyncCheckpointerType.THREAD
            self.pending = dcp.async_save(training.state(), checkpoint_id=place, async_checkpointer_type=kind)

    def wait(self) -> None:
        """Wait for the save before; old ones go when it is all there."""
        if self.pending:
            self.pending.result()
            rotate("step-*")


def load(training: Training, path: Path) -> dict[str, Any]:
    for parameter in training.model.parameters():  # there are no moments to load into before the first step
        parameter.grad = parameter * 0
    training.optimizer.step()
    state = training.state()
    dcp.load(state, checkpoint_id=str(path))
    return state


def main() -> None:
    if MODE != "sync":
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    training, saver = Training(), Saver()
    source = newest("step-*", lambda path: (path / ".metadata").exists())
    if source:
        training.restore(load(training, source), source.name)
    training.run(lambda: saver.save(training))
    saver.wait()


if __name__ == "__main__":
    main()
