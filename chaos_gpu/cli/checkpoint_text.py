"""Show a checkpoint to a person: on a terminal in colour, elsewhere as plain text."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from chaos_gpu.cli.telling import counted, labelled, printable

MAX_SHOWN = 50
_STYLES = {"no": "bold red", "suspect": "bold magenta", "yes": "bold green"}
_WORDS = {"no": "torn", "suspect": "suspect", "yes": "complete"}
_COMPONENTS = ("model", "optimizer", "scheduler", "rng", "data", "scaler")


def show(document: dict[str, Any]) -> None:
    """Print one checkpoint, or a store: what a job would go on from, then its members, the newest first."""
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    is_store = document["format"] == "store"
    for line in _store(document) if is_store else _one(document, document["path"]):
        console.print(line)


def _one(document: dict[str, Any], name: str) -> Iterator[Text]:
    complete, step = document["complete"], document["step"]
    stated = "no step" if step is None else f"step {step:,}"
    title = f"{_WORDS[complete]}: {name}, {document['format']}, {stated}, {decimal(document['bytes'])}"
    yield Text(printable(title), style=_STYLES[complete])
    if document["torn_reason"]:
        yield labelled("why", document["torn_reason"])
    have = document["components"]
    lack = [each for each in _COMPONENTS if each not in have]
    yield labelled("holds", (", ".join(have) or "nothing that is known") + (f"; no {', '.join(lack)}" if lack else ""))
    if document["fraction"] not in (None, 1.0):
        yield labelled("there", f"{document['fraction']:.1%} of its bytes")
    for note in document["notes"][:MAX_SHOWN]:
        yield labelled("note", note)
    if document["differs"] is not None:
        yield from _differences(document["differs"], len(document["state_crcs"] or ()))


def _differences(names: list[str], values: int) -> Iterator[Text]:
    if not names:
        yield labelled("equal", f"{counted(values, 'value')}, bit for bit")
        return
    yield labelled("differs", f"{counted(len(names), 'value')}: {', '.join(names[:MAX_SHOWN])}")
    if len(names) > MAX_SHOWN:
        yield labelled("", f"{counted(len(names) - MAX_SHOWN, 'more value')} not shown; --json has every one")


def _store(document: dict[str, Any]) -> Iterator[Text]:
    newest, members = document["newest_complete"], document["members"]
    title = (
        f"newest complete: {newest or 'none'}, of {counted(len(members), 'checkpoint')}, {decimal(document['bytes'])}"
    )
    yield Text(printable(title), style=_STYLES["yes" if newest else "no"])
    if document["latest"] and document["latest"] != newest:
        yield labelled("latest", f"{document['latest']} is what the framework's rule takes")
    if document["garbage"]:
        left = f"{', '.join(document['garbage'][:MAX_SHOWN])} ({decimal(document['garbage_bytes'])})"
        yield labelled("garbage", left)
    for note in document["notes"][:MAX_SHOWN]:
        yield labelled("note", note)
    for member in members[: -MAX_SHOWN - 1 : -1]:
        yield Text()
        yield from _one(member, member["name"])
