"""`chaos-gpu explain`: what a log or a tool's output says, and what to do about it."""

import sys
from collections.abc import Iterable
from contextlib import ExitStack
from typing import BinaryIO

import click

from chaos_gpu.cli.checkpoint import checkpoint
from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.cli.streams import reader_left
from chaos_gpu.cli.textfile import check_text, open_log, pieces_of, with_progress
from chaos_gpu.criteria.xid.incidents import Incidents
from chaos_gpu.criteria.xid.stream import LogReader


@click.group()
def explain() -> None:
    """Say what a log or a checkpoint means and what to do. Reads files, needs no cluster."""


explain.add_command(checkpoint)


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


@explain.command(epilog="Example: dcgmi diag -r 2 -j | chaos-gpu explain dcgm")
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option("--exit-status", type=click.IntRange(0, 255), help="Exit status of dcgmi, if you know it.")
@json_option
def dcgm(file: str, exit_status: int | None, as_json: bool) -> None:
    """Explain what DCGM printed: a diagnostic, a health check, an exporter's metrics.

    FILE is what dcgmi diag -j or dcgmi health -c -j printed, of any version from 3.1 on, with whatever stands around
    the JSON, or an exporter's metrics; without it, standard input is read. With what dcgmi discovery -l printed in
    front of the JSON, GPUs get their UUIDs.

    Nothing passes on missing evidence: a test that was skipped on one GPU, no GPUs, an engine that is paused. A warning
    that DCGM prints as Fail is a warning again.

    Exits 0 whatever the output says, 4 if it cannot be read: cut off, broken, none of DCGM's. With --json the document
    then says inconclusive.
    """
    from chaos_gpu.criteria.dcgm.document import MAX_BYTES
    from chaos_gpu.criteria.dcgm.reader import read_output
    from chaos_gpu.criteria.dcgm.report import NOTHING_READ
    from chaos_gpu.errors import UsageError

    try:
        with ExitStack() as stack:
            output = _read(check_text(pieces_of(open_log(file, stack)), file), MAX_BYTES)
        report = read_output(output, exit_status)
    except UsageError:
        if as_json:
            print_json(dict(NOTHING_READ))
        raise
    if as_json:
        print_json(report.as_json())
        return
    from chaos_gpu.cli.diagnostics import show

    show(report)


def _read(pieces: Iterable[bytes], limit: int) -> bytes:
    """Read no more than shows that the limit is exceeded."""
    output = bytearray()
    for piece in pieces:
        output += piece
        if len(output) > limit:
            break
    return bytes(output)


def _print_events(pieces: Iterable[bytes]) -> int:
    """Print one line per event, as soon as a piece is read, so that a followed log is explained as it grows."""
    reader = LogReader()
    for piece in pieces:
        _write(sys.stdout.buffer, "".join(event.as_json_line() for event in reader.feed(piece)))
        if reader_left():
            break
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
