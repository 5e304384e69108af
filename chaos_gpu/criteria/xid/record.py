"""Compose the kernel records of one fault as the drivers would write them, and the bytes that write them.

A record written from user space is never quite the driver's own: the kernel gives it another facility, and the flag `-`
where the driver's have `c`. No reader may depend on that, and no writer can change it.
"""

from dataclasses import dataclass
from enum import StrEnum

from chaos_gpu.criteria.pci import normal_pci
from chaos_gpu.criteria.xid.marker import MARKER
from chaos_gpu.criteria.xid.shapes import RECIPES, Wanted, variant_of
from chaos_gpu.errors import UsageError

PCI_PLACEHOLDER = "{pci}"
"""Stands for an address that only the node itself knows; the injector fills it in."""

SWITCH_PLACEHOLDER = "{switch}"
"""Stands for the address of the node's first NVSwitch, function included."""

MAX_BYTES = 976
"""Longest write that every reader takes: the kernel rejects records of about 1 kB, prefix included."""

NO_SUCH_PID = 4_194_305
"""One above the largest pid of a 64-bit kernel, so that a faked record never names a living process."""


class Form(StrEnum):
    """How a record is worded; each is made as `shapes` says."""

    PLAIN = "plain"
    """Without a process."""
    PROCESS = "process"
    """With the process that the driver holds responsible."""
    QUOTED_PID = "quoted-pid"
    """With a process that the driver does not know: `pid='<unknown>', name=<unknown>`."""
    COMMA_NAME = "comma-name"
    """With a process that has a comma in its name."""
    MIG = "mig"
    """With the MIG instance inside the parentheses; variant: GPU instance and compute instance, `1/0`, or `1`."""
    NO_PCI = "no-pci"
    """As older drivers write it, without `PCI:`."""
    LONG_DOMAIN = "long-domain"
    """With the address as nvidia-smi prints it: eight digits of domain, and a function."""
    FUNCTION = "function"
    """With a function behind the address."""
    UPPER_CASE = "upper-case"
    """With the address in upper case."""
    NVLINK5 = "nvlink5"
    """144 to 150; variant: `ge_r575` or `lt_r575` (which drivers' bits), `cut`, `no-link` or `flagged`."""
    RECOVERY = "recovery"
    """154; variant: old and new recovery action, `0-1`."""
    FALLEN = "fallen"
    """A GPU off the bus; variant: `xid` (Xid 79 and its second record), `gpu` (that alone), `probe` (three lines)."""
    BURST = "burst"
    """The three records of one fault of an application."""
    SXID = "sxid"
    """An NVSwitch's error with its two further lines."""


class Transport(StrEnum):
    """How a record goes into the kernel log, which decides who can see it.

    KMSG is the bare record: readers of /dev/kmsg see it, those of the journal do not, since journald takes `NVRM:` of
    a record from user space for an identifier. BRACKET puts a time in front, as dmesg prints it: the journal's readers
    see that, a reader that wants `NVRM` first does not. BOTH writes it twice, for clusters that have both.
    """

    KMSG = "kmsg"
    BRACKET = "bracket"
    BOTH = "both"


@dataclass(frozen=True)
class Record:
    """The records of one fault, ready to be written."""

    code: int
    pci: str
    form: Form
    variant: str
    marker: str
    texts: tuple[str, ...]
    """One for each write; the last line of a text is its end."""
    level: int
    text_known: bool
    """False: the driver's wording for this code is not known to us, the catalogue's description stands for it."""

    @property
    def text(self) -> str:
        """The first of them."""
        return self.texts[0]

    @property
    def shape(self) -> str:
        """The form and its variant, for people."""
        return f"{self.form} {self.variant}".strip()

    @property
    def called(self) -> str:
        """What it is, for people; how it is worded only where that is not as usual."""
        if self.form is Form.SXID:
            return f"SXid {self.code}"
        return f"Xid {self.code}" if self.form is Form.PROCESS else f"Xid {self.code} ({self.shape})"


def compose(
    code: int, pci: str, *, form: str = Form.PLAIN, variant: str = "", marker: str, pid: int = NO_SUCH_PID
) -> Record:
    """Compose what the driver writes for a code.

    Args:
        code: of the catalogue; for form `sxid`, an NVSwitch's.
        pci: the GPU's address in any usual form, or `PCI_PLACEHOLDER`; for form `sxid`, the NVSwitch's.
        form: how it is worded.
        variant: of the form, "" for its default.
        marker: `cgpu-` and eight of a-z, 0-9: the token by which the record is known again.
        pid: the process to name; by default one that cannot exist.

    Raises:
        UsageError: unknown code, form or variant, a form that the code cannot have, not an address, marker or pid.
    """
    shape = checked_form(form)
    if MARKER.fullmatch(marker) is None:
        raise UsageError(f"{marker!r} is not a marker", remedy="a marker is cgpu- and eight of a-z and 0-9")
    if type(pid) is not int or pid < 1:
        raise UsageError(f"{pid!r} is not a process id", remedy="give a whole number above 0")
    place = pci if pci == PCI_PLACEHOLDER else normal_pci(pci)
    switch = SWITCH_PLACEHOLDER if pci == PCI_PLACEHOLDER else f"{place}.0"
    chosen, recipe = variant_of(shape, variant), RECIPES[shape]
    made = recipe.make(Wanted(code, place, switch, marker, pid, chosen))
    return Record(code, place, shape, chosen, marker, made.texts, recipe.level, text_known=made.known)


def checked_form(form: str) -> Form:
    """Return the form of a name. Raises UsageError with the forms that there are."""
    if form not in list(Form):
        raise UsageError(f"no record form {form!r}", remedy=f"one of: {', '.join(Form)}")
    return Form(form)


def writes(record: Record, transport: str, uptime_s: float = 0.0) -> tuple[bytes, ...]:
    """Return the bytes of each write to /dev/kmsg, in order.

    Args:
        record: the records of one fault.
        transport: `kmsg`, `bracket` or `both`.
        uptime_s: seconds since boot, for `bracket`.

    Raises: UsageError as `as_written` does.
    """
    ways = (Transport.KMSG, Transport.BRACKET) if transport == Transport.BOTH else (transport,)
    return tuple(
        as_written(text, way, uptime_s, level=record.level, lines=text.count("\n") + 1)
        for way in ways
        for text in record.texts
    )


def as_written(text: str, transport: str, uptime_s: float = 0.0, *, level: int = 4, lines: int = 1) -> bytes:
    """Return the bytes of one write to /dev/kmsg: level, transport's prefix, text, newline.

    The newline matters: the kernel keeps a record without one open for a continuation, and readers do not see it
    until the next record comes.

    Args:
        text: one record's text.
        transport: `kmsg` or `bracket`.
        uptime_s: seconds since boot, for `bracket`.
        level: the kernel's log level, 0 to 7.
        lines: so many lines does the record have; the driver's own are one, but for a GPU missing at probe time.

    Raises:
        UsageError: unknown transport, not printable ASCII, negative time, or longer than `MAX_BYTES`.
    """
    if transport not in (Transport.KMSG, Transport.BRACKET):
        one_way = ", ".join((Transport.KMSG, Transport.BRACKET))
        raise UsageError(f"no transport {transport!r}", remedy=f"one of: {one_way}")
    parts = text.split("\n")
    if len(parts) != lines or not all(part.isascii() and part.isprintable() for part in parts):
        raise UsageError("a kernel record is printable ASCII on one line", remedy="take other characters out")
    if not uptime_s >= 0:
        raise UsageError(f"{uptime_s!r} is not a time since boot")
    stamp = f"[{uptime_s:.6f}] " if transport == Transport.BRACKET else ""
    data = f"<{level}>{stamp}{text}\n".encode("ascii")
    if len(data) > MAX_BYTES:
        raise UsageError(f"the record is {len(data)} bytes long, {MAX_BYTES} at most", remedy="shorten it")
    return data
