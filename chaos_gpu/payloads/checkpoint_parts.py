"""Which key of a training state is which component, and where its step stands.

Names are matched whole, never by a part: `sampler` is no `scaler`. A name that is on no list has no component.
"""

import re
from functools import lru_cache
from typing import Any, Dict, Iterable, Optional, Tuple

from chaos_gpu.payloads.checkpoint_pickle import Made, Tensor
from chaos_gpu.payloads.checkpoint_reading import Checksum, Reading, leaves_of, state_of

SUFFIX = r"(_?states?)?(_?dicts?)?"
PARTS = (
    ("scheduler", rf"(lr_?)?sched(uler)?s?{SUFFIX}|opt_param_scheduler"),
    ("scaler", rf"((grad|amp|loss)_?)?scalers?{SUFFIX}|amp{SUFFIX}|MixedPrecision|loss_scaler"),
    ("rng", rf"((torch|cuda|cpu|numpy|np|python|random|xpu|npu)_?)*(rng|random|generator)s?{SUFFIX}"),
    ("data", rf"(train_?)?(data_?)?(loader|sampler)s?{SUFFIX}|data{SUFFIX}|dataset{SUFFIX}|data_?iter(ator)?{SUFFIX}"),
    ("data", r"dl_state_dict|consumed_(train_)?samples|data_(position|pos|cursor|index)"),
    ("optimizer", rf"optimi[sz]ers?{SUFFIX}|optim{SUFFIX}|opt{SUFFIX}"),
    ("model", rf"models?{SUFFIX}|module|network|net|weights|state_dict|ema{SUFFIX}"),
)
WHOLE_NAMES = tuple((component, re.compile(pattern)) for component, pattern in PARTS)
WRAPPERS = ("state", "app", "common_state", "trainer", "common")
STEP_KEYS = ("global_step", "global_steps", "iteration", "step", "steps", "batch", "iter")
LIGHTNING_KEYS = {
    "state_dict": "model",
    "optimizer_states": "optimizer",
    "lr_schedulers": "scheduler",
    "loops": "data",
    "MixedPrecision": "scaler",
    "MixedPrecisionPlugin": "scaler",
    "NativeMixedPrecisionPlugin": "scaler",
}
LIGHTNING_SKIPS = (
    "callbacks",
    "hyper_parameters",
    "hparams_name",
    "pytorch-lightning_version",
    "datamodule_hparams_name",
)


@lru_cache(maxsize=1 << 14)
def component_of(key: str) -> Optional[str]:
    """Return the component that a key names, None where it names none."""
    return next((component for component, pattern in WHOLE_NAMES if pattern.fullmatch(key)), None)


def is_empty(value: Any) -> bool:
    """Say whether a value holds no state, as the list of schedulers of a run that has none."""
    return value is None or (type(value) in (dict, list, tuple, str) and not value)


def sort_in(reading: Reading, tree: Any, checksum: Checksum, component: Optional[str] = None) -> None:
    """Enter a state tree: its components, its step, and its values' CRCs.

    Args:
        reading: what is known so far.
        tree: the state as the file holds it.
        checksum: gives a tensor's CRC.
        component: what the file holds, where its name says so; else the tree's own keys say it.
    """
    if component is not None:
        reading.components.add(component)
        enter(reading, tree, component, checksum)
        return
    if type(tree) is not dict:
        enter(reading, tree, "value", checksum)
        return
    if is_lightning(tree):
        _sort_lightning(reading, tree, checksum)
        return
    if tree and all(type(value) is Tensor for value in tree.values()):
        sort_in(reading, tree, checksum, "model")
        return
    reading.step = step_in(tree) if reading.step is None else reading.step
    for key, value in tree.items():
        if str(key) in WRAPPERS and type(value) is dict:
            sort_in(reading, value, checksum)
        else:
            _sort_key(reading, str(key), value, component_of(str(key)), checksum)


def _sort_key(reading: Reading, key: str, value: Any, component: Optional[str], checksum: Checksum) -> None:
    if component is None:
        enter(reading, value, key, checksum)
    elif not is_empty(value):
        reading.components.add(component)
        named = any(name.startswith(component + ".") for name in reading.states)
        enter(reading, value, f"{component}.{key}" if named else component, checksum)


def enter(reading: Reading, tree: Any, name: str, checksum: Checksum) -> None:
    """Enter the values of a tree under a name."""
    for leaf, value in leaves_of(tree, name):
        reading.states[leaf] = state_of(value, checksum)


def is_lightning(tree: Dict[Any, Any]) -> bool:
    """Say whether a file's keys are those of Lightning."""
    return "pytorch-lightning_version" in tree or {"state_dict", "global_step", "loops"} <= set(tree)


def _sort_lightning(reading: Reading, tree: Dict[Any, Any], checksum: Checksum) -> None:
    """Lightning: what callbacks remember of paths and scores is no training state; it saves no RNG."""
    reading.format = "lightning"
    reading.step = step_in(tree)
    for key, value in tree.items():
        if key not in LIGHTNING_SKIPS:
            _sort_key(reading, str(key), value, LIGHTNING_KEYS.get(key, component_of(str(key))), checksum)
    for path, value in leaves_of(tree.get("loops"), ""):
        if path.endswith("batch_progress.current.processed"):
            reading.notes += _behind(tree, path, value)


def _behind(tree: Dict[Any, Any], path: str, processed: Any) -> Iterable[str]:
    completed = dict(leaves_of(tree["loops"], "")).get(path.replace("processed", "completed"))
    if type(processed) is int and type(completed) is int and processed > completed:
        return [f"batch progress: {processed} processed, {completed} completed: a resume counts the last batch again"]
    return []


def step_in(tree: Dict[Any, Any]) -> Optional[int]:
    """Return the step that a state tree states at its top, or one level below; None where it states none."""
    for key in STEP_KEYS:
        if type(tree.get(key)) is int:
            return int(tree[key])
    for wrapper in ("train_state", "trainer_state", "progress", *WRAPPERS):
        inner = tree.get(wrapper)
        inner = inner.fields() if type(inner) is Made else inner
        if type(inner) is dict:
            found = step_in({key: value for key, value in inner.items() if key in STEP_KEYS})
            if found is not None:
                return found
    return None


def name_step(name: str) -> Optional[int]:
    """Return the step, or else the number, that a checkpoint's name states."""
    found = re.findall(r"(?:global_?step|step|iter|iteration)[-_=]?(\d{1,15})", name)
    found = found or re.findall(r"(?:checkpoint|ckpt|batch|ba|epoch|ep)[-_=]?(\d{1,15})", name)
    found = found or re.findall(r"^(\d{1,15})(?:\D|$)", name)
    return int(found[-1]) if found else None


def split_step(name: str) -> Tuple[str, Optional[int]]:
    """Return a name without its numbers, and its step: names of one series are alike but for it."""
    return re.sub(r"\d+", "#", name), name_step(name)
