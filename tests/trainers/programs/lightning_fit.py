"""Train with Lightning, saved by its ModelCheckpoint: a temporary file, then moved; across file systems that is a copy.

SCRATCH is where temporary files go, as TMPDIR would say; THINK_S how long a step takes. Lightning saves no RNG: this
one draws its dropout by the step. Its data loader keeps its position, which Lightning saves.
"""

import os
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from basics import DEFECT, EVERY, KEEP, STOP_AT, STORE, Order, log, network, newest, schedule
from slow_disk import slow_down

slow_down()  # before its libraries take what is slowed
import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from lightning.pytorch import Callback, LightningModule, Trainer  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

THINK_S = float(os.environ.get("THINK_S", "0"))


class Model(LightningModule):  # type: ignore[misc,unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def training_step(self, data: torch.Tensor, number: int) -> torch.Tensor:
        torch.manual_seed(self.global_step)
        time.sleep(THINK_S)
        return (self.layers(data) - data).square().mean()

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return [optimizer], [{"scheduler": schedule(optimizer), "interval": "step"}]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if DEFECT == "forgets-optimizer":
            for state in checkpoint["optimizer_states"]:
                state["state"] = {}


class Loader(Order):
    """Endless in effect, with a length, so that nothing is fetched ahead, and a state."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield self.batch()

    def __len__(self) -> int:
        return 1000

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


class Steps(Callback):  # type: ignore[misc,unused-ignore]
    def on_train_start(self, trainer: Trainer, model: LightningModule) -> None:
        if trainer.global_step:
            log(event="resumed", source=Path(trainer.ckpt_path).name, step=trainer.global_step)

    def on_train_batch_end(self, trainer: Trainer, model: LightningModule, outputs: Any, *_: Any) -> None:
        rate = trainer.lr_scheduler_configs[0].scheduler.get_last_lr()[0]
        log(step=trainer.global_step, loss=outputs["loss"].item(), lr=rate)
        trainer.should_stop = trainer.global_step >= STOP_AT


def whole(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except zipfile.BadZipFile:
        return False


def main() -> None:
    saves = ModelCheckpoint(STORE, "{step}", every_n_train_steps=EVERY, save_top_k=1 if KEEP else -1)
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        callbacks=[Steps(), saves],
    )
    tempfile.tempdir = os.environ.get("SCRATCH")
    source = newest("step=*.ckpt", whole)
    trainer.fit(Model(), Loader(), ckpt_path=source, weights_only=False)


if __name__ == "__main__":
    main()
