"""Write a kernel record as the NVIDIA driver would: prefix, GPU, code, process, text.

The frame is that of the open driver's `krcReportXid` (kernel_rc.c): `NVRM: Xid (PCI:dddd:bb:dd): <code>, ` followed by
`pid=<pid>, name=<name>, ` where a process is known, then the code's own text. Our marker stands where no known reader
of such records trips over it: in `name=`, or at the very end without parentheses or anything like `: <number>,`.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from chaos_gpu.criteria.pci import normal_pci
from chaos_gpu.criteria.xid.catalog import XidKind, lookup
from chaos_gpu.criteria.xid.marker import MARKER
from chaos_gpu.criteria.xid.tables import read_table
from chaos_gpu.errors import UsageError

PCI_PLACEHOLDER = "{pci}"
"""Stands for an address that only the node itself knows; the injector fills it in."""

MAX_BYTES = 976
"""Longest write that every reader takes: the kernel rejects records of about 1 kB, prefix included."""

NO_SUCH_PID = 4_194_305
"""One above the largest pid of a 64-bit kernel, so that a faked record never names a living process."""


class Form(StrEnum):
    """With or without the process that the driver holds responsible."""

    PLAIN = "plain"
    PROCESS = "process"


class Transport(StrEnum):
    """How a record goes into the kernel log, which decides who can see it.

    KMSG is the bare record: readers of /dev/kmsg see it, those of the journal do not, since journald takes `NVRM:` of
    a record from user space for an identifier. BRACKET puts a time in front, as dmesg prints it: the journal's readers
    see that, a reader that wants `NVRM` first does not.
    """

    KMSG = "kmsg"
    BRACKET = "bracket"


@dataclass(frozen=True)
class Record:
    """One record, ready to be written."""

    code: int
    pci: str
    form: Form
    marker: str
    text: str
    text_known: bool
    """False: the driver's wording for this code is not known to us, the catalogue's description stands for it."""


def compose(code: int, pci: str, *, form: str = Form.PLAIN, marker: str, pid: int = NO_SUCH_PID) -> Record:
    """Compose the record that the driver writes for a code.

    Args:
        code: a code of the catalogue.
        pci: the GPU's address in any usual form, or `PCI_PLACEHOLDER`.
        form: `plain`, or `process` (with pid and name).
        marker: `cgpu-` and eight of a-z, 0-9: the token by which the record is known again.
        pid: the process to name; by default one that cannot exist.

    Raises:
        UsageError: unknown code or form, not a PCI address, not a marker, not a pid.
    """
    known = lookup(code)
    shape = _form(form)
    if MARKER.fullmatch(marker) is None:
        raise UsageError(f"{marker!r} is not a marker", remedy="a marker is cgpu- and eight of a-z and 0-9")
    if type(pid) is not int or pid < 1:
        raise UsageError(f"{pid!r} is not a process id", remedy="give a whole number above 0")
    place = pci if pci == PCI_PLACEHOLDER else normal_pci(pci)
    words = _texts().get((code, shape))
    body = words or (known.mnemonic if known.kind is XidKind.UNUSED else known.description)
    process = f"pid={pid}, name={marker}, " if shape is Form.PROCESS else ""
    tail = "" if shape is Form.PROCESS else f" {marker}"
    text = f"NVRM: Xid (PCI:{place}): {code}, {process}{body}{tail}"
    return Record(code, place, shape, marker, text, text_known=words is not None)


def as_written(text: str, transport: str, uptime_s: float = 0.0) -> bytes:
    """Return the bytes of one write to /dev/kmsg: level, transport's prefix, text, newline.

    The newline matters: the kernel keeps a record without one open for a continuation, and readers do not see it
    until the next record comes.

    Args:
        text: one record's text.
        transport: `kmsg` or `bracket`.
        uptime_s: seconds since boot, for `bracket`.

    Raises:
        UsageError: unknown transport, not printable ASCII, negative time, or longer than `MAX_BYTES`.
    """
    if transport not in list(Transport):
        raise UsageError(f"no transport {transport!r}", remedy=f"one of: {', '.join(Transport)}")
    if not (text.isascii() and text.isprintable()):
        raise UsageError("a kernel record is printable ASCII on one line", remedy="take other characters out")
    if not uptime_s >= 0:
        raise UsageError(f"{uptime_s!r} is not a time since boot")
    stamp = f"[{uptime_s:.6f}] " if transport == Transport.BRACKET else ""
    data = f"<4>{stamp}{text}\n".encode("ascii")
    if len(data) > MAX_BYTES:
        raise UsageError(f"the record is {len(data)} bytes long, {MAX_BYTES} at most", remedy="shorten it")
    return data


def _form(form: str) -> Form:
    if form not in list(Form):
        raise UsageError(f"no record form {form!r}", remedy=f"one of: {', '.join(Form)}")
    return Form(form)


@cache
def _texts() -> dict[tuple[int, Form], str]:
    forms = {"any": tuple(Form), "plain": (Form.PLAIN,), "process": (Form.PROCESS,)}
    rows = read_table("texts.tsv")
    return {(int(row["code"]), form): row["text"] for row in rows for form in forms[row["form"]]}
