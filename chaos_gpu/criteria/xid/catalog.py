"""NVIDIA's Xid codes: names, meanings, and what NVIDIA says to do first.

Source: NVIDIA's Xid catalogue workbook (codes 1-172, with their immediate and investigatory buckets) and the driver's
`nverror.h` 595.45.04 (173-176, no bucket published). Kinds are ours, drawn from the buckets; 43 counts as an
application error as in NVIDIA's description of it, although its bucket is IGNORE.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType

from chaos_gpu.criteria.xid.tables import read_table

CONTACT_SUPPORT = "CONTACT_SUPPORT"
_NEIGHBOURS = 3


class XidKind(StrEnum):
    """Where the cause of a code usually lies."""

    APPLICATION = "application"
    HARDWARE = "hardware"
    INFORMATION = "information"
    CONFIGURATION = "configuration"
    UNCLASSIFIED = "unclassified"
    UNUSED = "unused"


@dataclass(frozen=True)
class XidCode:
    """One row of the catalogue."""

    code: int
    mnemonic: str
    description: str
    bucket: str
    investigatory: str
    kind: XidKind

    @property
    def advice(self) -> str:
        """NVIDIA's immediate action; where it publishes none, the careful one: contact support, never "nothing"."""
        return self.bucket or CONTACT_SUPPORT


@cache
def catalogue() -> Mapping[int, XidCode]:
    """Return the whole catalogue by code."""
    rows = (
        XidCode(
            code=int(row["code"]),
            mnemonic=row["mnemonic"],
            description=row["description"],
            bucket=row["bucket"],
            investigatory=row["investigatory"],
            kind=XidKind(row["kind"]),
        )
        for row in read_table("catalog.tsv")
    )
    return MappingProxyType({row.code: row for row in rows})


def lookup(code: int) -> XidCode:
    """Return the catalogue's row for a code.

    Raises:
        UsageError: the code is not a whole number of the catalogue; the remedy lists the nearest ones.
    """
    # The error tree stands on chaoslib, which takes longer to import than a log of 100 MB takes to read.
    from chaos_gpu.errors import UsageError

    codes = catalogue()
    if type(code) is not int:  # True is an int too, and `code: yes` is easily written in YAML
        raise UsageError(f"an Xid code is a whole number, not {code!r}", remedy=f"give one of 1 to {max(codes)}")
    if code not in codes:
        nearest = sorted(sorted(codes, key=lambda known: abs(known - code))[:_NEIGHBOURS])
        named = ", ".join(f"{near} ({codes[near].description})" for near in nearest)
        raise UsageError(f"Xid {code} is not in the catalogue", remedy=f"nearest codes: {named}")
    return codes[code]
