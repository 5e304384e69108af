"""What went wrong for others, rebuilt: each recipe lays out a store and knows the right answer.

Named by the report that it comes from.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import age, dcp, safetensors, torch_zip, train_state

Answer = dict[str, Any]
Recipe = Callable[[Path], Answer]
RECIPES: dict[str, Recipe] = {}


def recipe(name: str) -> Callable[[Recipe], Recipe]:
    def enter(build: Recipe) -> Recipe:
        RECIPES[name] = build
        return build

    return enter


@recipe("transformers#35525 killed in save, trainer_state.json missing")
def _(root: Path) -> Answer:
    lay.hf_trainer(root, 5)
    torn = lay.hf_trainer(root, 10)
    lay.cut(torn / "optimizer.pt")
    for name in ("scheduler.pt", "rng_state.pth", "scaler.pt", "trainer_state.json"):
        (torn / name).unlink()
    return {
        "newest": "checkpoint-5",
        "latest": "checkpoint-10",
        "torn": {"checkpoint-10": "trainer_state.json is missing"},
    }


@recipe("transformers#28015 one rank's file stayed in the staging directory")
def _(root: Path) -> Answer:
    lay.hf_trainer(root, 5, ranks=2)
    torn = lay.hf_trainer(root, 10, ranks=2)
    (root / "tmp-checkpoint-10").mkdir()
    (torn / "rng_state_1.pth").rename(root / "tmp-checkpoint-10" / "rng_state_1.pth")
    return {"newest": "checkpoint-5", "torn": {"checkpoint-10": "rng_state_1.pth is still in tmp-checkpoint-10"}}


@recipe("transformers PR#28848 a staging directory left on another node")
def _(root: Path) -> Answer:
    whole = lay.hf_trainer(root, 10)
    (root / "tmp-checkpoint-10").mkdir()
    lay.copy(whole / "model.safetensors", root / "tmp-checkpoint-10" / "model.safetensors")
    return {"newest": "checkpoint-10", "garbage": ["tmp-checkpoint-10"]}


@recipe("transformers#26961 the highest step has the oldest time")
def _(root: Path) -> Answer:
    for step in (998, 999, 1000):
        lay.hf_trainer(root, step)
    age(root / "checkpoint-1000", 3600)
    return {"newest": "checkpoint-1000", "note": "checkpoint-1000 is of a higher step than checkpoint-999, but older"}


@recipe("transformers#25849 FSDP without scheduler")
def _(root: Path) -> Answer:
    lay.hf_trainer(root, 5)
    path = lay.hf_trainer(root, 10)
    (path / "optimizer.pt").rename(path / "optimizer.bin")
    (path / "scheduler.pt").unlink()
    return {"newest": "checkpoint-5", "suspect": {"checkpoint-10": "no scheduler"}}


@recipe("DeepSpeed#5405 half of the shards stayed in the staging directory")
def _(root: Path) -> Answer:
    lay.hf_trainer(root, 50)
    path = lay.hf_trainer(root, 100)
    lay.deepspeed(path, 100, world=4, shards=2)
    return {"newest": "checkpoint-50", "torn": {"checkpoint-100": "2 optimizer shards are there, dp_world_size is 4"}}


@recipe("diffusion-pipe#159 power cut, newest files have no bytes, no latest")
def _(root: Path) -> Answer:
    for epoch in (418, 420, 422):
        path = lay.deepspeed(root, epoch, name=f"epoch{epoch}")
        for each in path.iterdir() if epoch > 418 else ():
            each.write_bytes(b"")
    return {"newest": "epoch418", "latest": "epoch422", "torn": {"epoch420": "is empty", "epoch422": "is empty"}}


@recipe("Lightning#688 SIGKILL leaves a short last.ckpt")
def _(root: Path) -> Answer:
    torch_zip(root / "step=8.ckpt", lay.lightning_state(8))
    torch_zip(root / "last.ckpt", lay.lightning_state(12), share=0.3)
    return {
        "newest": "step=8.ckpt",
        "latest": "last.ckpt",
        "torn": {"last.ckpt": "no zip directory"},
    }


@recipe("Lightning#18060 completed is one behind processed")
def _(root: Path) -> Answer:
    torch_zip(root / "step=8.ckpt", lay.lightning_state(8, processed=8, completed=7))
    return {"newest": "step=8.ckpt", "member_note": {"step=8.ckpt": "8 processed, 7 completed"}}


@recipe("KempnerForge#102 latest moved before the data was durable")
def _(root: Path) -> Answer:
    lay.cut(dcp(root / "step_200", lay.distributed_state(200)) / "__0_0.distcp")
    (root / "step_200" / ".metadata").unlink()
    (root / "latest").symlink_to("step_200")
    return {
        "newest": None,
        "latest": "step_200",
        "torn": {"step_200": "no .metadata"},
        "note": "step_200 would be taken",
    }


@recipe("NeMo PR#10228 only an unfinished last")
def _(root: Path) -> Answer:
    path = lay.nemo(root, "x-last", 100, unfinished=True)
    (path / "weights" / ".metadata").unlink()
    return {"newest": None, "torn": {"x-last": "marked -unfinished"}}


@recipe("NeMo#14994 a whole one keeps its marker")
def _(root: Path) -> Answer:
    lay.nemo(root, "x-last", 100, unfinished=True)
    return {"newest": None, "suspect": {"x-last": "marked -unfinished, though it is whole"}}


@recipe("NeMo Automodel#603 partial, no LATEST")
def _(root: Path) -> Answer:
    (dcp(root / "epoch_0_step_20", lay.distributed_state(20)) / ".metadata").unlink()
    return {"newest": None, "torn": {"epoch_0_step_20": "no .metadata"}}


@recipe("maxtext PR#5260 no commit_success.txt")
def _(root: Path) -> Answer:
    lay.orbax(root, 1800)
    lay.orbax(root, 1820, committed=False, success=False)
    return {"newest": "1800", "latest": "1820", "torn": {"1820": "commit_success.txt is missing"}}


@recipe("accelerate#2016 the sampler's state was never written")
def _(root: Path) -> Answer:
    lay.accelerate(root, 0, 100, sampler=False)
    return {
        "newest": "checkpoint_0",
        "member_note": {"checkpoint_0": "order of the data starts anew"},
        "lacks": {"checkpoint_0": "data"},
    }


@recipe("speculators#739 any integer is the latest")
def _(root: Path) -> Answer:
    safetensors(root / "6" / "model.safetensors", lay.MODEL)
    lay.cut(safetensors(root / "7" / "model.safetensors", lay.MODEL))
    return {"newest": "6", "latest": "7", "torn": {"7": "its header asks for"}}


@recipe("VeOmni PR#1164 old .metadata, one new shard")
def _(root: Path) -> Answer:
    path = lay.torchtitan(root, 100)
    age(path, 60)
    (path / "__0_0.distcp").touch()
    return {"newest": None, "suspect": {"step-100": "__0_0.distcp is newer than .metadata"}}


@recipe("nvrx PR#359 .metadata cut")
def _(root: Path) -> Answer:
    lay.torchtitan(root, 90)
    lay.cut(lay.torchtitan(root, 100) / ".metadata")
    return {"newest": "step-90", "torn": {"step-100": ".metadata: its pickle ends too soon"}}


@recipe("dddd_trainer#36 the disk was full")
def _(root: Path) -> Answer:
    torch_zip(root / "checkpoint_1.pt", train_state(1))
    torch_zip(root / "checkpoint_2.pt", train_state(2), share=0.7)
    return {"newest": "checkpoint_1.pt", "latest": "checkpoint_2.pt", "torn": {"checkpoint_2.pt": "no zip directory"}}


@recipe("SimpleTuner PR#2989 a stale higher step is kept for ever")
def _(root: Path) -> Answer:
    lay.hf_trainer(root, 400)
    lay.hf_trainer(root, 5000)
    age(root / "checkpoint-5000", 86400)
    return {"newest": "checkpoint-5000", "note": "checkpoint-5000 is of a higher step than checkpoint-400, but older"}


@recipe("tnt PR#559 the asynchronous writer died")
def _(root: Path) -> Answer:
    lay.torchtitan(root, 90)
    (lay.torchtitan(root, 100) / ".metadata").unlink()
    return {"newest": "step-90", "torn": {"step-100": "no .metadata"}}


@recipe("apex#480 no scaler")
def _(root: Path) -> Answer:
    torch_zip(root / "step_1.pt", train_state(1))
    torch_zip(root / "step_2.pt", train_state(2, scaler=None))
    return {"newest": "step_1.pt", "suspect": {"step_2.pt": "it has no scaler, step_1.pt has one"}}


@recipe("dlrover PR#990 the tracker names an empty directory")
def _(root: Path) -> Answer:
    lay.megatron(root, 100)
    (root / "iter_0000200").mkdir()
    (root / "latest_checkpointed_iteration.txt").write_text("200")
    return {"newest": "iter_0000100", "latest": "iter_0000200", "torn": {"iter_0000200": "it is empty"}}


@recipe("Megatron an empty tracker")
def _(root: Path) -> Answer:
    lay.megatron(root, 100)
    (root / "latest_checkpointed_iteration.txt").write_text("")
    return {"newest": "iter_0000100", "note": "latest_checkpointed_iteration.txt is empty"}


@recipe("Megatron killed before metadata.json")
def _(root: Path) -> Answer:
    lay.megatron(root, 100)
    (lay.megatron(root, 200) / "metadata.json").unlink()
    return {"newest": "iter_0000100", "torn": {"iter_0000200": "metadata.json is missing"}}


@recipe("DeepSpeed latest before the second rank's shard")
def _(root: Path) -> Answer:
    lay.deepspeed(root, 1)
    lay.deepspeed(root, 2, shards=1)
    torn = {"global_step2": "1 optimizer shards are there, dp_world_size is 2"}
    return {"newest": "global_step1", "latest": "global_step2", "torn": torn}


@recipe("HF JIT save on SIGTERM was not finished")
def _(root: Path) -> Answer:
    lay.hf_trainer(root, 5)
    (lay.hf_trainer(root, 10) / "checkpoint-is-incomplete.txt").touch()
    return {"newest": "checkpoint-5", "torn": {"checkpoint-10": "checkpoint-is-incomplete.txt is there"}}


@recipe("Orbax killed before the rename")
def _(root: Path) -> Answer:
    lay.orbax(root, 5)
    lay.orbax(root, 10, committed=False, success=False).rename(root / "10.orbax-checkpoint-tmp")
    garbage = ["10.orbax-checkpoint-tmp"]
    return {"newest": "5", "garbage": garbage, "torn": {"10.orbax-checkpoint-tmp": "temporary name"}}


@recipe("Orbax all removed but the name")
def _(root: Path) -> Answer:
    lay.orbax(root, 5)
    lay.orbax(root, 10)
    lay.copy(root / "5" / "commit_success.txt", root / "10" / "commit_success.txt")
    for each in (root / "10" / "default" / "d").iterdir():
        each.unlink()
    return {"newest": "5", "torn": {"10": "default/d is empty"}}
