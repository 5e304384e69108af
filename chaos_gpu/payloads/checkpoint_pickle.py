"""Walk a pickle's opcodes and build inert data: nothing named by the file is imported or called.

A machine of our own instead of `pickle.Unpickler`: every global becomes a name, every call a record of its arguments.
Memory is bounded by the pickle's length and by `MAX_MEMORY_BYTES`; a promise of bytes that are not there allocates
nothing.
"""

import resource
import struct
from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError, Torn, shown

MAX_PICKLE_BYTES = 128 << 20
MAX_MEMORY_BYTES = 1500 << 20
"""What a pickle may take. The metadata of 400,000 tensor shards, 60 MB, takes about 900 MiB."""
STEPS_A_LOOK = 1 << 20
MAX_KEY_PARTS = 64
DANGEROUS = frozenset(
    (
        "asyncio",
        "bdb",
        "code",
        "codeop",
        "commands",
        "ctypes",
        "importlib",
        "nt",
        "os",
        "pdb",
        "pip",
        "pkgutil",
        "posix",
    )
    + ("pty", "pydoc", "runpy", "shutil", "smtplib", "socket", "subprocess", "sys", "timeit", "webbrowser")
)
DANGEROUS_BUILTINS = frozenset(
    ("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "execfile", "exit", "file", "globals", "input")
    + ("locals", "open", "quit", "setattr", "vars")
)

UINT32 = struct.Struct("<I").unpack_from


class Name:
    """A global that the pickle names."""

    __slots__ = ("make", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.make = SPECIAL.get(text)


class Fields(tuple):  # type: ignore[type-arg]  # tuple[...] is not there before Python 3.9
    """The state of an object as name, value, name, value."""

    __slots__ = ()


class Made:
    """What a call would have made: who was called, with what, and what it was filled with."""

    __slots__ = ("args", "items", "kind", "state")

    def __init__(self, kind: str, args: Tuple[Any, ...] = ()) -> None:
        self.kind, self.args = kind, args
        self.state: Any = None
        self.items: Optional[List[Any]] = None

    def get(self, name: str, default: Any = None) -> Any:
        """Return an attribute that the pickle sets."""
        state = self.state
        if type(state) is Fields:
            for at in range(0, len(state), 2):
                if state[at] == name:
                    return state[at + 1]
            return default
        return self.fields().get(name, default)

    def fields(self) -> Dict[Any, Any]:
        """Return the attributes that the pickle sets."""
        state = self.state
        if type(state) is Fields:
            return {key_of(key): value for key, value in zip(state[::2], state[1::2])}  # noqa: B905
        if type(state) is tuple and len(state) == 2 and type(state[1]) is dict:
            state = state[1]
        return state if type(state) is dict else {}


class Storage:
    """Raw elements that stand outside the pickle, under a key."""

    __slots__ = ("dtype", "key", "numel")

    def __init__(self, dtype: str, key: str, numel: int) -> None:
        self.dtype, self.key, self.numel = dtype, key, numel


class Tensor:
    """A view of a storage. Offset and strides count elements."""

    __slots__ = ("dtype", "offset", "shape", "storage", "stride")

    def __init__(
        self, storage: Storage, offset: int, shape: Tuple[int, ...], stride: Tuple[int, ...], dtype: str
    ) -> None:
        self.storage, self.offset, self.shape, self.stride, self.dtype = storage, offset, shape, stride, dtype


class Walk:
    """The machine: reads one pickle that starts at `start` of `data`."""

    def __init__(self, data: bytes, start: int = 0) -> None:
        self.data, self.end = data, start
        self.marks: List[int] = []
        self.memo: List[Any] = []
        self.names: Dict[str, Name] = {}
        self.storages: Dict[str, Storage] = {}
        self.reach: Dict[Tuple[str, str], int] = {}
        """How many elements of a dtype a storage, by its key, must have for the tensors that are views of it."""
        self.copies = len(data) + 4096

    def run(self) -> Any:
        """Return the object; `end` is then where its pickle ends.

        Raises: Torn where the pickle ends too soon or is broken, CheckpointError where it is hostile or too large.
        """
        try:
            return self._run(self.data, self.end, [])
        except (IndexError, struct.error):
            raise Torn("its pickle ends too soon") from None
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise Torn("its pickle is broken") from None
        except MemoryError:
            raise CheckpointError("its pickle needs more memory than it may have") from None

    def _run(self, data: bytes, pos: int, stack: List[Any]) -> Any:
        before = memory_bytes()
        while pos >= 0:
            pos = self._some(data, pos, stack)
            if memory_bytes() - before > MAX_MEMORY_BYTES:
                raise CheckpointError(f"its pickle needs more than {MAX_MEMORY_BYTES >> 20} MiB of memory")
        return stack.pop()

    def _some(self, data: bytes, pos: int, stack: List[Any]) -> int:
        """Go a million steps; return where the next one is, or -1 at the end."""
        table, memo, push, remember = OPCODES, self.memo, stack.append, self.memo.append
        for _ in range(STEPS_A_LOOK):
            code = data[pos]
            pos += 1
            if code == 0x6A:  # LONG_BINGET; what has its own branch here is more than half of all opcodes
                push(memo[UINT32(data, pos)[0]])
                pos += 4
            elif code == 0x68:  # BINGET
                push(memo[data[pos]])
                pos += 1
            elif code == 0x4B:  # BININT1
                push(data[pos])
                pos += 1
            elif code == 0x2E:  # STOP
                self.end = pos
                return -1
            else:
                pos = table[code](self, data, pos, stack)
                if data[pos] == 0x94:  # MEMOIZE
                    remember(stack[-1])
                    pos += 1
        return pos

    def put(self, index: int, value: Any) -> None:
        """Remember a value. Picklers number them without gaps; a great gap would only cost memory."""
        if index > len(self.memo) + 1024:
            raise CheckpointError("its pickle remembers with absurd gaps")
        while index >= len(self.memo):
            self.memo.append(None)
        self.memo[index] = value

    def to_mark(self, stack: List[Any]) -> List[Any]:
        """Take off the stack what was pushed since the last mark."""
        start = self.marks.pop()
        found = stack[start:]
        del stack[start:]
        return found

    def name(self, module: str, attribute: str) -> Name:
        """Return a global as a name. Raises CheckpointError for one that a real load must never be given."""
        text = f"{module}.{attribute}"
        known = self.names.get(text)
        if known is None:
            if is_dangerous(module, attribute):
                raise CheckpointError(f"loading it would call {shown(text)}")
            known = self.names[text] = Name(text)
        return known

    def copied(self, number: int) -> None:
        """Count bytes that a record would be copied to; a memo could ask for it a million times."""
        self.copies -= number
        if self.copies < 0:
            raise CheckpointError("its pickle copies more than its own length")


def is_dangerous(module: str, attribute: str) -> bool:
    """Say whether a global would run code of the file's choice; no checkpoint needs one."""
    top, path = module.partition(".")[0], attribute.split(".")
    if top in DANGEROUS or any(part in DANGEROUS or (part[:2] == part[-2:] == "__") for part in path):
        return True
    return top in ("builtins", "__builtin__") and path[0] in DANGEROUS_BUILTINS


def memory_bytes() -> int:
    """Return how much memory this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def key_of(value: Any) -> Any:
    """Return a value that may be a dict's key. Raises ValueError for others, and for one that takes long to hash."""
    if type(value) is tuple:
        parts, seen = [value], 0
        while parts:
            for each in parts.pop():
                seen += 1
                if type(each) is tuple:
                    parts.append(each)
                elif type(each) in (list, dict, bytearray):
                    raise ValueError
                if seen > MAX_KEY_PARTS:
                    raise CheckpointError("a key of its pickle has too many parts")
    elif type(value) in (list, dict, bytearray):
        raise ValueError
    return value


def fill(target: Any, items: List[Any]) -> None:
    """Set items that stand as key, value, key, value. Raises ValueError for a target that cannot have any."""
    if len(items) % 2:
        raise ValueError
    if type(target) is dict:
        pairs = iter(items)
        for key in pairs:
            target[key if type(key) is str or type(key) is Made else key_of(key)] = next(pairs)
    else:
        extend(target, list(zip(items[::2], items[1::2])))  # noqa: B905  strict= is not there before 3.10


def extend(target: Any, items: List[Any]) -> None:
    """Append items to a list, or to what a call made. Raises ValueError for other targets."""
    if type(target) is list:
        target.extend(items)
    elif type(target) is Made:
        if target.items is None:
            target.items = []
        target.items.extend(items)
    else:
        raise ValueError


def _mapping(walk: Walk, args: Tuple[Any, ...]) -> Any:
    pairs = args[-1] if args else []
    if type(pairs) is dict:
        pairs = list(pairs.items())
    if type(pairs) not in (list, tuple):
        return {}
    walk.copied(8 * len(pairs))
    return {key_of(pair[0]): pair[1] for pair in pairs}


def _encoded(walk: Walk, args: Tuple[Any, ...]) -> bytes:
    if type(args[0]) is not str:
        raise ValueError
    walk.copied(len(args[0]))
    return args[0].encode("latin-1")


def _bytes(walk: Walk, args: Tuple[Any, ...]) -> Any:
    return Made("builtins.bytes", args) if args else b""  # as protocols 0 to 2 write no bytes


def _size(walk: Walk, args: Tuple[Any, ...]) -> Tuple[Any, ...]:
    dims = args[0] if args else ()
    if type(dims) is list and len(dims) <= MAX_KEY_PARTS:
        return tuple(dims)
    if type(dims) is not tuple:
        raise ValueError
    return dims


def whole_numbers(value: Any) -> Tuple[int, ...]:
    """Return a short tuple of sizes. Raises ValueError for anything else."""
    if type(value) is not tuple or len(value) > MAX_KEY_PARTS:
        raise ValueError
    if not all(type(each) is int and 0 <= each < 1 << 62 for each in value):
        raise ValueError
    return value


def _tensor(walk: Walk, args: Tuple[Any, ...]) -> Any:
    storage, offset, shape = args[0], args[1], whole_numbers(args[2])
    if type(storage) is not Storage or type(offset) is not int or offset < 0:
        raise ValueError
    dtype = args[6].text.rpartition(".")[2] if len(args) > 6 and type(args[6]) is Name else storage.dtype
    stride = whole_numbers(args[3])
    if len(stride) != len(shape):
        raise ValueError
    ends = offset + 1 + sum((size - 1) * step for size, step in zip(shape, stride)) if 0 not in shape else 0  # noqa: B905
    walk.reach[storage.key, dtype] = max(ends, walk.reach.get((storage.key, dtype), 0))
    return Tensor(storage, offset, shape, stride, dtype)


SPECIAL: Dict[str, Callable[[Walk, Tuple[Any, ...]], Any]] = {
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": lambda walk, args: {},
    "_codecs.encode": _encoded,
    "__builtin__.bytes": _bytes,
    "builtins.bytes": _bytes,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor,
    "torch._utils._rebuild_parameter": lambda walk, args: args[0],
    "torch._utils._rebuild_parameter_with_state": lambda walk, args: args[0],
}


def storage_of(walk: Walk, pid: Any) -> Any:
    """Return the storage that a persistent id of torch names: ("storage", type, key, location, elements)."""
    if type(pid) is not tuple or len(pid) < 5 or pid[0] not in ("storage", b"storage"):
        return Made("persistent", (pid,))
    kind, key, numel = pid[1], pid[2], pid[4]
    if type(kind) is not Name or type(key) not in (str, int) or type(numel) is not int or numel < 0:
        raise ValueError
    dtype = kind.text.rpartition(".")[2].replace("Storage", "").lower()
    known = walk.storages.get(str(key))
    if known is None:
        known = walk.storages[str(key)] = Storage(dtype, str(key), numel)
    return known


Step = Callable[[Walk, bytes, int, List[Any]], int]
"""Takes the bytes, where its argument begins and the stack; returns where the next opcode is."""


def _unknown(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> NoReturn:
    raise ValueError


OPCODES: List[Step] = [_unknown] * 256
