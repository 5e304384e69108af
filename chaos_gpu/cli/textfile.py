"""Open a text that somebody names, of any size, and say plainly why it cannot be read."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.progress import Progress

    from chaos_gpu.errors import UsageError

PIECE_BYTES = 1 << 20
"""Still stays in a processor's cache while it is searched; smaller ones cost a sixth more time."""

_PROGRESS_FROM_BYTES = 64 << 20
_SAMPLE_BYTES = 8192
_BINARY_SHARE = 0.3

_FORMATS = {
    b"\x1f\x8b": ("compressed with gzip", "zcat {} | chaos-gpu explain …"),
    b"\xfd7zXZ\x00": ("compressed with xz", "xzcat {} | chaos-gpu explain …"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "zstdcat {} | chaos-gpu explain …"),
    b"BZh": ("compressed with bzip2", "bzcat {} | chaos-gpu explain …"),
    b"PK\x03\x04": ("a zip archive", "unzip -p {} | chaos-gpu explain …"),
    b"LPKSHHRH": ("a systemd journal", "journalctl --file {} -k | chaos-gpu explain …"),
    b"\xff\xfe": ("UTF-16 text", "iconv -f utf-16 -t utf-8 {} | chaos-gpu explain …"),
    b"\x7fELF": ("a program", "name a text"),
}


def open_log(name: str, stack: ExitStack) -> IO[bytes]:
    """Open a file, or standard input for `-`, unbuffered, until the stack is closed.

    Raises:
        UsageError: there is no such file, it is a directory, or it may not be read.
    """
    if name == "-":
        if sys.stdin is None:
            raise _unusable("standard input is closed", remedy="name a file")
        if sys.stdin.isatty():
            click.echo("reading from the terminal: paste the text, end with Ctrl-D", err=True)
        return sys.stdin.buffer
    path = Path(name)
    if path.is_dir():
        raise _unusable(f"{name} is a directory", remedy="name a file in it")
    try:
        return stack.enter_context(path.open("rb", buffering=0))
    except FileNotFoundError:
        raise _unusable(f"there is no file {name}", remedy="name a file, or - for standard input") from None
    except (OSError, ValueError) as error:
        raise _unusable(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def pieces_of(file: IO[bytes]) -> Iterator[bytes]:
    """Return the file's bytes as they come, at most 1 MiB at a time.

    Raises:
        UsageError: reading fails.
    """
    descriptor = file.fileno()
    try:
        while piece := os.read(descriptor, PIECE_BYTES):
            yield piece
    except OSError as error:
        raise _unusable(f"reading failed: {error.strerror}") from None


def with_progress(pieces: Iterator[bytes], file: IO[bytes], stack: ExitStack) -> Iterator[bytes]:
    """Show how far a big file is read, if somebody is looking."""
    size = os.fstat(file.fileno()).st_size
    if size < _PROGRESS_FROM_BYTES or not sys.stderr.isatty():
        return pieces
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    shown = stack.enter_context(
        Bar("reading", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console, transient=True)
    )
    return _counted(pieces, shown, size)


def _counted(pieces: Iterator[bytes], shown: "Progress", size: int) -> Iterator[bytes]:
    task = shown.add_task("reading", total=size)
    for piece in pieces:
        yield piece
        shown.advance(task, len(piece))


def check_text(pieces: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Pass the pieces on, unless the first one shows that this is no text.

    Raises:
        UsageError: it is no text; the remedy says how to get the text out of it, where that is known.
    """
    first = next(pieces, b"")
    if not first:
        return
    for magic, (what, remedy) in _FORMATS.items():
        if first.startswith(magic):
            raise _unusable(f"{_called(name)} is {what}", remedy=remedy.format("FILE" if name == "-" else name))
    if _is_binary(first.lstrip(b"\0")[:_SAMPLE_BYTES] or first[:_SAMPLE_BYTES]):
        raise _unusable(f"{_called(name)} is no text", remedy="give it as text, as the tool printed it")
    yield first
    yield from pieces


def _is_binary(sample: bytes) -> bool:
    """Tell text from other bytes. A lost power, or logrotate, leaves runs of zeros in a log; it is text still."""
    text = sample.replace(b"\0", b"").decode("utf-8", errors="replace")
    strange = sum(1 for each in text if each == "\ufffd" or (each < " " and each not in "\t\n\r\x1b"))
    if b"\0" in sample and (strange or not text):
        return True
    return strange > _BINARY_SHARE * len(text)


def _called(name: str) -> str:
    return "standard input" if name == "-" else name


def _unusable(message: str, remedy: str = "") -> "UsageError":
    from chaos_gpu.errors import UsageError  # chaoslib below it takes long to import; most logs can be read

    return UsageError(message, remedy)
