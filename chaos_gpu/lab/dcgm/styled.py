"""JSON and tables in the forms that `dcgmi` prints."""

import json
import textwrap
from collections.abc import Iterable
from typing import Any

LABEL, CELL = 27, 58
WRAP = 54


def styled(value: Any, depth: int = 0) -> str:
    """Return JSON as the engine's library lays it out: tabs, keys in order, a space on both sides of the colon."""
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner, outer = "\t" * (depth + 1), "\t" * depth
    if isinstance(value, list):
        items = [f"{inner}{styled(item, depth + 1)}" for item in value]
        return "[\n" + ",\n".join(items) + f"\n{outer}]"
    entries = [f'{inner}"{key}" : {_entry(value[key], depth + 1)}' for key in sorted(value)]
    return "{\n" + ",\n".join(entries) + f"\n{outer}}}"


def _entry(value: Any, depth: int) -> str:
    text = styled(value, depth)
    return f"\n{'	' * depth}{text}" if isinstance(value, dict | list) and value else text


def folded(text: str) -> list[str]:
    """Fold a message into the short lines of a report."""
    return textwrap.wrap(text, WRAP, break_long_words=False, break_on_hyphens=False)


def rule(widths: Iterable[int], fill: str = "-") -> str:
    """Return a line between rows."""
    return "+" + "+".join(fill * width for width in widths) + "+"


def row(cells: Iterable[str], widths: Iterable[int]) -> str:
    """Return one row of a table."""
    return "|" + "|".join(f" {cell}".ljust(width) for cell, width in zip(cells, widths, strict=True)) + "|"
