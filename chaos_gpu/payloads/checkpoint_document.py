"""Read a checkpoint or a store of several, weigh what stands beside it, and answer with one document."""

import gc
import os
import re
from contextlib import suppress
from typing import Any, Dict, List, Optional, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files, Tick, Torn, names_in, no_tick, real_path, shown
from chaos_gpu.payloads.checkpoint_kinds import MEMBER, STAGING, kind_step, members_of, read_one
from chaos_gpu.payloads.checkpoint_parts import split_step
from chaos_gpu.payloads.checkpoint_reading import COMPONENTS, Reading

MAX_MEMBERS = 10_000
MAX_POINTER_BYTES = 4096
ALL_DEEP_BYTES = 4 << 30
"""Stores up to this size are read in full; of larger ones the newest members, down to the first that is complete."""
PEERS_TRIED = 3
POINTERS = ("latest", "latest_checkpointed_iteration.txt", "LATEST")
GARBAGE = re.compile(r"\.tmp.*|.*\.tmp|tmp-checkpoint-.*|.*\.orbax-checkpoint-tmp.*|.*\.dirty\.pt|.*\.part")


def inspect(path: str, against: str = "", deep: bool = True, tick: Tick = no_tick) -> Dict[str, Any]:
    """Say what a checkpoint is, whether it is complete, and what differs from another one.

    Args:
        path: a file or a directory of one checkpoint, or a store of several.
        against: another checkpoint to compare the state with, or "".
        deep: read all bytes; else only headers, sizes and directories.
        tick: told how many more bytes were read.

    Returns:
        The document that docs/checkpoints.md describes.

    Raises:
        CheckpointError: it cannot be judged: not there, hostile, unsupported, beyond the limits.
    """
    collecting = gc.isenabled()
    gc.disable()  # millions of objects, all of them reachable: looking for garbage would take most of the time
    try:
        return _inspect(path, against, deep, tick)
    except (MemoryError, RecursionError):
        raise CheckpointError(f"{shown(path)} needs more memory than it may have") from None
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}") from None
    except Torn as torn:
        raise CheckpointError(f"{shown(path)}: {torn}") from None
    finally:
        if collecting:
            gc.enable()


def _inspect(path: str, against: str, deep: bool, tick: Tick) -> Dict[str, Any]:
    real = _there(path)
    members = members_of(real) if os.path.isdir(real) else []
    if members:
        if against:
            raise CheckpointError(f"{shown(path)} is a store of several: compare one of its members")
        return {"path": path, **_store(real, members, deep, tick)}
    reading = _with_peers(Files(os.path.dirname(real), tick), real, deep)
    document = {"path": path, **reading.as_json()}
    if against:
        other = _there(against)
        document["differs"] = compare(reading, read_one(Files(os.path.dirname(other), tick), other, deep))
        document["notes"] = reading.notes
    return document


def _there(path: str) -> str:
    try:
        real = real_path(path)
        os.stat(real)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{shown(path)} is not there: {getattr(error, 'strerror', None) or error}") from None
    return real


def compare(reading: Reading, other: Reading) -> Optional[List[str]]:
    """Return the names of values that differ or are in one only; None where equality cannot be proven.

    Values without a CRC (a legacy file read shallowly, OCDBT) prove nothing; a note says how many there are.
    """
    names = sorted(set(reading.states) | set(other.states))
    differing, unknown = [], 0
    for name in names:
        ours, theirs = reading.states.get(name), other.states.get(name)
        if ours is None or theirs is None or ours.kind != theirs.kind:
            differing.append(name)
        elif ours.crc is None or theirs.crc is None:
            unknown += 1
        elif ours.crc != theirs.crc:
            differing.append(name)
    if unknown or not names:
        reading.notes.append(f"not comparable: {unknown} of {len(names)} values have no CRC")
    return None if (unknown or not names) and not differing else differing


def _with_peers(files: Files, path: str, deep: bool) -> Reading:
    """Read one checkpoint, and hold it against the newest complete one of its series beside it."""
    reading = read_one(files, path, deep)
    folder, base = os.path.split(path)
    _check_staging(folder, base, reading)
    pattern, step = split_step(base)
    if step is None:
        return reading
    peers = [(kind_step(name), name) for name in names_in(folder) if name != base and split_step(name)[0] == pattern]
    older = sorted((number, name) for number, name in peers if number is not None and number < step)
    for _, name in older[::-1][:PEERS_TRIED]:
        try:
            peer = read_one(files, os.path.join(folder, name), deep=False)
        except (CheckpointError, Torn, OSError):
            continue
        if peer.complete == "yes":
            _weigh(reading, name, peer)
            break
    return reading


def _weigh(reading: Reading, name: str, peer: Reading) -> None:
    """Doubt a checkpoint that lacks what the one before it has; take from that one how long it should be."""
    if reading.format != peer.format:
        return
    ours = {_series(each) for each in reading.files}
    lacking = sorted(each for each in peer.files if _series(each) not in ours and not GARBAGE.fullmatch(each))
    if len(reading.files) > 1 or len(peer.files) > 1:
        reading.doubts += [f"{shown(each)} is missing, {shown(name)} has it" for each in lacking]
    gone = [each for each in COMPONENTS if each in peer.components and each not in reading.components]
    reading.doubts += [f"it has no {each}, {shown(name)} has one" for each in gone]
    if reading.complete != "yes" and not reading.expected or len(peer.files) > 1:
        theirs = {_series(each): size for each, size in peer.files.items()}
        there = {_series(each): size for each, size in reading.files.items()}
        reading.expected = sum(theirs.values())
        reading.written = sum(min(size, there.get(each, 0)) for each, size in theirs.items())


def _series(name: str) -> str:
    return re.sub(r"-\d{5}-of-\d{5}|(?<=global_step)\d+|(?<=step[=-])\d+|(?<=epoch[=-])\d+", "", name)


def _check_staging(folder: str, base: str, reading: Reading) -> None:
    staging = os.path.join(folder, "tmp-" + base)
    if base.startswith("checkpoint-") and os.path.isdir(staging):
        left = Files(folder).sizes(staging)
        stranded = sorted(set(left) - set(reading.files))
        reading.torn += [f"{shown(name)} is still in {STAGING}{base[11:]}" for name in stranded]


def _store(path: str, names: List[str], deep: bool, tick: Tick) -> Dict[str, Any]:
    if len(names) > MAX_MEMBERS:
        raise CheckpointError(f"{shown(path)} holds more than {MAX_MEMBERS:,} checkpoints")
    files = Files(path, tick)
    sizes = {name: _size_of(files, os.path.join(path, name)) for name in names}
    everything = deep and sum(sizes.values()) <= ALL_DEEP_BYTES
    readings = [(name, _member(files, path, name, everything)) for name in names]
    readings = [
        each for each in readings if os.path.lexists(os.path.join(path, each[0]))
    ]  # a rotation goes on meanwhile
    readings.sort(key=lambda each: (-1 if each[1].step is None else each[1].step, each[0]))
    _deepen(files, path, readings, deep and not everything)
    _weigh_all(readings)
    complete = [name for name, reading in readings if reading.complete == "yes"]
    garbage = sorted(name for name in names_in(path) if GARBAGE.fullmatch(name))
    pointers = _pointers(files, path)
    return {
        "format": "store",
        "newest_complete": complete[-1] if complete else None,
        "latest": _latest(pointers, readings),
        "pointers": pointers,
        "members": [{"name": name, **reading.as_json()} for name, reading in readings],
        "garbage": garbage,
        "bytes": sum(sizes.values()),
        "garbage_bytes": sum(_size_of(files, os.path.join(path, name)) for name in garbage),
        "notes": _store_notes(path, pointers, readings),
    }


def _size_of(files: Files, path: str) -> int:
    """Return how large a member is, 0 for one that cannot be listed: it is judged by itself."""
    try:
        return sum(files.sizes(path).values())
    except CheckpointError:
        return 0


def _member(files: Files, path: str, name: str, deep: bool) -> Reading:
    """Read one member. What is hostile, or of no known format, does not hide the others."""
    try:
        reading = read_one(files, os.path.join(path, name), deep)
    except (CheckpointError, Torn, OSError) as error:
        reading = Reading("unsupported")
        reading.doubts.append(str(error))
        reading.step = kind_step(name)
        with suppress(CheckpointError):  # said already
            reading.files = files.sizes(os.path.join(path, name))
        return reading
    _check_staging(path, name, reading)
    return reading


def _deepen(files: Files, path: str, readings: List[Tuple[str, Reading]], wanted: bool) -> None:
    """Read the newest members of a large store in full, down to the first that is complete."""
    for index in range(len(readings) - 1, -1, -1):
        name, reading = readings[index]
        if not wanted:
            return
        if reading.complete == "yes":
            readings[index] = (name, _member(files, path, name, deep=True))
            wanted = readings[index][1].complete != "yes"


def _weigh_all(readings: List[Tuple[str, Reading]]) -> None:
    before: Dict[str, Tuple[str, Reading]] = {}
    for name, reading in readings:
        series = split_step(name)[0].replace(STAGING, "checkpoint-")
        if series in before:
            _weigh(reading, *before[series])
        if reading.complete == "yes":
            before[series] = (name, reading)


def _pointers(files: Files, path: str) -> Dict[str, str]:
    """Return what names another: the text of pointer files, the targets of links."""
    found = {}
    for name in names_in(path):
        full = os.path.join(path, name)
        if os.path.islink(full):
            found[name] = shown(os.readlink(full))
        elif name in POINTERS and os.path.isfile(full):
            found[name] = shown(_pointed(files, full))
    return found


def _pointed(files: Files, path: str) -> str:
    try:
        return files.text(path, MAX_POINTER_BYTES).strip()
    except (CheckpointError, Torn, OSError) as error:
        return f"({error})"


def _latest(pointers: Dict[str, str], readings: List[Tuple[str, Reading]]) -> Optional[str]:
    """Return what the framework's own rule would take: its pointer, else the highest number in a name."""
    for name, text in pointers.items():
        text = f"iter_{int(text):07d}" if name.startswith("latest_c") and text.isdigit() else text
        if name in POINTERS or MEMBER.fullmatch(name):
            return os.path.basename(text.rstrip("/")) or None
    lasts = [name for name, _ in readings if re.fullmatch(r"last(-v\d+)?\.ckpt", name)]
    numbered = [(kind_step(name), name) for name, _ in readings if not name.startswith(STAGING)]
    return lasts[-1] if lasts else max((each for each in numbered if each[0] is not None), default=(None, None))[1]


def _store_notes(path: str, pointers: Dict[str, str], readings: List[Tuple[str, Reading]]) -> List[str]:
    notes = [f"{name} is empty" for name, text in pointers.items() if not text]
    known = dict(readings)
    target = _latest(pointers, readings)
    if pointers and target and target not in known and not os.path.exists(os.path.join(path, target)):
        notes.append(f"the pointer names {target}, which is not there")
    elif target in known and known[target].complete != "yes":
        notes.append(f"{target} would be taken as the latest, and is not complete")
    times = [(time, name) for name, _ in readings for time in _mtimes(os.path.join(path, name))]
    for (earlier, name), (later, higher) in zip(times, times[1:]):  # noqa: B905
        if later + 10**9 < earlier:
            notes.append(f"{higher} is of a higher step than {name}, but older: left by another run, or copied")
    return notes[:MAX_MEMBERS]


def _mtimes(path: str) -> List[int]:
    try:
        return [os.stat(path).st_mtime_ns]
    except FileNotFoundError:
        return []
