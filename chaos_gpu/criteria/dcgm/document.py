"""Find the JSON in what a `dcgmi` command printed, and read it without trusting it.

`dcgmi` prints errors in front of its JSON, a container's log adds lines around it, and output that was cut off still
begins well. So the text is read from its first document on; what begins like JSON and does not end is an error, never
a shorter answer.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from chaos_gpu.errors import UsageError

MAX_BYTES = 4 << 20
"""Longest output that is read; r4 of eight GPUs is some 20 kB. Reading it takes at most 64 times as much memory."""

QUOTED_CHARS = 200
"""So much of a strange text is repeated in a message."""

_BEGINS = re.compile(r'\{\s*"')
_AGAIN = "run the command again, its whole output kept, e.g. dcgmi diag -r 2 -j > FILE"


class Found(NamedTuple):
    """One JSON object, and the text around it that is none."""

    document: dict[str, Any]
    noise: str


def find_documents(output: bytes) -> list[Found]:
    """Return every JSON object of an output, in order, each with the text in front of it.

    Raises:
        UsageError: too long; what begins like JSON is cut off or broken, or names a key twice.
    """
    if len(output) > MAX_BYTES:
        raise UsageError(f"the output is longer than {MAX_BYTES >> 20} MiB", remedy="give one command's output")
    return list(_documents(output.decode("utf-8-sig", errors="replace")))


def _documents(text: str) -> Iterator[Found]:
    at = 0
    while match := _BEGINS.search(text, at):
        document, end = _decode(text, match.start())
        yield Found(document, text[at : match.start()].strip())
        at = end


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
    try:
        document, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        cut_off = not text[error.pos :].strip() or error.msg.startswith("Unterminated string")
        where = f"line {error.lineno}: {error.msg}"
        what = f"the JSON is cut off at its end ({where})" if cut_off else f"the JSON is broken at {where}"
        raise UsageError(what, remedy=_AGAIN) from None
    except RecursionError:
        raise UsageError("the JSON is nested too deeply for any output of DCGM", remedy=_AGAIN) from None
    except ValueError as error:
        raise UsageError(f"the JSON is broken: {str(error)[:QUOTED_CHARS]}", remedy=_AGAIN) from None
    return document, end


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


def mapping(value: Any, what: str) -> dict[str, Any]:
    """Return an object; of null, an empty one.

    Raises:
        UsageError: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{what} is no object", remedy=_AGAIN)
    return value


def sequence(value: Any, what: str) -> list[Any]:
    """Return a list; of null, an empty one.

    Raises:
        UsageError: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise UsageError(f"{what} is no list", remedy=_AGAIN)
    return value


def text_of(value: Any) -> str:
    """Return a text, halves of surrogate pairs replaced, since no output takes them; of anything else, nothing."""
    return value.encode("utf-8", errors="replace").decode() if isinstance(value, str) else ""


def number_of(value: Any) -> int | None:
    """Return a whole number of DCGM's size; of anything else, None. True is no number."""
    return value if type(value) is int and 0 <= value < 1 << 32 else None
