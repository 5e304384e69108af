"""Train with Accelerate and save with `save_state`: names, order of files and retention are its own.

What it does not know of, the position in the data, is registered with it, and is the last file that it writes.
"""

import os
from pathlib import Path
from typing import Any

from basics import EVERY, KEEP, STOP_AT, STORE, Order, log, network, newest, schedule
from slow_disk import slow_down

slow_down()  # before its libraries take what is slowed
os.environ["ACCELERATE_USE_CPU"] = "true"
import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from accelerate import Accelerator  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from accelerate.utils import ProjectConfiguration, set_seed  # type: ignore[import-not-found,unused-ignore]  # noqa: E402


class Registered(Order):
    """The position, as Accelerate saves and restores it."""

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


def whole(path: Path) -> bool:
    return (path / "custom_checkpoint_0.pkl").exists()


def main() -> None:
    set_seed(7)  # NumPy's state is saved too
    project = ProjectConfiguration(
        project_dir=str(STORE.parent), automatic_checkpoint_naming=True, total_limit=KEEP + 1 if KEEP else None
    )
    accelerator = Accelerator(cpu=True, project_config=project)
    model, order = network(), Registered()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, schedule(optimizer))
    accelerator.register_for_checkpointing(order)
    source = newest("checkpoint_*", whole)
    if source:
        accelerator.load_state(str(source))
        project.iteration = int(source.name.rpartition("_")[2]) + 1
        log(event="resumed", source=source.name, step=accelerator.step)
    while accelerator.step < STOP_AT:
        with accelerator.accumulate(model):
            data = order.batch()
            loss = (model(data) - data).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        log(step=accelerator.step, loss=loss.item(), lr=scheduler.get_last_lr()[0])
        if accelerator.step % EVERY == 0:
            accelerator.save_state()


if __name__ == "__main__":
    main()
