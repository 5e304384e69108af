"""The driver's messages themselves, once the log's prefix is off: Xid, SXid, and the falls off the bus.

Each pattern begins at the start of the record, so that a program that quotes one is not believed. `NVRM: ` may be
missing: journald strips it from what was written from user space. Sources: the open driver's kernel_rc.c, osinit.c and
osapi.c, common_nvswitch.h; older drivers' lines without `PCI:` or without a process name.
"""

import re
from functools import lru_cache

from chaos_gpu.criteria.xid.advice import action_of, bucket_of
from chaos_gpu.criteria.xid.catalog import CONTACT_SUPPORT
from chaos_gpu.criteria.xid.event import FALLEN_CODE, Event, Kind
from chaos_gpu.criteria.xid.marker import MARKER
from chaos_gpu.criteria.xid.nvlink5 import CODES, UNRESOLVED, Resolution, parse_link_error, resolve
from chaos_gpu.criteria.xid.prefix import Framed

_ADDRESS = r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([01][0-9a-fA-F])(?:\.([0-7]))?"
_XID = re.compile(
    rf"(?:NVRM: ?)?Xid \({_ADDRESS}(?: GPU-I:([0-9]{{1,3}}))?(?: GPU-CI:([0-9]{{1,3}}))?\): ([0-9]{{1,5}})(?=[, ]|$)"
    r"(?:, (?:pid=(?:'?([0-9]{1,10})'?|'?<[^<>]{0,32}>'?)(?:, |$))?(name=)?)?",
    re.ASCII,
)
_SXID = re.compile(rf"(?:nvidia-nvswitch[0-9]{{1,3}}: ?)?SXid \({_ADDRESS}\): ([0-9]{{1,5}})(?=[, ]|$),? ?", re.ASCII)
_SXID_TEXT = re.compile(r"(Fatal|Non-fatal|Nonfatal)\b(?:, Link (-?[0-9]{1,3})(?![0-9]))?", re.ASCII)
_CONTINUATION = re.compile(r"Severity (?P<severity>[0-9]{1,3})(?![0-9])|Data ?\{|(?:Severity|Data) ?$", re.ASCII)
_FALLEN = re.compile(rf"(?:NVRM: ?)?GPU {_ADDRESS}: GPU has fallen off the bus", re.ASCII)

# One printk of three lines. The break between them is a newline, or what some log made of it.
_BREAK = r"[ \t]{0,8}(?:\r?\n|\\n|#012)[ \t]{0,256}(?:NVRM: ?)?"
_PROBE_HEAD = rf"(?:NVRM: ?)?The NVIDIA GPU {_ADDRESS}"
_PROBE_MIDDLE = r"\(PCI ID: [0-9a-fA-F]{4}:[0-9a-fA-F]{4}\) installed in this system has"
_PROBE_TAIL = r"fallen off the bus and is not responding"
_PROBE_WHOLE = re.compile(rf"{_PROBE_HEAD}(?:{_BREAK}| ){_PROBE_MIDDLE}(?:{_BREAK}| ){_PROBE_TAIL}", re.ASCII)
_PROBE_FIRST = re.compile(rf"{_PROBE_HEAD}\.?[ \t]{{0,8}}$", re.ASCII)
_PROBE_LAST = re.compile(rf"(?:NVRM: ?)?{_PROBE_TAIL}", re.ASCII)

_MARK = "cgpu-"
_NAME_BYTES = 15
"""Longest name of a process in Linux. It may hold commas, so where it ends is seen by what follows."""
_OPENING = re.compile(
    r"(?:Ch|channel|Channel) |Graphics |Class Error|MMU Fault|Contained|Uncontained|Row Remapper|GPU has fallen"
    r"|NVLink|Timeout |GSP |CTX SWITCH|An uncorrectable |[A-Z][A-Z0-9_/]{2,63} +(?:Fatal|Nonfatal|Non-fatal)\b",
    re.ASCII,
)


def read_record(framed: Framed, line: int = 1) -> Event | None:
    """Read one record without its log's prefix; None if it reports no fault. Code 0 is no Xid.

    Args:
        framed: the record's text, and what its prefix said.
        line: number of the record's first line in its log.
    """
    text = framed.text
    if (match := _XID.match(text)) is not None:
        return _xid(match, framed, line)
    if (match := _SXID.match(text)) is not None:
        return _sxid(match, framed, line)
    match = _FALLEN.match(text) or _PROBE_WHOLE.match(text)
    if match is not None:
        return _fallen(_pci(*match.groups()[:3]), framed, line)
    return _fallen(None, framed, line) if _PROBE_LAST.match(text) else None


def first_of_three(text: str) -> str | None:
    """Return the GPU that the first line of a fall at probe time names; None if it is no such line."""
    match = _PROBE_FIRST.match(text)
    return _pci(*match.groups()[:3]) if match else None


def ends_a_name(text: str) -> bool:
    """Say whether a text begins with words by which the end of a name with commas is known."""
    return _OPENING.match(text) is not None


def _fallen(pci: str | None, framed: Framed, line: int) -> Event:
    text = re.sub(_BREAK, " ", framed.text.strip()).removeprefix("NVRM:").strip()
    bucket = bucket_of(FALLEN_CODE)
    action = bucket or CONTACT_SUPPORT
    origin = _injected(None, framed)
    event = Event(Kind.FALLEN_OFF_BUS, FALLEN_CODE, pci, text, injected=origin, bucket=bucket, action=action)
    return event.at(line, framed.stamp, framed.seq, framed.usec)


def _xid(match: re.Match[str], framed: Framed, line: int) -> Event | None:
    domain, bus, device, _, gpu_instance, compute_instance, digits, pid, named = match.groups()
    code = int(digits)
    if code == 0:
        return None
    rest = framed.text[match.end() :]
    process, text = _split_name(rest) if named else (None, rest.strip())
    subcode, severity, link, flag, resolution = _link_error(code, text)
    return Event(
        Kind.XID,
        code,
        _pci(domain, bus, device),
        text,
        int(gpu_instance) if gpu_instance else None,
        int(compute_instance) if compute_instance else None,
        int(pid) if pid else None,
        process,
        subcode,
        severity,
        link,
        _injected(flag, framed),
        bucket_of(code),
        action_of(code, text, resolution),
        resolution,
        False,
        line,
        framed.stamp,
        framed.seq,
        framed.usec,
    )


def _link_error(code: int, text: str) -> tuple[str | None, str | None, int | None, bool | None, Resolution | None]:
    """Return subcode, severity, link, injected and resolution.

    A lone first word is a subcode only in the records of NVLink 5, where the rest may have been cut off.
    """
    error = parse_link_error(text)
    known = code in CODES
    if error is None or (error.severity is None and not known):
        return None, None, None, None, UNRESOLVED if known else None
    resolution = resolve(code, error.intrinfo, error.status) if known else None
    return error.subcode, error.severity, error.link, error.injected, resolution


def _split_name(rest: str) -> tuple[str | None, str]:
    """Split `name, text` where the text begins, with names that hold commas."""
    first = rest.find(", ")
    at = first
    while 0 <= at <= _NAME_BYTES:
        if _OPENING.match(rest, at + 2):
            first = at
            break
        at = rest.find(", ", at + 2)
    name, text = (rest.strip(), "") if first < 0 else (rest[:first], rest[first + 2 :].strip())
    return (None if name.strip("'") in {"<unknown>", ""} else name), text


def _sxid(match: re.Match[str], framed: Framed, line: int) -> Event | None:
    domain, bus, device, function, digits = match.groups()
    code = int(digits)
    if code == 0:
        return None
    pci = _pci(domain, bus, device) + (f".{function}" if function else "")
    text = framed.text[match.end() :].strip()
    further = _CONTINUATION.match(text)
    head = None if further else _SXID_TEXT.match(text)
    severity, link = head.groups() if head else (further["severity"] if further else None, None)
    event = Event(
        Kind.SXID,
        code,
        pci,
        text,
        severity=severity,
        link=int(link) if link else None,
        injected=_injected(None, framed),
        action=CONTACT_SUPPORT,
        continuation=further is not None,
    )
    return event.at(line, framed.stamp, framed.seq, framed.usec)


def _injected(flag: bool | None, framed: Framed) -> bool | None:
    """Say whether somebody made this record on purpose.

    True for the hardware's own flag `i1`, for a record that user space wrote, and for our marker; false where the log
    says that the kernel wrote it; else as the flag says, or unknown.
    """
    if framed.from_kernel is False or (_MARK in framed.text and MARKER.search(framed.text)):
        return True
    return False if flag is None and framed.from_kernel else flag


@lru_cache(maxsize=4096)
def _pci(domain: str, bus: str, device: str) -> str:
    return f"{int(domain, 16):04x}:{bus}:{device}".lower()
