"""Train a little with a real framework and let it save: arguments are its name and where to.

Run with a Python that has it. Nothing is fetched: models and data are made here.
"""

import os
import sys
import warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "CUDA_VISIBLE_DEVICES": ""}
warnings.filterwarnings("ignore")
import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402


def vectors(count: int) -> list[torch.Tensor]:
    return [torch.randn(4) for _ in range(count)]


def transformers() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=32))
    texts = [{"input_ids": torch.arange(16), "labels": torch.arange(16)} for _ in range(32)]
    arguments = TrainingArguments(
        ".", max_steps=4, save_steps=2, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True
    )
    Trainer(model=model, args=arguments, train_dataset=texts).train()


def accelerate() -> None:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    project = ProjectConfiguration(project_dir=".", automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=project)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = torch.utils.data.DataLoader(vectors(16), batch_size=2)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    for number, batch in enumerate(loader):
        accelerator.backward(model(batch).sum())
        optimizer.step()
        scheduler.step()
        if number in (2, 4):
            accelerator.save_state()


def lightning() -> None:
    import lightning as framework
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Model(framework.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> object:
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    saves = ModelCheckpoint(".", every_n_train_steps=2, save_top_k=-1, save_last=True)
    trainer = framework.Trainer(
        max_steps=4, accelerator="cpu", enable_progress_bar=False, logger=False, callbacks=[saves]
    )
    trainer.fit(Model(), torch.utils.data.DataLoader(vectors(16), batch_size=2))


if __name__ == "__main__":
    os.chdir(sys.argv[2])
    torch.manual_seed(0)
    {"transformers": transformers, "accelerate": accelerate, "lightning": lightning}[sys.argv[1]]()
