"""`chaos-gpu explain checkpoint`: whether a checkpoint is whole, what it holds, what differs."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import click

from chaos_gpu.cli.options import json_option, print_json

Progress = Callable[[int, int], None]

REMEDY = "name a checkpoint, or a directory of several, in a format that docs/checkpoints.md lists"
SILENCE_S = 30
"""How long the reader may say nothing: a store that hangs would otherwise hang us."""
PROGRESS_FROM_BYTES = 64 << 20
PASS, FAIL, INCONCLUSIVE = 0, 1, 2
NOTHING_READ: dict[str, Any] = {
    "format": None,
    "step": None,
    "complete": "suspect",
    "torn_reason": "",
    "components": [],
    "fraction": None,
    "state_crcs": None,
    "without_crc": 0,
    "differs": None,
}


@click.command(epilog="Example: chaos-gpu explain checkpoint runs/checkpoint-500 --against runs/checkpoint-500.ref")
@click.argument("path")
@click.option("--against", metavar="REF", default="", help="Another checkpoint: name each value that differs from it.")
@click.option("--shallow", is_flag=True, help="Read headers, sizes and directories only, not every byte.")
@click.option("--exit-code", is_flag=True, help="Exit 1 if it is not complete or differs, 2 if that is not certain.")
@json_option
def checkpoint(path: str, against: str, shallow: bool, exit_code: bool, as_json: bool) -> int:
    """Explain a checkpoint: is it whole, what does it hold, what differs.

    PATH is a checkpoint, a file or a directory, of torch.save, safetensors, torch.distributed.checkpoint, Transformers,
    Accelerate, Lightning, Megatron-LM, DeepSpeed, NeMo, torchtitan or Orbax; or a store of several: then the newest
    complete one is named. What stands beside it counts as evidence.

    Nothing in it is run: pickles are walked, not loaded, in a process of its own, within 2 GiB.

    Exits 0 whatever it says, unless --exit-code is given; 4 if it cannot be judged. With --json the document then says
    suspect.
    """
    from chaos_gpu.errors import UsageError

    try:
        with ExitStack() as stack:
            document = read_in_child(path, against, not shallow, progress_bar(stack))
    except UsageError as error:
        if as_json:
            print_json({**NOTHING_READ, "path": path, "torn_reason": error.reason})
        raise
    if as_json:
        print_json(document)
    else:
        from chaos_gpu.cli.checkpoint_text import show

        show(document)
    return _code(document, bool(against)) if exit_code else PASS


def _code(document: dict[str, Any], compared: bool) -> int:
    if document["format"] == "store":
        return PASS if document["newest_complete"] else FAIL
    if document["complete"] == "no" or document["differs"]:
        return FAIL
    uncertain = document["complete"] == "suspect" or (compared and document["differs"] is None)
    return INCONCLUSIVE if uncertain else PASS


def read_in_child(path: str, against: str, deep: bool, on_progress: Progress) -> dict[str, Any]:
    """Read a checkpoint in a process that has limits on memory and time.

    Args:
        path: one checkpoint, or a store of several.
        against: another checkpoint to compare with, or "".
        deep: read all bytes.
        on_progress: told how many bytes of how many were read.

    Returns:
        The document that docs/checkpoints.md describes.

    Raises:
        UsageError: it cannot be judged; the message says why.
    """
    from chaos_gpu.errors import UsageError

    command = [sys.executable, "-I", "-m", "chaos_gpu.payloads.checkpoint", "--spec", "-"]
    spec = {"path": path, "against": against, "deep": deep}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
        try:
            if child.stdin and child.stdout:
                with suppress(BrokenPipeError), child.stdin:  # a child that has ended says so by its code
                    child.stdin.write(json.dumps(spec).encode())
                for event in _events(child.stdout.fileno()):
                    if event["event"] == "reading":
                        on_progress(event["bytes"], event["total"])
                    elif event["event"] == "answer":
                        return _readable(event["document"])
                    else:
                        raise UsageError(event["reason"], REMEDY)
        finally:
            child.kill()
    raise UsageError(
        f"{path} cannot be judged: {_ending(child.returncode)}", remedy="chaos-gpu explain checkpoint --shallow"
    )


def _readable(document: dict[str, Any]) -> dict[str, Any]:
    """Return it with names that are no UTF-8 made so; they could not be printed."""
    text = json.dumps(document, ensure_ascii=False)
    return dict(document if text.isascii() else json.loads(text.encode(errors="replace")))


def _events(descriptor: int) -> Iterator[dict[str, Any]]:
    """Yield the child's events until it ends, or says nothing for too long."""
    rest = bytearray()
    while select.select([descriptor], [], [], SILENCE_S)[0]:
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return
        rest += piece
        if b"\n" in piece:
            *lines, rest = rest.split(b"\n")
            for line in lines:
                yield json.loads(line)


def _ending(code: int) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGSEGV, -signal.SIGBUS):
        return f"reading it took more than it may ({signal.Signals(-code).name})"
    return f"its reader said nothing for {SILENCE_S} s" if code == -signal.SIGKILL else f"its reader ended with {code}"


def progress_bar(stack: ExitStack) -> Progress:
    """Return what shows how far a large one is read, if somebody is looking."""
    if not sys.stderr.isatty():
        return lambda done, total: None
    shown: list[Any] = []

    def on_progress(done: int, total: int) -> None:
        if total < PROGRESS_FROM_BYTES:
            return
        if not shown:
            shown.extend(_bar(stack, total))
        bar, task = shown
        bar.update(task, completed=min(done, total))

    return on_progress


def _bar(stack: ExitStack, total: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = ("reading", BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = stack.enter_context(Bar(*columns, console=Console(stderr=True), transient=True))
    return bar, bar.add_task("reading", total=total)
