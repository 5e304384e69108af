"""What dcgm-exporter exports, as series of each GPU, known by its UUID.

Labels' names change their case and their words between versions, so they are read without regard to case. A value
that DCGM does not have is a missing series, never a number. Nothing here says how old a value is: an exporter goes on
exporting after its engine has been restarted.

Source: dcgm-exporter 3.1 to 4.8 (`etc/default-counters.csv`, its rendering); the Prometheus text format.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from chaos_gpu.criteria.dcgm.document import MAX_BYTES, QUOTED_CHARS
from chaos_gpu.errors import UsageError

XID = "DCGM_FI_DEV_XID_ERRORS"
"""The last Xid. It stays after recovery; no series means that there was none."""

REQUIRED = (
    *("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK"),
    *("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"),
)
"""Fields that every data-centre GPU has and the exporter's defaults export, MIG or not."""

_PREFIX = "DCGM_"
_NAME = r"[A-Za-z_:][A-Za-z0-9_:]{0,255}"
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]{0,255})\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|\})', re.ASCII)
_HEAD = re.compile(rf"({_NAME})\s*(\{{?)", re.ASCII)
_TAIL = re.compile(
    r"\s*([+-]?(?:\d{1,64}(?:\.\d{0,64})?|\.\d{1,64})(?:[eE][+-]?\d{1,4})?|NaN|[+-]?Inf)(?:\s+-?\d{1,19})?\s*", re.ASCII
)
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_ESCAPE = re.compile(r"\\.")


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: Mapping[str, str]
    """Their names in lower case."""
    value: float


class GpuSeries(NamedTuple):
    """All lines of one GPU, those of its MIG instances, links and pods among them."""

    uuid: str
    gpu: str | None
    """The exporter's number of it, as text."""
    samples: tuple[Sample, ...]

    def values(self, name: str) -> tuple[float, ...]:
        """Return what a field says, once for each instance, link or pod; nothing if the series is missing."""
        return tuple(sample.value for sample in self.samples if sample.name == name)

    def missing(self, required: Sequence[str] = REQUIRED) -> tuple[str, ...]:
        """Return the required fields that have no series."""
        present = {sample.name for sample in self.samples}
        return tuple(name for name in required if name not in present)


def looks_like_metrics(output: bytes) -> bool:
    """Tell whether this may be what an exporter of DCGM prints."""
    return re.search(rb"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_", output, re.MULTILINE) is not None


def read_metrics(output: bytes) -> dict[str, GpuSeries]:
    """Return the series of each GPU by its UUID, in the order of their first lines. Takes any bytes up to `MAX_BYTES`.

    Lines without a UUID (switches, CPUs, other programs' metrics) belong to no GPU and are left out.

    Raises:
        UsageError: too long, not the Prometheus text format, cut off, or one series twice.
    """
    if len(output) > MAX_BYTES:
        raise UsageError(f"the metrics are longer than {MAX_BYTES >> 20} MiB", remedy="give one exporter's metrics")
    if output and not output.endswith(b"\n"):
        raise UsageError("the metrics are cut off in their last line", remedy="fetch them again, whole")
    found: dict[str, list[Sample]] = {}
    for sample in _samples(output.decode("utf-8", errors="replace")):
        labels = sample.labels
        uuid = labels.get("uuid") or labels.get("gpu_uuid") or ""
        if uuid and sample.name.startswith(_PREFIX):
            found.setdefault(uuid, []).append(sample)
    return {uuid: GpuSeries(uuid, _number(samples), tuple(samples)) for uuid, samples in found.items()}


def _number(samples: Sequence[Sample]) -> str | None:
    return next((sample.labels["gpu"] for sample in samples if sample.labels.get("gpu")), None)


def _samples(text: str) -> Iterator[Sample]:
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        sample = _sample(line.strip())
        if sample is None:
            raise UsageError(f"line {number} is no metric: {line[:QUOTED_CHARS]!r}", remedy="give GET /metrics, whole")
        key = sample.name, frozenset(sample.labels.items())
        if key in seen:
            raise UsageError(f"line {number} repeats a series of {sample.name}", remedy="give one scrape at a time")
        seen.add(key)
        yield sample


def _sample(line: str) -> Sample | None:
    head = _HEAD.match(line)
    if head is None:
        return None
    labels: dict[str, str] = {}
    at, more = head.end(), bool(head[2])
    if more and line[at : at + 1] == "}":
        at, more = at + 1, False
    while more:
        label = _LABEL.match(line, at)
        if label is None:
            return None
        labels[label[1].lower()] = _ESCAPE.sub(lambda match: _ESCAPES.get(match[0], match[0]), label[2])
        at, more = label.end(), label[3] == ","
        if more and line[at : at + 1] == "}":  # a comma may end the list
            at, more = at + 1, False
    tail = _TAIL.fullmatch(line, at)
    return Sample(head[1], labels, float(tail[1])) if tail else None
