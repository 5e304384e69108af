"""Read the directories of frameworks: which files they hold, in which order they are written, what may be missing.

Sources: transformers/trainer.py, accelerate/checkpointing.py, deepspeed/runtime/engine.py, nemo/lightning/io,
megatron/training/checkpointing.py, torchtitan/components/checkpoint.py, orbax/checkpoint: the releases that
docs/checkpoints.md names.
"""

import json
import os
import re
from typing import Any, Dict, List, Optional

from chaos_gpu.payloads.checkpoint_dcp import is_dcp, read_dcp
from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files, Strange, Torn, names_in, shown
from chaos_gpu.payloads.checkpoint_parts import component_of, name_step, sort_in
from chaos_gpu.payloads.checkpoint_reading import Reading, state_of
from chaos_gpu.payloads.checkpoint_safetensors import read_safetensors, tensors_states
from chaos_gpu.payloads.checkpoint_torch import read_torch

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl")
FOLDERS = ("hf-trainer", "accelerate", "lightning", "megatron", "deepspeed", "nemo", "plain")
INCOMPLETE_SENTINEL = "checkpoint-is-incomplete.txt"


def read_file(files: Files, path: str, reading: Reading, deep: bool, component: Optional[str] = None) -> Any:
    """Enter one file of tensors under its component; return its tree.

    What is wrong with it is told with its name; so is a content of another kind, where the file is part of a save.
    """
    name = os.path.basename(path)
    try:
        with files.open(path) as span:
            if name.endswith(".safetensors"):
                files.expected[path] = _enter_safetensors(span, reading, deep, component or "model", name)
                return None
            found = read_torch(span, deep)
            files.expected[path] = found.expected or 0
            reading.torn += [f"{shown(name)}: {reason}" for reason in found.torn]
            if found.tree is not None:
                sort_in(reading, found.tree, found.checksum, component)
            return found.tree
    except Torn as torn:
        reading.torn.append(f"{shown(name)}: {torn}")
    except CheckpointError as error:
        if isinstance(error, Strange) and reading.format in FOLDERS:
            reading.torn.append(f"{shown(name)}: {error}")
        else:
            raise CheckpointError(f"{shown(name)}: {error}") from None
    return None


def _enter_safetensors(span: Any, reading: Reading, deep: bool, component: str, name: str) -> int:
    found = read_safetensors(span)
    reading.torn += [f"{shown(name)}: {reason}" for reason in found.torn]
    reading.components.add(component)
    if deep:
        reading.states.update(tensors_states(span, found, component))
    return found.expected or 0


def read_json(files: Files, path: str, reading: Reading) -> Dict[str, Any]:
    """Return a JSON object; what is wrong with it is entered, and an empty one returned."""
    name = os.path.basename(path)
    try:
        found = json.loads(files.text(path, 64 << 20))
    except Torn as torn:
        reading.torn.append(str(torn))
    except (ValueError, RecursionError):
        reading.torn.append(f"{shown(name)} is no whole JSON")
    else:
        if isinstance(found, dict):
            return found
        reading.torn.append(f"{shown(name)} is no JSON object")
    return {}


def enter_parts(
    files: Files, path: str, names: List[str], reading: Reading, deep: bool, table: Dict[str, str]
) -> Dict[str, Any]:
    """Enter each file whose name a pattern of the table matches, several ranks' files apart; return {name: tree}."""
    trees: Dict[str, Any] = {}
    for name in names:
        component = next((part for pattern, part in table.items() if re.fullmatch(pattern, name)), None)
        if component is None:
            continue
        before, reading.states = reading.states, {}
        trees[name] = read_file(files, os.path.join(path, name), reading, deep, component)
        rank = re.search(r"_(\d+)\.\w+$", name)
        marked = f"{component}.{rank[1]}" if rank else component
        before.update({marked + key[len(component) :]: state for key, state in reading.states.items()})
        reading.states = before
    return trees


def ranks_missing(names: List[str], pattern: str) -> List[int]:
    """Return the ranks that are missing below the highest one that has a file of this pattern."""
    ranks = {int(match[1]) for match in (re.fullmatch(pattern, name) for name in names) if match}
    return sorted(set(range(max(ranks, default=-1) + 1)) - ranks)


HF_PARTS = {
    r"optimizer(_\d+)?\.(pt|bin)": "optimizer",
    r"scheduler\.(pt|bin)": "scheduler",
    r"rng_state(_\d+)?\.pth": "rng",
    r"scaler\.pt": "scaler",
    r"(pytorch_model|adapter_model)(_\d+)?\.bin|pytorch_model-\d+-of-\d+\.bin": "model",
    r"(model|adapter_model|model-\d+-of-\d+)\.safetensors": "model",
}


def read_hf_trainer(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """Transformers' Trainer: no commit marker; rank 0 writes trainer_state.json last. Data position = global_step."""
    enter_parts(files, path, names, reading, deep, HF_PARTS)
    _read_engines(files, path, names, reading, deep)
    if "training_args.bin" in names:  # no state, but part of the save
        beside = Reading(reading.format)
        read_file(files, os.path.join(path, "training_args.bin"), beside, deep)
        reading.torn += beside.torn
    state: Dict[str, Any] = {}
    if "trainer_state.json" in names:
        state = read_json(files, os.path.join(path, "trainer_state.json"), reading)
    else:
        reading.torn.append("trainer_state.json is missing: rank 0 writes it last")
    if type(state.get("global_step")) is int:
        reading.step = state["global_step"]
        reading.components.add("data")
        for key in ("global_step", "epoch"):
            reading.states[f"data.{key}"] = state_of(state.get(key), lambda tensor: None)
        stated = name_step(os.path.basename(path))
        if stated != reading.step and re.fullmatch(r"checkpoint-\d+", os.path.basename(path)):
            reading.doubts.append(f"its name says {stated}, trainer_state.json says {reading.step}")
    elif "trainer_state.json" in names and not reading.torn:
        reading.torn.append("trainer_state.json states no global_step")
    if "model" not in reading.components:
        reading.torn.append("it has no model file")
    _check_index(files, path, names, reading)
    if INCOMPLETE_SENTINEL in names:
        reading.torn.append(f"{INCOMPLETE_SENTINEL} is there: a save on SIGTERM was not finished")
    reading.torn += [f"rng_state_{rank}.pth is missing" for rank in ranks_missing(names, r"rng_state_(\d+)\.pth")]
    for have, lack in (("optimizer", "scheduler"), ("scheduler", "optimizer")):
        if have in reading.components and lack not in reading.components:
            reading.doubts.append(f"it has a {have} and no {lack}: the Trainer would start it anew without a word")


def _read_engines(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """FSDP and DeepSpeed put directories of their own into the Trainer's."""
    for name in names:
        inner = os.path.join(path, name)
        if not os.path.isdir(inner):
            continue
        if re.fullmatch(r"global_step\d+", name):
            read_deepspeed(files, inner, names_in(files.inside(inner)), reading, deep)
        elif re.fullmatch(r"(pytorch_model_fsdp|optimizer)_\d+", name):
            read_dcp(files, inner, reading, deep, "optimizer" if name.startswith("optimizer") else "model")
    if "latest" in names:
        try:
            tag = files.text(os.path.join(path, "latest"), 4096).strip()
        except Torn:
            tag = ""
        if not tag:
            reading.torn.append("latest is empty")
        elif tag not in names:
            reading.torn.append(f"latest names {shown(tag)}, which is not there")


def _check_index(files: Files, path: str, names: List[str], reading: Reading) -> None:
    for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        if index in names:
            weights = read_json(files, os.path.join(path, index), reading).get("weight_map")
            shards = {str(each) for each in weights.values()} if isinstance(weights, dict) else set()
            reading.torn += [f"{shown(each)} is missing, {index} names it" for each in sorted(shards - set(names))]


ACCELERATE_PARTS = {
    r"optimizer(_\d+)?\.bin": "optimizer",
    r"scheduler(_\d+)?\.bin": "scheduler",
    r"(sampler|dl_state_dict)(_\d+)?\.bin": "data",
    r"scaler\.pt": "scaler",
    r"random_states_\d+\.pkl": "rng",
    r"pytorch_model(_\d+)?\.bin": "model",
    r"model(_\d+)?(-\d+-of-\d+)?\.safetensors": "model",
}


def read_accelerate(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """Accelerate's save_state: no commit marker; each rank's random_states are last, but for registered objects."""
    trees = enter_parts(files, path, names, reading, deep, ACCELERATE_PARTS)
    states = trees.get("random_states_0.pkl")
    if type(states) is dict and type(states.get("step")) is int:
        reading.step = states["step"]
    if not any(re.fullmatch(r"random_states_\d+\.pkl", name) for name in names):
        reading.torn.append("random_states_0.pkl is missing: it is written last")
    missing = ranks_missing(names, r"random_states_(\d+)\.pkl")
    reading.torn += [f"random_states_{rank}.pkl is missing" for rank in missing]
    registered = [name for name in names if re.fullmatch(r"custom_checkpoint_\d+\.pkl", name)]
    for name in registered:
        _read_registered(files, os.path.join(path, name), reading, deep)
    reading.torn += [f"custom_checkpoint_{each}.pkl is missing" for each in ranks_missing(registered, r"\D+(\d+)\.pkl")]
    if "model" not in reading.components:
        reading.torn.append("it has no model file")
    _check_index(files, path, names, reading)
    if "data" not in reading.components:
        unless = ", unless a registered object holds it" if registered else ""
        reading.notes.append(
            f"no state of a sampler or data loader was saved: the order of the data starts anew{unless}"
        )


def _read_registered(files: Files, path: str, reading: Reading, deep: bool) -> None:
    """Enter an object registered with Accelerate: its own keys say to which components it belongs, if to any."""
    own = Reading(reading.format)
    read_file(files, path, own, deep)
    reading.torn += own.torn
    reading.components |= own.components
    which = os.path.basename(path)[: -len(".pkl")]
    for key, state in own.states.items():
        component, _, rest = key.partition(".")
        known = component in own.components
        reading.states[f"{component}.{which}.{rest}" if known else f"{which}.{key}"] = state


def read_deepspeed(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """DeepSpeed: model states, one optimizer file a data-parallel rank; `latest` may come before all are there."""
    models = [name for name in names if name.endswith("_model_states.pt")]
    shards = [name for name in names if re.fullmatch(r"(bf16_)?zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt", name)]
    trees = [read_file(files, os.path.join(path, name), reading, deep) for name in models]
    for name in shards:
        states, reading.states = reading.states, {}
        tree = read_file(files, os.path.join(path, name), reading, deep, "optimizer")
        states.update({f"optimizer.{name.split('_mp_')[0]}{key[9:]}": each for key, each in reading.states.items()})
        reading.states = states
        inner = tree.get("optimizer_state_dict") if type(tree) is dict else None
        if type(inner) is dict and inner.get("dynamic_loss_scale"):
            reading.components.add("scaler")
    if not models:
        reading.torn.append("it has no file of model states")
    reading.states.pop("dp_world_size", None)
    world = next((tree.get("dp_world_size") for tree in trees if type(tree) is dict), None)
    if type(world) is int and shards and len(shards) < world * max(1, len({_model_rank(each) for each in shards})):
        reading.torn.append(f"{len(shards)} optimizer shards are there, dp_world_size is {world}")


def _model_rank(name: str) -> str:
    return name.partition("_mp_rank_")[2][:2]


def read_megatron(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """Megatron-LM: DCP, then metadata.json; or mp_rank directories; then the tracker beside it."""
    ranks = [name for name in names if re.fullmatch(r"mp_rank_\d+(_\d+)*", name)]
    if is_dcp(names) or not ranks:
        if not names:
            reading.torn.append("it is empty")
            return
        read_dcp(files, path, reading, deep, "model")
        if "metadata.json" in names:
            read_json(files, os.path.join(path, "metadata.json"), reading)
        else:
            reading.torn.append("metadata.json is missing: it is written after .metadata")
        if "common.pt" in names:
            read_file(files, os.path.join(path, "common.pt"), reading, deep)
    for rank in ranks:
        states, reading.states = reading.states, {}
        inner = names_in(files.inside(os.path.join(path, rank)))
        if "model_optim_rng.pt" not in inner:
            reading.torn.append(f"{rank}/model_optim_rng.pt is missing")
        for name in inner:
            if name.endswith(".pt"):
                component = "optimizer" if name == "distrib_optim.pt" else None
                read_file(files, os.path.join(path, rank, name), reading, deep, component)
        states.update({f"{key}@{rank}" if len(ranks) > 1 else key: each for key, each in reading.states.items()})
        reading.states = states
    if any(re.fullmatch(r"train_dataloader_dprank\d+\.pt", name) for name in names):
        reading.components.add("data")
        enter_parts(files, path, names, reading, deep, {r"train_dataloader_dprank\d+\.pt": "data"})
    if any(key.endswith("args.consumed_train_samples") for key in reading.states):
        reading.components.add("data")


def read_orbax(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """Orbax: a temporary name, commit_success.txt, a rename. OCDBT data is not checked, nor are states compared."""
    if ".orbax-checkpoint-tmp" in os.path.basename(path):
        reading.torn.append("it still has its temporary name")
    timestamp: Any = None
    if "_CHECKPOINT_METADATA" in names:
        stated = read_json(files, os.path.join(path, "_CHECKPOINT_METADATA"), reading)
        timestamp = stated.get("commit_timestamp_nsecs")
        if not timestamp and not reading.torn:
            reading.torn.append("_CHECKPOINT_METADATA has no commit_timestamp_nsecs: it was not committed")
    items = [name for name in names if os.path.isdir(os.path.join(path, name))]
    if "commit_success.txt" not in names:
        if timestamp is None:
            reading.torn.append("commit_success.txt is missing, its commit marker")
        else:
            reading.doubts.append("commit_success.txt is missing, its commit marker")
    if not items and "manifest.ocdbt" not in names:
        reading.torn.append("it has no item: its data is gone")
    for item in items:
        _check_item(files, os.path.join(path, item), item, reading)
    reading.notes.append("unsupported: OCDBT data is not checked, and states are not compared")


def _check_item(files: Files, path: str, item: str, reading: Reading) -> None:
    names = names_in(files.inside(path))
    if "_METADATA" in names:
        tree = read_json(files, os.path.join(path, "_METADATA"), reading).get("tree_metadata")
        for key in tree if isinstance(tree, dict) else ():
            top = re.match(r"\('(\w+)'", key)
            reading.components |= {each for each in [top and component_for(top[1])] if each}
        if "manifest.ocdbt" in names and not ("d" in names and os.listdir(os.path.join(path, "d"))):
            reading.torn.append(f"{shown(item)}/d is empty or missing: its data is gone")
    elif item in ("dataset", "data", "grain"):
        reading.components.add("data")


def component_for(key: str) -> Optional[str]:
    """Return the component of a key of a JAX state: params are the model, opt_state the optimizer."""
    from_jax = {"params": "model", "opt_state": "optimizer", "batch_stats": "model", "key": "rng", "prng_key": "rng"}
    return from_jax.get(key) or component_of(key)


def read_marked(path: str, reading: Reading) -> None:
    """NeMo: the marker `NAME-unfinished` beside a checkpoint is removed once it is whole."""
    if os.path.exists(path.rstrip("/") + "-unfinished"):
        whole = not reading.torn
        target = reading.doubts if whole else reading.torn
        target.append("it is marked -unfinished" + (", though it is whole" if whole else ""))
