"""What is found out about one checkpoint while it is read, and the one document that comes of it."""

import zlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError
from chaos_gpu.payloads.checkpoint_pickle import Made, Name, Storage, Tensor

COMPONENTS = ("model", "optimizer", "scheduler", "rng", "data", "scaler")
MAX_VALUES = 1_000_000
MAX_DEPTH = 32
MAX_REASONS = 20


class State(NamedTuple):
    """One value of the training state: what it is, and the CRC-32 of its bytes (None where none is known)."""

    kind: str
    crc: Optional[int]


Checksum = Callable[[Tensor], Optional[int]]


class Reading:
    """Collects findings: `torn` is proven by the bytes, `doubts` are not; `expected` bytes the save should have had."""

    def __init__(self, kind: str) -> None:
        self.format = kind
        self.step: Optional[int] = None
        self.torn: List[str] = []
        self.doubts: List[str] = []
        self.notes: List[str] = []
        self.components: Set[str] = set()
        self.states: Dict[str, State] = {}
        self.files: Dict[str, int] = {}
        self.expected: Optional[int] = None
        self.written: Optional[int] = None

    @property
    def complete(self) -> str:
        """Return yes, no or suspect."""
        if self.torn:
            return "no"
        return "suspect" if self.doubts else "yes"

    @property
    def fraction(self) -> Optional[float]:
        """Return the share of the save's bytes that is there, None where it is not known how many it should have."""
        if self.complete == "yes":
            return 1.0
        if not self.expected:
            return None
        there = sum(self.files.values()) if self.written is None else self.written
        return round(min(1.0, there / self.expected), 4)

    def as_json(self) -> Dict[str, Any]:
        """Return the document's part about this checkpoint alone."""
        reasons = self.torn or self.doubts
        more = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
        known = {name: state.crc for name, state in sorted(self.states.items()) if state.crc is not None}
        return {
            "format": self.format,
            "step": self.step,
            "complete": self.complete,
            "torn_reason": "; ".join(reasons[:MAX_REASONS] + more),
            "components": [name for name in COMPONENTS if name in self.components],
            "fraction": self.fraction,
            "state_crcs": known or None,
            "without_crc": len(self.states) - len(known),
            "differs": None,
            "bytes": sum(self.files.values()),
            "files": self.files,
            "notes": self.notes,
        }


def leaves_of(value: Any, name: str) -> Iterator[Tuple[str, Any]]:
    """Yield (dotted name, value) of a tree: tensors and plain values; a list of plain values is one of them.

    Raises:
        CheckpointError: nested deeper than 32, or more than 1,000,000 values (shared parts count each time).
    """
    pending, seen = [(name, value, 0)], 0
    while pending:
        name, value, depth = pending.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_VALUES:
            raise CheckpointError("its values are nested too deep, or too many")
        parts = _parts(value)
        if parts is None:
            yield name, value
        else:
            pending += [(f"{name}.{key}" if name else str(key), each, depth + 1) for key, each in reversed(parts)]


def _parts(value: Any) -> Optional[List[Tuple[Any, Any]]]:
    if type(value) is dict:
        return [(key if type(key) in (str, int) else words_of(key), each) for key, each in value.items()]
    if type(value) in (list, tuple) and any(type(each) in (dict, list, tuple, Tensor, Made) for each in value):
        return list(enumerate(value))
    if type(value) is Made and value.fields() and not value.items:
        return list(value.fields().items())
    return None


def state_of(value: Any, checksum: Checksum) -> State:
    """Return what a value is, and its CRC: of a tensor its bytes', of anything else that of its canonical text."""
    if type(value) is Tensor:
        return State(f"{value.dtype}{list(value.shape)}", checksum(value))
    crc = 0
    for piece in _canonical(value, checksum):
        crc = zlib.crc32(piece, crc)
    return State("value", crc)


def _canonical(value: Any, checksum: Checksum) -> Iterator[bytes]:
    pending: List[Tuple[Any, int]] = [(value, 0)]
    seen = 0
    while pending:
        value, depth = pending.pop()
        seen += 1
        if depth > MAX_DEPTH or seen > MAX_VALUES:
            raise CheckpointError("its values are nested too deep, or too many")
        if type(value) is dict:
            inner: List[Any] = [each for pair in value.items() for each in pair]
        elif type(value) is Made:
            inner = [value.kind, list(value.args), value.fields() or value.state, value.items]
        elif type(value) in (list, tuple):
            inner = list(value)
        else:
            yield _atom(value, checksum)
            continue
        yield f"{type(value).__name__}{len(inner)}(".encode()
        pending += [(each, depth + 1) for each in reversed(inner)]


def _atom(value: Any, checksum: Checksum) -> bytes:
    if type(value) is Tensor:
        return f"{value.dtype}{list(value.shape)}{checksum(value)},".encode()
    if type(value) is Name:
        return value.text.encode("utf-8", "surrogatepass") + b","
    if type(value) is Storage:
        return f"{value.dtype}{value.numel},".encode()
    if type(value) is str:
        return b"'" + value.encode("utf-8", "surrogatepass") + b"',"
    return (value if type(value) is bytes else repr(value).encode()) + b","


def words_of(value: Any) -> str:
    """Return a short text for a key that is neither a word nor a number."""
    return "".join(piece.decode("utf-8", "replace") for piece in _canonical(value, lambda tensor: None))[:200]
