"""Put what the detectors saw of each fault, as the journal has it, into one table.

The journal may come from anywhere: what is not as expected in it is left out, and nothing in it can raise.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, FiniteFloat, NonNegativeFloat, ValidationError

from chaos_gpu.criteria.timeline import timed

PROBE = ("chaos_gpu.probes.device", "detectors_see")
SEEN, NOT_SEEN, NOT_TOLD = "seen", "not seen", "cannot be told"


class Cell(BaseModel):
    """One detector and one fault."""

    model_config = ConfigDict(frozen=True)

    detector: str
    seen: bool | None
    by: str = ""
    seconds: FiniteFloat | None = None
    error_s: NonNegativeFloat | None = None
    why: str = ""

    @property
    def word(self) -> str:
        """Whether it saw it, in words."""
        return NOT_TOLD if self.seen is None else SEEN if self.seen else NOT_SEEN

    @property
    def text(self) -> str:
        """The same, with how soon."""
        if not self.seen or self.seconds is None:
            return self.word
        return f"{self.seconds:.3f} s" if self.error_s is None else timed(self.seconds, self.error_s)

    @property
    def drawn_s(self) -> float | None:
        """The time to draw: what the text says; None for no bar."""
        if self.seconds is None or not self.seen:
            return None
        error_s = self.error_s or 0.0
        return self.seconds if self.seconds > error_s else max(0.0, self.seconds) + error_s


class Row(BaseModel):
    """One fault as it was written, and what each detector made of it."""

    model_config = ConfigDict(frozen=True)

    fault: str
    code: int
    form: str
    variant: str = ""
    transport: str
    node: str = ""
    limit_s: NonNegativeFloat
    detectors: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Code and form, for people."""
        return " ".join(
            filter(None, (f"{'SXid' if self.form == 'sxid' else 'Xid'} {self.code}", self.form, self.variant))
        )

    def cell(self, detector: str) -> Cell:
        """Return one detector's; one that was not there when this fault was written saw nothing that can be told."""
        absent = Cell(detector=detector, seen=None, why="not there")
        return next((cell for cell in self.detectors if cell.detector == detector), absent)


class Share(BaseModel):
    """Of so many faults that a detector could have shown, it showed so many."""

    model_config = ConfigDict(frozen=True)

    detector: str
    seen: int
    of: int
    slowest: str

    @property
    def text(self) -> str:
        """It in words."""
        slowest = f", slowest {self.slowest}" if self.slowest else ""
        return f"{self.seen} of {self.of}{slowest}" if self.of else NOT_TOLD


class Table(BaseModel):
    """Faults by detectors."""

    model_config = ConfigDict(frozen=True)

    rows: tuple[Row, ...] = ()

    @property
    def detectors(self) -> list[str]:
        """The columns, in the order in which they are first named."""
        return list(dict.fromkeys(cell.detector for row in self.rows for cell in row.detectors))

    @property
    def shares(self) -> list[Share]:
        """Each detector's share."""
        return [_share(detector, [row.cell(detector) for row in self.rows]) for detector in self.detectors]

    @property
    def longest_s(self) -> float:
        """The longest time in it, for drawing; never 0."""
        return max([1e-3, *(cell.drawn_s or 0.0 for row in self.rows for cell in row.detectors)])

    def as_json(self) -> list[dict[str, Any]]:
        """Return the rows as plain JSON."""
        return [row.model_dump(mode="json") for row in self.rows]

    def lines(self) -> list[str]:
        """Return it as text, columns aligned; empty without rows."""
        if not self.rows:
            return []
        head = ["detection coverage", "transport", *self.detectors]
        body = [[row.name, row.transport, *(row.cell(each).text for each in self.detectors)] for row in self.rows]
        foot = ["seen", "", *(share.text for share in self.shares)]
        return _aligned([head, *body, foot])


def coverage_in(journal: Mapping[str, Any]) -> Table:
    """Collect the table from a journal's activities."""
    return Table(rows=tuple(_rows(journal.get("run"))))


def _rows(activities: Any) -> Iterator[Row]:
    for entry in activities if isinstance(activities, list) else []:
        if not isinstance(entry, dict) or _called(entry.get("activity")) != PROBE:
            continue
        output = entry.get("output")
        try:
            yield Row.model_validate(output.get("coverage") if isinstance(output, dict) else None)
        except ValidationError:
            continue


def _called(activity: Any) -> tuple[Any, Any]:
    provider = activity.get("provider") if isinstance(activity, dict) else None
    return (provider.get("module"), provider.get("func")) if isinstance(provider, dict) else (None, None)


def _share(detector: str, cells: Sequence[Cell]) -> Share:
    told = [cell for cell in cells if cell.seen is not None]
    times = [(cell.drawn_s, cell.text) for cell in told if cell.drawn_s is not None]
    seen = sum(cell.seen is True for cell in told)
    return Share(detector=detector, seen=seen, of=len(told), slowest=max(times, default=(0.0, ""))[1])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (zip(line, widths, strict=True) for line in lines)
    return ["  ".join(text.ljust(width) for text, width in line).rstrip() for line in padded]
