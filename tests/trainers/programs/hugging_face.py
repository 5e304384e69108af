"""Train with the Trainer of transformers, offline: a model of two small layers, made here, on tokens made here."""

import os
from pathlib import Path
from typing import Any

from basics import DEFECT, EVERY, KEEP, STOP_AT, STORE, log, newest
from slow_disk import slow_down

slow_down()  # before its libraries take what is slowed
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from transformers import (  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

TOKENS, LENGTH = 512, 16


class Model(GPT2LMHeadModel):  # type: ignore[misc,unused-ignore]
    """Saved in shards, as large models are: between two there is a moment."""

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        super().save_pretrained(*args, **{**kwargs, "max_shard_size": "1MB"})


class LoggingTrainer(Trainer):  # type: ignore[misc,unused-ignore]
    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        result = super().compute_loss(*args, **kwargs)
        self.last_loss = result.item()
        return result


class Steps(TrainerCallback):  # type: ignore[misc,unused-ignore]
    trainer: LoggingTrainer

    def on_step_end(self, arguments: Any, state: Any, control: Any, lr_scheduler: Any, **_: Any) -> Any:
        log(step=state.global_step, loss=self.trainer.last_loss, lr=lr_scheduler.get_last_lr()[0])
        control.should_training_stop = state.global_step >= STOP_AT
        return control


def whole(path: Path) -> bool:
    return (path / "trainer_state.json").exists()


def main() -> None:
    torch.manual_seed(7)
    model = Model(GPT2Config(n_layer=2, n_head=2, n_embd=256, vocab_size=TOKENS, n_positions=LENGTH))
    texts = torch.randint(TOKENS, (1024, LENGTH), generator=torch.Generator().manual_seed(3))
    arguments = TrainingArguments(
        str(STORE),
        max_steps=1000,
        lr_scheduler_type="cosine",
        save_steps=EVERY,
        save_total_limit=KEEP or None,
        logging_strategy="no",
        per_device_train_batch_size=2,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    steps = Steps()
    steps.trainer = LoggingTrainer(
        model, arguments, train_dataset=[{"input_ids": each, "labels": each} for each in texts], callbacks=[steps]
    )
    if DEFECT == "trusts-latest":
        steps.trainer.train(resume_from_checkpoint=any(STORE.iterdir()))
        return
    source = newest("checkpoint-*", whole)
    if source:
        log(event="resumed", source=source.name, step=int(source.name.rpartition("-")[2]))
    steps.trainer.train(resume_from_checkpoint=str(source) if source else None)


if __name__ == "__main__":
    main()
