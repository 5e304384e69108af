"""Write checkpoints with the real libraries: run with a Python that has torch, numpy and safetensors.

Its argument is where to. It writes the same training at step 1 in every form, and at step 2 as torch.save and DCP.
"""

import os
import random
import sys
import warnings

warnings.filterwarnings("ignore")
import numpy  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
import torch  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
import torch.distributed.checkpoint as dcp  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from safetensors.torch import save_file  # type: ignore[import-not-found,unused-ignore]  # noqa: E402


def main(root: str) -> None:
    os.chdir(root)
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    scaler = torch.amp.GradScaler("cpu")

    def train() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        scheduler.step()

    def state(step: int) -> dict[str, object]:
        states = {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": numpy.random.get_state()}
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "lr_scheduler": scheduler.state_dict(),
            "rng": states,
            "sampler": {"position": step * 8},
            "scaler": scaler.state_dict(),
            "step": step,
        }

    train()
    torch.save(state(1), "zip.pt")
    torch.save(state(1), "legacy.pt", _use_new_zipfile_serialization=False)
    torch.serialization.set_crc32_options(False)
    torch.save(state(1), "unchecked.pt")
    torch.serialization.set_crc32_options(True)
    dcp.save(state(1), checkpoint_id="dcp")
    dcp.async_save(state(1), checkpoint_id="async").result()
    save_file(model.state_dict(), "model.safetensors")
    train()
    torch.save(state(2), "later.pt")
    dcp.save(state(2), checkpoint_id="dcp-later")


if __name__ == "__main__":
    main(sys.argv[1])
