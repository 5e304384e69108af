"""Lay out checkpoints as the frameworks do: which files, and what is in them."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.checkpoint_writers import MODEL, Instance, dcp, noise, safetensors, torch_zip, train_state


def hf_trainer(root: Path, step: int, ranks: int = 1, **changes: Any) -> Path:
    """checkpoint-N of transformers' Trainer."""
    path, state = root / f"checkpoint-{step}", train_state(step, **changes)
    safetensors(path / "model.safetensors", MODEL)
    (path / "config.json").write_text("{}")
    torch_zip(path / "training_args.bin", Instance("transformers.training_args.TrainingArguments", {"seed": 42}))
    for name in ("optimizer", "scheduler", "scaler"):
        torch_zip(path / f"{name}.pt", state.get(name, {}))
    for rank in range(ranks):
        name = "rng_state.pth" if ranks == 1 else f"rng_state_{rank}.pth"
        torch_zip(path / name, {"cpu": state["rng"]["torch"], "python": state["rng"]["python"]})
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": step / 10, "log_history": []}))
    return path


def accelerate(root: Path, number: int, step: int, sampler: bool = True) -> Path:
    """checkpoint_i of Accelerate's save_state."""
    path, state = root / f"checkpoint_{number}", train_state(step)
    safetensors(path / "model.safetensors", MODEL)
    for name in ("optimizer", "scheduler"):
        torch_zip(path / f"{name}.bin", state[name])
    if sampler:
        torch_zip(path / "sampler.bin", state["data"])
    torch_zip(path / "scaler.pt", state["scaler"])
    torch_zip(path / "random_states_0.pkl", {"step": step, "random_state": state["rng"]["python"]})
    return path


def lightning_state(step: int, processed: int | None = None, completed: int | None = None) -> dict[str, Any]:
    """What one .ckpt of Lightning holds."""
    state = train_state(step)
    current = {"ready": step, "processed": processed or step, "completed": completed or step}
    return {
        "epoch": 0,
        "global_step": step,
        "pytorch-lightning_version": "2.6.6",
        "state_dict": dict(MODEL),
        "loops": {"fit_loop": {"epoch_loop.batch_progress": {"total": dict(current), "current": current}}},
        "callbacks": {"ModelCheckpoint": {"dirpath": f"/somewhere/{step}", "best_model_path": ""}},
        "optimizer_states": [state["optimizer"]],
        "lr_schedulers": [state["scheduler"]],
        "MixedPrecision": state["scaler"],
    }


def distributed_state(step: int) -> dict[str, Any]:
    """What torchtitan saves with DCP: model keys stand at the top, no RNG."""
    return {
        **MODEL,
        "optimizer.state.layer.weight.exp_avg": noise(64, 2),
        "optimizer.param_groups.layer.weight.lr": 0.001,
        "lr_scheduler.last_epoch": step,
        "dataloader.dp_rank_0": b"\x80\x03}q\x00.",
        "train_state.step": step,
    }


def torchtitan(root: Path, step: int, files: int = 2) -> Path:
    """step-N of torchtitan."""
    return dcp(root / f"step-{step}", distributed_state(step), files)


def megatron(root: Path, step: int) -> Path:
    """iter_NNNNNNN of Megatron-LM: DCP, then metadata.json; common.pt holds what is no tensor."""
    state = {
        "model.layer.weight": noise(64),
        "optimizer.state.exp_avg.layer.weight": noise(64, 2),
        "rng_state": noise(8),
    }
    path = dcp(root / f"iter_{step:07d}", state, files=2)
    args = Instance("argparse.Namespace", {"consumed_train_samples": step * 8, "lr": 0.001})
    torch_zip(path / "common.pt", {"args": args, "iteration": step, "opt_param_scheduler": {"num_steps": step * 8}})
    (path / "metadata.json").write_text(json.dumps({"sharded_backend": "torch_dist", "sharded_backend_version": 1}))
    (root / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def megatron_legacy(root: Path, step: int) -> Path:
    """iter_NNNNNNN of Megatron-LM before distributed checkpoints."""
    path = root / f"iter_{step:07d}"
    for rank in range(2):
        state = {
            "iteration": step,
            "model": dict(MODEL),
            "optimizer": {"lr": 0.1},
            "rng_state": [{"random_rng_state": 1}],
        }
        torch_zip(
            path / f"mp_rank_{rank:02d}" / "model_optim_rng.pt", {**state, "opt_param_scheduler": {"num_steps": step}}
        )
    (root / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def deepspeed(root: Path, step: int, world: int = 2, shards: int | None = None, name: str = "") -> Path:
    """global_stepN of DeepSpeed ZeRO; `latest` beside it."""
    path, state = root / (name or f"global_step{step}"), train_state(step)
    whole = {"module": dict(MODEL), "lr_scheduler": state["scheduler"], "global_steps": step, "dp_world_size": world}
    torch_zip(path / "mp_rank_00_model_states.pt", whole)
    for rank in range(world if shards is None else shards):
        optimizer = {"optimizer_state_dict": {"base_optimizer_state": state["optimizer"], "partition_count": world}}
        torch_zip(path / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", optimizer)
    if not name:
        (root / "latest").write_text(path.name)
    return path


def nemo(root: Path, name: str, step: int, unfinished: bool = False) -> Path:
    """A checkpoint of NeMo 2: weights as DCP, context beside them, and the marker while it is written."""
    path = root / name
    dcp(path / "weights", {"module.layer.weight": noise(64), "optimizer.state.exp_avg": noise(64, 2)})
    torch_zip(path / "weights" / "common.pt", {"global_step": step, "loops": {}, "state_dict": {}})
    (path / "context").mkdir()
    if unfinished:
        (root / f"{name}-unfinished").touch()
    return path


def orbax(root: Path, step: int, committed: bool = True, success: bool = True) -> Path:
    """N of Orbax: one item in OCDBT form."""
    path = root / str(step)
    (path / "default" / "d").mkdir(parents=True)
    (path / "default" / "d" / "0123").write_bytes(b"\0" * 64)
    (path / "default" / "manifest.ocdbt").write_bytes(b"\x0c\xdb\x3a\x2a")
    tree = {"('params', 'w')": {}, "('opt_state', '0')": {}, "('step',)": {}}
    (path / "default" / "_METADATA").write_text(json.dumps({"tree_metadata": tree}))
    stamps = {"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2 if committed else None}
    (path / "_CHECKPOINT_METADATA").write_text(json.dumps(stamps))
    if success:
        (path / "commit_success.txt").write_text("Checkpoint commit was successful")
    return path


def cut(path: Path, share: float = 0.5) -> Path:
    """Leave a file's first part."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def flip(path: Path, part: bytes) -> Path:
    """Flip one bit in the middle of a known part of a file."""
    data = bytearray(path.read_bytes())
    data[data.index(part) + len(part) // 2] ^= 1
    path.write_bytes(data)
    return path


def copy(path: Path, to: Path) -> Path:
    """Copy a checkpoint as it is, times and all."""
    (shutil.copytree if path.is_dir() else shutil.copy2)(path, to)
    return to
