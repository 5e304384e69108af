"""The shapes in which a driver writes a fault: for each form, the records of one incident, our marker in every one.

The frame of an Xid is that of the open driver's `krcReportXid` (kernel_rc.c), the others are its `gpu.c`, `osinit.c`,
`osapi.c` and `common_nvswitch.h`. Some forms no driver writes, but tools that copy an address from elsewhere do:
`long-domain`, `function` and `upper-case`. Our marker stands where no known reader of such records trips over it: in
`name=`, or at the very end without parentheses or anything like `: <number>,`.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from chaos_gpu.criteria.xid.advice import RECOVERY
from chaos_gpu.criteria.xid.catalog import XidKind, lookup
from chaos_gpu.criteria.xid.event import FALLEN_CODE
from chaos_gpu.criteria.xid.forms import ends_a_name
from chaos_gpu.criteria.xid.nvlink5 import CODES, GENERATIONS, sample
from chaos_gpu.criteria.xid.tables import read_table
from chaos_gpu.errors import UsageError

COMMA_NAME = "python3, main"
"""A process may call itself anything of up to 15 bytes."""

UNCONTAINED = 95
"""The one code of the hardware alone that names the MIG instance which it hit."""

BURST_CODE = 13
"""One fault of an application is three records of this code; 31 and 43 come alone."""

RECOVERY_CODE = 154
_MIG = re.compile(r"([0-9]|1[0-4])(?:/([0-7]))?", re.ASCII)
_CHANGE = re.compile(r"([0-5])-([0-5])", re.ASCII)


class Wanted(NamedTuple):
    """What is to be written.

    Attributes:
        code: a code that the form can have.
        place: the GPU's address, `dddd:bb:dd`, or what stands for it.
        switch: an NVSwitch's, with function, likewise.
        marker: our token.
        pid: of the process to name.
        variant: one of the form's.
    """

    code: int
    place: str
    switch: str
    marker: str
    pid: int
    variant: str


class Shape(NamedTuple):
    """The records of one incident; one that holds newlines is written at once."""

    texts: tuple[str, ...]
    known: bool = True
    """False: the driver's wording for this code is not known to us, the catalogue's description stands for it."""


class Recipe(NamedTuple):
    """How to make one form.

    Attributes:
        make: makes the records.
        level: the kernel's log level of them.
        variants: their names, the first the default; none where there is one way only.
        pattern: what a variant looks like, where there are too many to name.
    """

    make: Callable[[Wanted], Shape]
    level: int = 4
    variants: tuple[str, ...] = ()
    pattern: str = ""


def words_of(code: int, *, process: bool) -> tuple[str, bool]:
    """Return the driver's text for a code, and whether it is really the driver's."""
    found = _texts().get((code, process))
    known = lookup(code)
    return found or (known.mnemonic if known.kind is XidKind.UNUSED else known.description), found is not None


def _xid(wanted: Wanted, address: str, *, process: bool) -> Shape:
    body, known = words_of(wanted.code, process=process)
    named = f"pid={wanted.pid}, name={wanted.marker}, {body}" if process else f"{body} {wanted.marker}"
    return Shape((f"NVRM: Xid ({address}): {wanted.code}, {named}",), known)


def _plain(wanted: Wanted) -> Shape:
    return _xid(wanted, f"PCI:{wanted.place}", process=False)


def _process(wanted: Wanted) -> Shape:
    return _xid(wanted, f"PCI:{wanted.place}", process=True)


def _no_pci(wanted: Wanted) -> Shape:
    return _xid(wanted, wanted.place, process=False)


def _long_domain(wanted: Wanted) -> Shape:
    return _xid(wanted, f"PCI:0000{wanted.place}.0", process=True)


def _function(wanted: Wanted) -> Shape:
    return _xid(wanted, f"PCI:{wanted.place}.0", process=True)


def _upper_case(wanted: Wanted) -> Shape:
    return _xid(wanted, f"PCI:{wanted.place.upper()}", process=True)


def _mig(wanted: Wanted) -> Shape:
    if lookup(wanted.code).kind is not XidKind.APPLICATION and wanted.code != UNCONTAINED:
        raise UsageError(
            f"Xid {wanted.code} is about a whole GPU: its record names no MIG instance",
            remedy=f"give a code of an application (13, 31, 43, 94) or {UNCONTAINED}, or another form",
        )
    match = _MIG.fullmatch(wanted.variant)
    assert match  # noqa: S101 - checked by its recipe
    compute = "" if match[2] is None else f" GPU-CI:{int(match[2]):02}"
    return _xid(wanted, f"PCI:{wanted.place} GPU-I:{int(match[1]):02}{compute}", process=True)


def _quoted_pid(wanted: Wanted) -> Shape:
    body, known = words_of(wanted.code, process=True)
    named = f"pid='<unknown>', name=<unknown>, {body} {wanted.marker}"
    return Shape((f"NVRM: Xid (PCI:{wanted.place}): {wanted.code}, {named}",), known)


def _comma_name(wanted: Wanted) -> Shape:
    body, known = words_of(wanted.code, process=True)
    if not ends_a_name(body):
        raise UsageError(
            f"nothing in the text of Xid {wanted.code} tells where a name with a comma ends",
            remedy="give a code whose text is known, as 31 or 48, or the form process",
        )
    named = f"pid={wanted.pid}, name={COMMA_NAME}, {body} {wanted.marker}"
    return Shape((f"NVRM: Xid (PCI:{wanted.place}): {wanted.code}, {named}",), known)


def _nvlink5(wanted: Wanted) -> Shape:
    if wanted.code not in CODES:
        raise UsageError(f"Xid {wanted.code} is no code of NVLink 5", remedy=f"give one of {CODES[0]} to {CODES[-1]}")
    generation = wanted.variant if wanted.variant in GENERATIONS else GENERATIONS[-1]
    rule, intrinfo, status = sample(wanted.code, generation)
    severity = "Fatal" if rule.severity == "Fatal" else "Nonfatal"
    link = -1 if wanted.variant == "no-link" else 9
    flag = int(wanted.variant == "flagged")
    words = " ".join(f"0x{word:08x}" for word in (intrinfo, status, 0, 0, 0, 0))
    end = " " if wanted.variant == "cut" else ") "
    text = f"{rule.subcode.partition('/')[0]}  {severity}   XC0 i{flag} Link {link:02} ({words}{end}{wanted.marker}"
    return Shape((f"NVRM: Xid (PCI:{wanted.place}): {wanted.code}, {text}",))


def _recovery(wanted: Wanted) -> Shape:
    _only(wanted, RECOVERY_CODE, "announces what a GPU needs to recover")
    match = _CHANGE.fullmatch(wanted.variant)
    assert match  # noqa: S101 - checked by its recipe
    old, new = (f"0x{number} ({RECOVERY[int(number)][0]})" for number in match.groups())
    text = f"GPU recovery action changed from {old} to {new} {wanted.marker}"
    return Shape((f"NVRM: Xid (PCI:{wanted.place}): {wanted.code}, {text}",))


def _fallen(wanted: Wanted) -> Shape:
    _only(wanted, FALLEN_CODE, "is a GPU that fell off the bus")
    gpu = f"NVRM: GPU {wanted.place}.0: GPU has fallen off the bus. {wanted.marker}"
    probe = (
        f"NVRM: The NVIDIA GPU {wanted.place}.0\n"
        "NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        f"NVRM: fallen off the bus and is not responding to commands. {wanted.marker}"
    )
    return Shape({"xid": (*_plain(wanted).texts, gpu), "gpu": (gpu,), "probe": (probe,)}[wanted.variant])


def _burst(wanted: Wanted) -> Shape:
    _only(wanted, BURST_CODE, "comes as a burst of three records; 31 and 43 are one record each")
    registers = "Graphics Exception: ESR 0x519730=0x500000f 0x519734=0x0 0x519728=0x1f81fb60 0x51972c=0x1174"
    second = f"NVRM: Xid (PCI:{wanted.place}): {wanted.code}, {registers} {wanted.marker}"
    return Shape((*_plain(wanted).texts, second, *_process(wanted).texts))


def _sxid(wanted: Wanted) -> Shape:
    found = switch_errors().get(wanted.code)
    if found is None:
        known = ", ".join(map(str, switch_errors()))
        raise UsageError(f"SXid {wanted.code}: its text is not known to us", remedy=f"give one of {known}")
    fatal = int(found["severity"] == "Fatal")
    said = (
        f"{found['severity']}, Link {found['link']} {found['text']}",
        f"Severity {fatal} Engine instance {found['link']} Sub-engine instance 00",
        "Data {0x000001c0, 0x00bd5c8a, 0x00000500, 0x00000064}",
    )
    head = f"nvidia-nvswitch0: SXid (PCI:{wanted.switch}): {wanted.code:05}, "
    return Shape(tuple(f"{head}{text} {wanted.marker}" for text in said))


def _only(wanted: Wanted, code: int, what: str) -> None:
    if wanted.code != code:
        raise UsageError(f"Xid {wanted.code} cannot have this form: Xid {code} {what}", remedy=f"give code: {code}")


RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "plain": Recipe(_plain),
        "process": Recipe(_process),
        "quoted-pid": Recipe(_quoted_pid),
        "comma-name": Recipe(_comma_name),
        "mig": Recipe(_mig, variants=("1/0",), pattern=_MIG.pattern),
        "no-pci": Recipe(_no_pci),
        "long-domain": Recipe(_long_domain),
        "function": Recipe(_function),
        "upper-case": Recipe(_upper_case),
        "nvlink5": Recipe(_nvlink5, variants=(*reversed(GENERATIONS), "cut", "no-link", "flagged")),
        "recovery": Recipe(_recovery, variants=("0-1",), pattern=_CHANGE.pattern),
        "fallen": Recipe(_fallen, variants=("xid", "gpu", "probe")),
        "burst": Recipe(_burst),
        "sxid": Recipe(_sxid, level=3),
    }
)
"""How to make each form, by its name."""


def variant_of(form: str, variant: str) -> str:
    """Return the variant that is meant, "" for the form's default. Raises UsageError for one that the form has not."""
    recipe = RECIPES[form]
    if not variant:
        return recipe.variants[0] if recipe.variants else ""
    if variant in recipe.variants or (recipe.pattern and re.fullmatch(recipe.pattern, variant, re.ASCII)):
        return variant
    known = {"mig": "a GPU instance and its compute instance, as 1/0 or 1", "recovery": "old and new action, as 0-1"}
    remedy = known.get(form) or (f"one of: {', '.join(recipe.variants)}" if recipe.variants else "leave it out")
    raise UsageError(f"form {form} has no variant {variant!r}", remedy=remedy)


@cache
def switch_errors() -> Mapping[int, Mapping[str, str]]:
    """Return the NVSwitch errors whose text is known, by code."""
    return MappingProxyType({int(row["code"]): row for row in read_table("sxid.tsv")})


@cache
def _texts() -> dict[tuple[int, bool], str]:
    with_process = {"any": (False, True), "plain": (False,), "process": (True,)}
    rows = read_table("texts.tsv")
    return {(int(row["code"]), process): row["text"] for row in rows for process in with_process[row["form"]]}
