"""The lines kept in tests/data/xid: what the driver writes, what others make of it, and what is no fault at all."""

from pathlib import Path

DATA = Path(__file__).parents[2] / "data" / "xid"


def rows(name: str) -> list[dict[str, str]]:
    header, *lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [dict(zip(header.split("\t"), line.split("\t"), strict=True)) for line in lines]


LINES = rows("lines.tsv")
GOLDEN = rows("nvlink5_golden.tsv")
REAL = rows("h200_real.tsv")
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
