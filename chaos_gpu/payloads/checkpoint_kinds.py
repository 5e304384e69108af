"""Tell what a path is: which framework's checkpoint, or a store of several; and read one."""

import os
import re
from typing import Callable, Dict, List, Optional

from chaos_gpu.payloads.checkpoint_dcp import is_dcp, read_dcp
from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files, names_in, shown
from chaos_gpu.payloads.checkpoint_frameworks import (
    TORCH_SUFFIXES,
    read_accelerate,
    read_deepspeed,
    read_file,
    read_hf_trainer,
    read_marked,
    read_megatron,
    read_orbax,
)
from chaos_gpu.payloads.checkpoint_parts import name_step
from chaos_gpu.payloads.checkpoint_reading import Reading

MEMBER = re.compile(
    r"(tmp-)?checkpoint[-_]\d+|iter_\d{7}|global_step\d+|step[-_]\d+|\d+(\.orbax-checkpoint-tmp(-\d+)?)?"
    r"|epoch[-_=]?\d+([-_]+(global_)?step[-_=]?\d+)?|.*(-last|-end|\.ckpt)|.*step[=_]\d+.*"
)
FILE_SUFFIXES = (*TORCH_SUFFIXES, ".safetensors")
STAGING = "tmp-checkpoint-"
ORBAX_NAMES = {"_CHECKPOINT_METADATA", "commit_success.txt", "manifest.ocdbt"}

Framework = Callable[[Files, str, List[str], Reading, bool], None]


def members_of(path: str) -> List[str]:
    """Return the names in a directory that are checkpoints of a store, none if it is one checkpoint itself."""
    names = [name for name in names_in(path) if not os.path.islink(os.path.join(path, name))]
    folders = [name for name in names if MEMBER.fullmatch(name) and os.path.isdir(os.path.join(path, name))]
    if folders and not MEMBER.fullmatch(os.path.basename(path)):
        files = [name for name in names if name.endswith((".ckpt", ".pt")) and os.path.isfile(os.path.join(path, name))]
        return folders + files
    if kind_of(path, names):
        return []
    return folders + [name for name in names if name.endswith(FILE_SUFFIXES) and name not in folders]


def kind_of(path: str, names: List[str]) -> str:
    """Return the name of the format of a directory, "" if it is none that is known."""
    base, known = os.path.basename(path), set(names)
    if ".orbax-checkpoint-tmp" in base or known & ORBAX_NAMES or _has_orbax_item(path, names):
        return "orbax"
    if {"weights", "context"} <= known or os.path.exists(path + "-unfinished"):
        return "nemo"
    if re.fullmatch(r"iter_\d{7}|release", base) or any(re.fullmatch(r"mp_rank_\d+(_\d+)*", name) for name in names):
        return "megatron"
    if any(name.endswith(("_model_states.pt", "_optim_states.pt")) for name in names):
        return "deepspeed"
    if re.fullmatch(r"(tmp-)?checkpoint-\d+", base) or "trainer_state.json" in known:
        return "hf-trainer"
    if re.fullmatch(r"checkpoint_\d+", base) or any(re.fullmatch(r"random_states_\d+\.pkl", name) for name in names):
        return "accelerate"
    if is_dcp(names):
        if "meta.pt" in known or base.endswith(".ckpt"):
            return "lightning"
        return "torchtitan" if re.fullmatch(r"step-\d+", base) else "dcp"
    if MEMBER.fullmatch(base):
        return "safetensors" if any(name.endswith(".safetensors") for name in names) else "torch-zip"
    return ""


def _has_orbax_item(path: str, names: List[str]) -> bool:
    marks = ("manifest.ocdbt", "_METADATA")
    return any(os.path.exists(os.path.join(path, name, mark)) for name in names for mark in marks)


def _read_plain(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    """Read a directory whose name alone says that it is a checkpoint: each file that is known must be whole."""
    known = [name for name in names if name.endswith(FILE_SUFFIXES)]
    for name in known:
        read_file(files, os.path.join(path, name), reading, deep)
    if not known:
        reading.torn.append("it holds no file of tensors")


def _read_dcp(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    read_dcp(files, path, reading, deep, "model" if reading.format == "torchtitan" else "")


def _read_lightning(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    read_dcp(files, path, reading, deep, "model")
    if "meta.pt" in names:
        read_file(files, os.path.join(path, "meta.pt"), reading, deep)
    else:
        reading.torn.append("meta.pt is missing: it is written last")


def _read_nemo(files: Files, path: str, names: List[str], reading: Reading, deep: bool) -> None:
    inner = os.path.join(path, "weights") if "weights" in names else path
    inside = names_in(files.inside(inner))
    if is_dcp(inside) or not inside:
        read_dcp(files, inner, reading, deep, "model")
        if "common.pt" in inside:
            read_file(files, os.path.join(inner, "common.pt"), reading, deep)
    else:
        _read_plain(files, inner, inside, reading, deep)
    read_marked(path, reading)


FRAMEWORKS: Dict[str, Framework] = {
    "orbax": read_orbax,
    "nemo": _read_nemo,
    "megatron": read_megatron,
    "deepspeed": read_deepspeed,
    "hf-trainer": read_hf_trainer,
    "accelerate": read_accelerate,
    "lightning": _read_lightning,
    "torchtitan": _read_dcp,
    "dcp": _read_dcp,
    "safetensors": _read_plain,
    "torch-zip": _read_plain,
}


def read_one(files: Files, path: str, deep: bool) -> Reading:
    """Read one checkpoint, a file or a directory.

    Raises:
        CheckpointError: none of the formats, or hostile.
    """
    real = files.inside(path)
    files.changed.clear()
    reading = (_read_folder if os.path.isdir(real) else _read_single)(files, real, deep)
    reading.torn += [f"{shown(name)} changed while it was read" for name in files.changed]
    if reading.step is None:
        reading.step = name_step(os.path.basename(real))
    return reading


def _read_folder(files: Files, path: str, deep: bool) -> Reading:
    names = names_in(path)
    kind = kind_of(path, names)
    if not kind:
        raise CheckpointError(f"{shown(path)} holds no checkpoint of a known format")
    reading = Reading("plain" if FRAMEWORKS[kind] is _read_plain else kind)
    reading.files = files.sizes(path)
    FRAMEWORKS[kind](files, path, names, reading, deep)
    reading.format = kind
    if os.path.basename(path).startswith(STAGING):
        reading.torn.append("it still has its staging name")
    return reading


def _read_single(files: Files, path: str, deep: bool) -> Reading:
    name = os.path.basename(path)
    if name.endswith(".distcp"):
        raise CheckpointError(f"{shown(name)} is one shard; name its directory")
    reading = Reading("safetensors" if name.endswith(".safetensors") else "torch-zip")
    with files.open(path) as span:
        reading.files = {name: span.size}
        if not name.endswith(".safetensors"):
            reading.format = _torch_format(span.head(min(span.size, 2)))
    tree_format = reading.format
    read_file(files, path, reading, deep)
    reading.torn = [reason.replace(f"{shown(name)}: ", "", 1) for reason in reading.torn]
    reading.expected = reading.expected or files.expected.get(path)
    reading.format = reading.format if reading.format == "lightning" else tree_format
    read_marked(re.sub(r"\.ckpt$", "", path), reading)
    if name.endswith(".dirty.pt"):
        reading.torn.append("it still has its temporary name")
    return reading


def _torch_format(head: bytes) -> str:
    return "torch-legacy" if head[:1] == b"\x80" else "torch-zip"


def kind_step(name: str) -> Optional[int]:
    """Return the step that a member's name states, without its suffix."""
    return name_step(re.sub(r"\.(ckpt|pt|pth|bin|safetensors)$", "", name))
