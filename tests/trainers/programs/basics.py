"""What the real trainers share: a small network, data that can be taken up again, a log, and what is asked of them.

Environment: CHAOS_GPU_STORE, where to save; STOP_AT, the step to end after; KEEP, how many checkpoints stay (0: all);
DEFECT, what this one does wrong.
"""

import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
warnings.filterwarnings("ignore")
import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

WIDTH, LAYERS, BATCH, EXAMPLES = 256, 24, 8, 4096
"""24 layers of 256 KiB, and two moments of each: 18 MiB in some 150 tensors."""
EVERY = 2
STORE = Path(os.environ.get("CHAOS_GPU_STORE", "."))
STOP_AT = int(os.environ.get("STOP_AT", "8"))
KEEP = int(os.environ.get("KEEP", "2"))
DEFECT = os.environ.get("DEFECT", "")

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
torch.manual_seed(7)
random.seed(7)


def log(**fields: object) -> None:
    print(json.dumps(fields), flush=True)


def network() -> torch.nn.Module:
    """Layers with dropout: a resume that forgets the RNG goes on differently."""
    layers = [each for _ in range(LAYERS) for each in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Dropout(0.1))]
    return torch.nn.Sequential(*layers)


def schedule(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)


def example(number: int) -> torch.Tensor:
    return torch.randn(WIDTH, generator=torch.Generator().manual_seed(number))


class Order:
    """Which examples come next: shuffled once, and a position that is part of the state."""

    def __init__(self) -> None:
        self.position = 0
        self.numbers = torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(3)).tolist()

    def batch(self) -> torch.Tensor:
        start = self.position
        self.position += BATCH
        return torch.stack([example(self.numbers[each % EXAMPLES]) for each in range(start, self.position)])


class Training:
    """A training in plain PyTorch; how it is saved is another's."""

    def __init__(self) -> None:
        self.model = network()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scheduler = schedule(self.optimizer)
        self.order = Order()
        self.step = 0

    def advance(self) -> None:
        data = self.order.batch() + random.gauss(0, 0.1)
        loss = (self.model(data) - data).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        log(step=self.step, loss=loss.item(), lr=self.scheduler.get_last_lr()[0])

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "lr_scheduler": self.scheduler.state_dict(),
            "rng": {"torch": torch.get_rng_state(), "python": random.getstate()},
            "sampler": {"position": self.order.position},
            "step": self.step,
        }

    def restore(self, state: dict[str, Any], source: str) -> None:
        self.model.load_state_dict(state["model"])
        if DEFECT != "forgets-optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        if DEFECT != "forgets-scheduler":
            self.scheduler.load_state_dict(state["lr_scheduler"])
        if DEFECT != "forgets-rng":
            torch.set_rng_state(state["rng"]["torch"])
            random.setstate(state["rng"]["python"])
        self.order.position = state["sampler"]["position"]
        self.step = state["step"]
        log(event="resumed", source=source, step=self.step)

    def run(self, save: Callable[[], None]) -> None:
        while self.step < STOP_AT:
            self.advance()
            if self.step % EVERY == 0:
                save()


def number_of(path: Path) -> int:
    return int("".join(filter(str.isdigit, path.name)))


def by_step(pattern: str) -> list[Path]:
    return sorted(STORE.glob(pattern), key=number_of)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def rotate(pattern: str) -> None:
    """Keep the newest; called when the new one is all there."""
    for path in by_step(pattern)[:-KEEP] if KEEP else ():
        remove(path)


def newest(pattern: str, whole: Callable[[Path], bool]) -> Path | None:
    """Choose what to resume from, and remove what an interrupted save has left; the defect chooses by name alone."""
    found = by_step(pattern)
    if DEFECT == "trusts-names":
        return found[-1] if found else None
    for path in found:
        if not whole(path):
            remove(path)
    return max(filter(whole, by_step(pattern)), key=number_of, default=None)
