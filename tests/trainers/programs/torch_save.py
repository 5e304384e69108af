"""Train in plain PyTorch and save with `torch.save`: beside and renamed, or (MODE=in-place) at the final name."""

import os
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from basics import STORE, Training, newest, rotate
from slow_disk import slow_down

MODE = os.environ.get("MODE", "atomic")


def point_to(path: Path) -> None:
    """Write the pointer as one should: beside, and renamed."""
    beside = STORE / "latest.tmp"
    beside.write_text(path.name)
    beside.rename(STORE / "latest")


def save(training: Training) -> None:
    final = STORE / f"step-{training.step}.pt"
    if MODE == "in-place":
        torch.save(training.state(), final)
    else:
        beside = final.with_suffix(".pt.tmp")
        with beside.open("wb") as file:
            torch.save(training.state(), file)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(final)
        point_to(final)
    rotate("step-*.pt")


def whole(path: Path) -> bool:
    """Whether it loads: what is cut does not."""
    try:
        torch.load(path, weights_only=False)
    except (RuntimeError, EOFError):
        return False
    return True


def main() -> None:
    slow_down()
    for left in STORE.glob("*.tmp"):
        left.unlink()
    training = Training()
    source = newest("step-*.pt", whole)
    if source:
        training.restore(torch.load(source, weights_only=False), source.name)
    training.run(lambda: save(training))


if __name__ == "__main__":
    main()
