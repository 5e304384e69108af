"""Kill a real PyTorch training in the middle of a save, resume it, and compare it bit for bit with one left alone.

    python benchmarks/torch_kill.py [--form torch|dcp] [--gib 4] [--fraction 0.5] [--dir /tmp] [--json]

Needs torch, and a GPU for the figures that the documents quote (else it trains on the CPU). Model and both moments of
AdamW live on the device; a save writes them with `torch.save` beside and renames, or with
`torch.distributed.checkpoint.async_save` (its marker `.metadata` last). The killer is the one that runs on a node; the
comparison is the reader's. Exit 1 when the states differ, or the kill was not one.
"""

import argparse
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[1]
STEPS, EVERY, LAYERS = 16, 4, 8


def train(form: str, root: Path, gib: float) -> int:
    import torch

    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(7)
    width = int((gib * 2**30 / 12 / LAYERS) ** 0.5) // 64 * 64
    layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(width, width), torch.nn.Dropout(0.1))]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    store = (TorchStore if form == "torch" else DcpStore)(root, model, optimizer, scheduler, device)
    first = store.resume()
    for step in range(first + 1, STEPS + 1):
        data = torch.randn(64, width, generator=torch.Generator().manual_seed(step)).to(device)
        loss = (model(data) - data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        print(json.dumps({"step": step, "loss": loss.item(), "lr": scheduler.get_last_lr()[0]}), flush=True)
        if step % EVERY == 0:
            begun = time.monotonic()
            store.save(step)
            print(json.dumps({"event": "saved", "step": step, "blocked_s": time.monotonic() - begun}), flush=True)
    store.close()
    return 0


class TorchStore:
    """One file a checkpoint."""

    def __init__(self, root: Path, model: Any, optimizer: Any, scheduler: Any, device: str) -> None:
        self.root, self.model, self.optimizer, self.scheduler, self.device = root, model, optimizer, scheduler, device

    def state(self, step: int) -> dict[str, Any]:
        import torch

        rng = torch.cuda.get_rng_state() if self.device == "cuda" else torch.get_rng_state()
        parts = {"model": self.model, "optimizer": self.optimizer, "scheduler": self.scheduler}
        return {**{name: part.state_dict() for name, part in parts.items()}, "rng": {"torch": rng}, "step": step}

    def restore(self, state: dict[str, Any]) -> int:
        import torch

        for name in ("model", "optimizer", "scheduler"):
            getattr(self, name).load_state_dict(state[name])
        rng = state["rng"]["torch"].cpu()
        torch.cuda.set_rng_state(rng) if self.device == "cuda" else torch.set_rng_state(rng)
        return int(state["step"])

    def newest(self, pattern: str) -> Path | None:
        return max(self.root.glob(pattern), key=lambda path: int("".join(filter(str.isdigit, path.name))), default=None)

    def save(self, step: int) -> None:
        import torch

        beside = self.root / f"step-{step}.pt.tmp"
        with beside.open("wb") as file:
            torch.save(self.state(step), file)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self.root / f"step-{step}.pt")

    def resume(self) -> int:
        import torch

        found = self.newest("step-*.pt")
        return self.restore(torch.load(found, weights_only=False, map_location=self.device)) if found else 0

    def close(self) -> None: ...


class DcpStore(TorchStore):
    """One directory a checkpoint, written by a thread while the training goes on."""

    def __init__(self, *parts: Any) -> None:
        import torch.distributed as dist

        super().__init__(*parts)
        meeting = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115 - the process group owns it
        dist.init_process_group("gloo", init_method=f"file://{meeting.name}x", rank=0, world_size=1)
        self.pending: Any = None

    def save(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        self.close()
        self.pending = dcp.async_save(self.state(step), checkpoint_id=str(self.root / f"step-{step}"))

    def resume(self) -> int:
        import torch.distributed.checkpoint as dcp

        whole = [path.parent for path in self.root.glob("step-*/.metadata")]
        if not whole:
            return 0
        for parameter in self.model.parameters():  # there are no moments to load into before the first step
            parameter.grad = parameter * 0
        self.optimizer.step()
        state = self.state(0)
        newest = max(whole, key=lambda path: int(path.name.split("-")[1]))
        dcp.load(state, checkpoint_id=str(newest))
        return self.restore({**state, "step": int(newest.name.split("-")[1])})

    def close(self) -> None:
        if self.pending:
            self.pending.result()


def start(form: str, root: Path, gib: float, mark: str) -> "subprocess.Popen[str]":
    root.mkdir(exist_ok=True)
    command = [sys.executable, __file__, "--form", form, "--gib", str(gib), "--train", str(root)]
    environment = {**os.environ, "CHAOS_GPU_TRAINING": mark, "CHAOS_GPU_STORE": str(root)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> list[dict[str, Any]]:
    out, _ = process.communicate()
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def kill_one(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    sys.path.insert(0, str(REPO))
    from chaos_gpu.payloads.checkpoint_document import inspect
    from chaos_gpu.payloads.followed import Followed
    from chaos_gpu.payloads.save_killer import Hunt

    reference = finish(start(options.form, scratch / "reference", options.gib, "reference"))
    subject = start(options.form, scratch / "subject", options.gib, "subject")
    spec = {"phase": "data", "fraction": options.fraction, "means": "freeze", "attempts": 9, "wait_s": 400}
    hunt = Hunt(spec, Followed("subject", "subject"), [])
    with contextlib.redirect_stdout(io.StringIO()):
        evidence = hunt.run()
    before = finish(subject)
    if evidence is None:
        return {"ok": False, "why": hunt.reason(), "misses": hunt.misses}
    begun = time.monotonic()
    after = finish(start(options.form, scratch / "subject", options.gib, "subject"))
    name = f"step-{STEPS}.pt" if options.form == "torch" else f"step-{STEPS}"
    found = inspect(str(scratch / "subject" / name), against=str(scratch / "reference" / name))
    losses = {line["step"]: (line["loss"], line["lr"]) for line in reference if "loss" in line}
    again = {line["step"]: (line["loss"], line["lr"]) for line in after if "loss" in line}
    keys = ("fraction", "expected_bytes", "record_bytes", "frozen_ms", "uncommitted", "frozen_by")
    return {
        "form": options.form,
        "killed": {key: evidence[key] for key in keys},
        "exit_code": subject.returncode,
        "newest_complete": evidence["store"].get("newest_complete"),
        "first_new_step": min(again, default=None),
        "lost_steps": sum("loss" in line for line in before) - (min(again, default=1) - 1),
        "values_compared": len(found["state_crcs"] or ()),
        "differs": found["differs"],
        "losses_equal": all(losses[step] == value for step, value in again.items()),
        "blocked_s": [round(line["blocked_s"], 3) for line in reference if line.get("event") == "saved"],
        "second_run_s": round(time.monotonic() - begun, 1),
        "ok": found["differs"] == [] and evidence["uncommitted"] and subject.returncode == -signal.SIGKILL,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=["torch", "dcp"], default="torch")
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--fraction", type=float, default=0.5)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        return train(options.form, options.train, options.gib)
    if find_spec("torch") is None:
        print("torch is not installed here: nothing is measured")
        return 0
    scratch = Path(tempfile.mkdtemp(dir=options.dir))
    try:
        report = kill_one(options, scratch)
    finally:
        shutil.rmtree(scratch)
    print(json.dumps(report, indent=1) if options.json else report)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
