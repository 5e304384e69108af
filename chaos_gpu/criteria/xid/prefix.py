"""What stands before a kernel record in a log, and what it tells: who wrote the record, and when.

Known: records of /dev/kmsg, dmesg (also -T, -e, -d, -x, caller ids, ISO times), RFC 3164 and RFC 5424 syslog,
journald's short outputs, busybox, and no prefix at all. Whatever names another program than the kernel is none of
these: what follows is that program's word, not the kernel's. Every repetition in the pattern is bounded.
"""

import re
from typing import NamedTuple

from chaos_gpu.criteria.kmsg import MalformedRecord, parse_kmsg

_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?"
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO = f"{_DATE}T{_CLOCK}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})"
_FULL = f"{_DAY} {_DATE} {_CLOCK} [A-Z+-][A-Z0-9+:-]{{1,9}}"
_RFC3164 = f"{_MONTH} [ 0-9]?[0-9] {_CLOCK}"
_UNIX = r"[0-9]{9,11}\.[0-9]{3,9}"
_BRACKET = (
    r"\[(?: {0,12}\+?[0-9]{1,12}\.[0-9]{1,9}"
    rf"|{_DAY} {_MONTH} [ 0-9]?[0-9] {_CLOCK} [0-9]{{4}}|{_MONTH}[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}})"
    r"(?: <[ +]{0,12}[0-9]{1,12}\.[0-9]{1,9}>)?\]"
)
_CALLER = r"(?: ?\[ {0,9}[TC][0-9]{1,10}\])?"
_LEVELS = "emerg|alert|crit|err|warn|notice|info|debug"

# A host never looks like a program's tag (`name:`, `name[pid]:`), nor may it be the level of an application's log.
_HOST = (
    r"(?!(?i:trace|debug|info|notice|warn|warning|error|critical|fatal)\b)"
    r"[0-9A-Za-z_](?:[0-9A-Za-z_.:-]{0,253}[0-9A-Za-z_])? "
)
_KERNEL = r"kernel(?:\[[0-9]{1,10}\])?: "
_BUSYBOX = r"(?:(?P<busybox>kern|user)\.[a-z]{1,7} )?"
# journald takes what user space wrote to /dev/kmsg apart: the record's first word becomes the program's name.
_STRIPPED = "(?=NVRM: |nvidia-nvswitch[0-9])"

_PREFIX = re.compile(
    "(?:\ufeff)?[ \t]{0,256}(?:<(?P<priority>[0-9]{1,3})>)?"
    rf"(?:(?P<facility>[a-z0-9]{{2,8}}) {{0,8}}:(?:{_LEVELS}) {{0,8}}: )?"
    rf"(?:1 (?P<rfc5424>{_ISO}|-) [!-~]{{1,255}} (?:kernel|NVRM|nvidia-nvswitch[0-9]{{1,3}}) "
    r"[!-~]{1,128} [!-~]{1,32} (?:-|(?:\[[^\]\n]{0,1024}\]){1,4}) (?:\ufeff)?"
    rf"|(?P<stamp>{_ISO}|{_FULL}|{_RFC3164}|{_UNIX}) (?:(?:{_HOST})?{_BUSYBOX}{_KERNEL}|{_HOST}{_STRIPPED})?"
    rf"|(?P<bracket>{_BRACKET}){_CALLER} (?:(?:{_HOST})?{_KERNEL})?"
    rf"|{_KERNEL})?"
    rf"(?:{_BRACKET}{_CALLER} ?){{0,2}}",
    re.ASCII,
)
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_ESCAPE = re.compile(r"((?:\\x[0-9a-fA-F]{2})+)")
_INJECTED_STAMP = re.compile(rf"{_BRACKET} ?", re.ASCII)
_FACILITY_BITS = 3


class Framed(NamedTuple):
    """A record's own text, and what its frame says."""

    text: str
    stamp: str = ""
    """The time as printed, "" if none is."""
    from_kernel: bool | None = None
    """Whether the kernel itself wrote it; None: the frame does not say."""
    seq: int | None = None
    usec: int | None = None


def unframe(line: bytes) -> Framed:
    """Take the log's prefix off one line; of a line without a known prefix everything is text."""
    if line[:1].isdigit() and b";" in line:
        try:
            record = parse_kmsg(line)
        except MalformedRecord:
            pass  # `1748319536.089671 host kernel: …; …` begins with a digit too
        else:
            fake = _INJECTED_STAMP.match(record.text)
            text = record.text[fake.end() :] if fake else record.text
            return Framed(text, "", record.from_kernel, record.seq, record.usec)
    text = line.decode("utf-8", errors="replace")
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    match = _PREFIX.match(text)
    if match is None:  # cannot be: every part of the pattern is optional
        return Framed(_unescape(text))
    priority, facility, rfc5424, plain, busybox, bracket = match.groups()
    stamp = plain or bracket or rfc5424
    return Framed(
        _unescape(text[match.end() :]),
        stamp.strip("[]- ") if stamp else "",
        _from_kernel(priority, facility or busybox) if priority or facility or busybox else None,
    )


def _from_kernel(priority: str | None, facility: str | None) -> bool:
    return int(priority) >> _FACILITY_BITS == 0 if priority else facility == "kern"


def _unescape(text: str) -> str:
    r"""Undo `\xNN`, as the kernel writes bytes that are not printable."""
    if "\\x" not in text:
        return text
    return _ESCAPE.sub(lambda run: bytes.fromhex(run[1].replace("\\x", "")).decode("utf-8", errors="replace"), text)
