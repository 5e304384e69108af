"""The opcodes of pickle protocols 0 to 5, as steps of the inert machine.

Source: Lib/pickletools.py of CPython, which describes each opcode's argument and effect on the stack.
"""

import codecs
import struct
from typing import Any, Callable, Dict, List, Tuple

from chaos_gpu.payloads.checkpoint_files import CheckpointError
from chaos_gpu.payloads.checkpoint_pickle import OPCODES, Fields, Made, Name, Step, Walk, extend, fill, storage_of

MAX_DIGITS = 4000
OBJECT_BEGINS = b"\x81\x94}\x94("
"""After the empty tuple: NEWOBJ, MEMOIZE, EMPTY_DICT, MEMOIZE, MARK, as protocol 4 writes each instance of a class."""
PENDING = Name("state of the object below")
SIZE_ENDS = b"\x94\x85\x94R\x94"
"""After TUPLE2: MEMOIZE, TUPLE1, MEMOIZE, REDUCE, MEMOIZE, as it writes each torch.Size of two dimensions."""


def _opcode(*codes: int) -> Callable[[Step], Step]:
    def enter(step: Step) -> Step:
        for code in codes:
            OPCODES[code] = step
        return step

    return enter


def _constant(code: int, value: Any) -> None:
    def push(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        stack.append(value)
        return pos

    OPCODES[code] = push


def _fresh(code: int, make: Callable[[], Any]) -> None:
    def push(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        stack.append(make())
        return pos

    OPCODES[code] = push


def _gathered(code: int, make: Callable[[List[Any]], Any]) -> None:
    def push(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        stack.append(make(walk.to_mark(stack)))
        return pos

    OPCODES[code] = push


def _number(code: int, form: str) -> None:
    unpack, size = struct.Struct(form).unpack_from, struct.calcsize(form)

    def push(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        stack.append(unpack(data, pos)[0])
        return pos + size

    OPCODES[code] = push


def _sized(code: int, form: str, make: Callable[[bytes], Any]) -> None:
    unpack, size = struct.Struct(form).unpack_from, struct.calcsize(form)

    def push(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        start = pos + size
        end: int = start + unpack(data, pos)[0]
        if end < start:
            raise ValueError
        if end > len(data):
            raise IndexError
        stack.append(make(data[start:end]))
        return end

    OPCODES[code] = push


def _lined(code: int, make: Callable[[bytes], Any]) -> None:
    def push(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        line, pos = _line(data, pos)
        stack.append(make(line))
        return pos

    OPCODES[code] = push


def _put(code: int, form: str) -> None:
    unpack, size = struct.Struct(form).unpack_from, struct.calcsize(form)

    def keep(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
        walk.put(unpack(data, pos)[0], stack[-1])
        return pos + size

    OPCODES[code] = keep


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _latin(data: bytes) -> str:
    return data.decode("latin-1")


def _long(data: bytes) -> int:
    if len(data) > MAX_DIGITS:
        raise CheckpointError("its pickle holds an absurd number")
    return int.from_bytes(data, "little", signed=True)


def _digits(line: bytes) -> int:
    if len(line) > MAX_DIGITS:
        raise CheckpointError("its pickle holds an absurd number")
    return int(line.rstrip(b"L\r"))


def _whole(line: bytes) -> Any:
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else _digits(line)


def _quoted(line: bytes) -> str:
    line = line.strip()
    if len(line) < 2 or line[:1] not in (b"'", b'"') or line[:1] != line[-1:]:
        raise ValueError
    escaped: Tuple[bytes, int] = codecs.escape_decode(line[1:-1])
    return _latin(escaped[0])


def _line(data: bytes, pos: int) -> Tuple[bytes, int]:
    end = data.find(b"\n", pos)
    if end < 0:
        raise IndexError
    return data[pos:end], end + 1


for _code, _value in ((0x4E, None), (0x88, True), (0x89, False)):
    _constant(_code, _value)
_fresh(0x7D, dict)
_fresh(0x5D, list)
_fresh(0x8F, lambda: Made("builtins.set"))
_gathered(0x74, tuple)
_gathered(0x6C, list)
_lined(0x49, _whole)
_lined(0x4C, _whole)
_lined(0x46, lambda line: float(line[:MAX_DIGITS]))
_lined(0x56, lambda line: codecs.decode(line, "raw-unicode-escape"))
_lined(0x53, _quoted)
for _code, _form in ((0x4D, "<H"), (0x4A, "<i"), (0x47, ">d")):
    _number(_code, _form)
for _code, _form in ((0x71, "<B"), (0x72, "<I")):
    _put(_code, _form)
for _code, _form in ((0x8C, "<B"), (0x58, "<I"), (0x8D, "<Q")):
    _sized(_code, _form, _text)
for _code, _form in ((0x43, "<B"), (0x42, "<I"), (0x8E, "<Q"), (0x96, "<Q")):
    _sized(_code, _form, bytes)
for _code, _form in ((0x8A, "<B"), (0x8B, "<i")):
    _sized(_code, _form, _long)
for _code, _form in ((0x55, "<B"), (0x54, "<i")):
    _sized(_code, _form, _latin)


@_opcode(0x80)
def _protocol(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    if data[pos] > 5:
        raise ValueError
    return pos + 1


@_opcode(0x94)
def _memoize(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    walk.memo.append(stack[-1])
    return pos


@_opcode(0x95)
def _frame(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    return pos + 8


@_opcode(0x70)
def _put_line(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    line, pos = _line(data, pos)
    walk.put(_digits(line), stack[-1])
    return pos


@_opcode(0x67)
def _get_line(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    line, pos = _line(data, pos)
    stack.append(walk.memo[max(0, _digits(line))])
    return pos


@_opcode(0x28)
def _mark(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    walk.marks.append(len(stack))
    return pos


@_opcode(0x31)
def _pop_mark(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    walk.to_mark(stack)
    return pos


@_opcode(0x30)
def _pop(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    if walk.marks and walk.marks[-1] == len(stack):
        walk.marks.pop()
    else:
        stack.pop()
    return pos


@_opcode(0x32)
def _dup(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    stack.append(stack[-1])
    return pos


@_opcode(0x29)
def _empty_tuple(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    function = stack[-1] if stack else None
    if type(function) is not Name or function.make is not None or not data.startswith(OBJECT_BEGINS, pos):
        stack.append(())
        return pos
    made = stack[-1] = Made(function.text)  # five steps in one: metadata has a million of these
    walk.memo += (made, made)
    stack.append(PENDING)
    walk.marks.append(len(stack))
    return pos + len(OBJECT_BEGINS)


@_opcode(0x85)
def _tuple1(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    stack[-1] = (stack[-1],)
    return pos


@_opcode(0x86)
def _tuple2(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    last = stack.pop()
    pair = stack[-1] = (stack[-1], last)
    if not data.startswith(SIZE_ENDS, pos):
        return pos
    function = stack[-2]
    if type(function) is not Name or function.text != "torch.Size":
        return pos
    stack.pop()
    stack[-1] = pair
    walk.memo += (pair, pair, pair)
    return pos + len(SIZE_ENDS)


@_opcode(0x87)
def _tuple3(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    last = stack.pop()
    middle = stack.pop()
    stack[-1] = (stack[-1], middle, last)
    return pos


@_opcode(0x91)
def _frozenset(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    made = Made("builtins.frozenset")
    made.items = walk.to_mark(stack)
    stack.append(made)
    return pos


@_opcode(0x64)
def _dict(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    found: Dict[Any, Any] = {}
    fill(found, walk.to_mark(stack))
    stack.append(found)
    return pos


@_opcode(0x73)
def _setitem(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    value = stack.pop()
    key = stack.pop()
    fill(stack[-1], [key, value])
    return pos


@_opcode(0x75)
def _setitems(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    start = walk.marks.pop()
    items = stack[start:]
    del stack[start:]
    target = stack[-1]
    if target is not PENDING:
        fill(target, items)
        return _build(walk, data, pos + 1, stack) if data[pos] == 0x62 else pos
    if data[pos] == 0x62 and not len(items) % 2:  # the whole state of an object; as a tuple it takes half the memory
        stack.pop()
        stack[-1].state = Fields(items)
        return pos + 1
    stack[-1] = {}
    fill(stack[-1], items)
    return pos


@_opcode(0x61)
def _append(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    value = stack.pop()
    extend(stack[-1], [value])
    return pos


@_opcode(0x65, 0x90)
def _appends(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    items = walk.to_mark(stack)
    extend(stack[-1], items)
    return pos


@_opcode(0x63)
def _global(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    module, pos = _line(data, pos)
    attribute, pos = _line(data, pos)
    stack.append(walk.name(_text(module), _text(attribute)))
    return pos


@_opcode(0x93)
def _stack_global(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    attribute = stack.pop()
    module = stack.pop()
    if type(module) is not str or type(attribute) is not str:
        raise ValueError
    stack.append(walk.name(module, attribute))
    return pos


@_opcode(0x52, 0x81)
def _reduce(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    args = stack.pop()
    stack[-1] = _called(walk, stack[-1], args)
    return pos


def _called(walk: Walk, function: Any, args: Any) -> Any:
    """Return what stands for the result of a call."""
    if type(args) is not tuple:
        raise ValueError
    if type(function) is not Name:
        return Made("?", (function, args))
    return Made(function.text, args) if function.make is None else function.make(walk, args)


@_opcode(0x92)
def _newobj_ex(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    keywords = stack.pop()
    args = stack.pop()
    made = _called(walk, stack[-1], args)
    stack[-1] = Made(made.kind, (args, keywords)) if type(made) is Made else made
    return pos


@_opcode(0x69)
def _inst(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    module, pos = _line(data, pos)
    attribute, pos = _line(data, pos)
    name = walk.name(_text(module), _text(attribute))
    args = tuple(walk.to_mark(stack))
    stack.append(_called(walk, name, args))
    return pos


@_opcode(0x6F)
def _obj(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    function, *args = walk.to_mark(stack)
    stack.append(_called(walk, function, tuple(args)))
    return pos


@_opcode(0x62)
def _build(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    state = stack.pop()
    target = stack[-1]
    if type(target) is Made:
        target.state = state
    elif type(target) is Name:
        raise CheckpointError("its pickle changes what it names")
    return pos


@_opcode(0x51)
def _persistent(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    stack[-1] = storage_of(walk, stack[-1])
    return pos


@_opcode(0x50, 0x82, 0x83, 0x84, 0x97, 0x98)
def _refused(walk: Walk, data: bytes, pos: int, stack: List[Any]) -> int:
    raise CheckpointError("its pickle refers to what is not in it")
