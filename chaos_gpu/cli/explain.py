"""`chaos-gpu explain`: what a log or a tool's output says, and what to do about it."""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from typing import BinaryIO

import click

from chaos_gpu.cli.options import json_option
from chaos_gpu.cli.textfile import check_text, open_log, pieces_of, with_progress
from chaos_gpu.criteria.xid.incidents import Incidents
from chaos_gpu.criteria.xid.stream import LogReader


@click.group()
def explain() -> None:
    """Say what a log means and what to do. Reads files, needs no cluster."""


@explain.command(epilog="Example: journalctl -k -b | chaos-gpu explain xid")
@click.argument("file", default="-", metavar="[FILE|-]")
@json_option
def xid(file: str, as_json: bool) -> None:
    """Explain the GPU faults of a kernel log: Xid, SXid, GPUs that fell off the bus.

    FILE is what dmesg, journalctl or /dev/kmsg gave, or a syslog, of any size; without it, standard input is read.
    Lines of other programs, and programs that quote a fault, are passed over.

    By default faults are shown as incidents, the gravest first: repetitions, bursts and replays count once. With --json
    each fault record is one line of JSON, nothing merged; only NVSwitch's further lines belong to their first one.

    Exits 0 whatever the log says, 4 if it cannot be read. Log and output may hold names of processes.
    """
    with ExitStack() as stack:
        log = open_log(file, stack)
        pieces = check_text(with_progress(pieces_of(log), log, stack), file)
        lines = _print_events(pieces) if as_json else _print_incidents(pieces)
    if lines == 0:
        click.echo("the input is empty", err=as_json)


def _print_events(pieces: Iterable[bytes]) -> int:
    """Print one line per event, as soon as a piece is read, so that a followed log is explained as it grows."""
    reader = LogReader()
    for piece in pieces:
        _write(sys.stdout.buffer, "".join(event.as_json_line() for event in reader.feed(piece)))
    _write(sys.stdout.buffer, "".join(event.as_json_line() for event in reader.close()))
    return reader.lines


def _write(out: BinaryIO, text: str) -> None:
    if text:
        out.write(text.encode("ascii"))
        out.flush()


def _print_incidents(pieces: Iterable[bytes]) -> int:
    from chaos_gpu.cli.incidents import show  # rich takes a tenth of a second to import, and JSON needs none of it

    reader, incidents = LogReader(), Incidents()
    for piece in pieces:
        for event in reader.feed(piece):
            incidents.add(event)
    for event in reader.close():
        incidents.add(event)
    if reader.lines:
        show(incidents, reader.lines)
    return reader.lines
