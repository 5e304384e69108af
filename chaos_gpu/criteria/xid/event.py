"""One fault that a GPU's or NVSwitch's driver wrote into the kernel log."""

import json
from enum import StrEnum
from typing import Any, NamedTuple

from chaos_gpu.criteria.xid.nvlink5 import Resolution

FALLEN_CODE = 79
"""A GPU that fell off the bus without an Xid counts as this one."""


class Kind(StrEnum):
    """Which of the driver's messages it is."""

    XID = "xid"
    SXID = "sxid"
    FALLEN_OFF_BUS = "fallen_off_bus"


class Event(NamedTuple):
    """What one record says. None is what it does not say."""

    kind: Kind
    code: int
    pci: str | None
    """`dddd:bb:dd`, an NVSwitch's with its function; None for the last line of a fall whose first line is missing."""
    text: str
    """The driver's own words, behind code and process."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    pid: int | None = None
    process: str | None = None
    subcode: str | None = None
    severity: str | None = None
    """As printed."""
    link: int | None = None
    injected: bool | None = None
    """True: written from user space, marked by us, or flagged `i1` by the hardware; None: the log does not say."""
    bucket: str | None = None
    """NVIDIA's immediate bucket; None where NVIDIA publishes none."""
    action: str = ""
    """What to do: the bucket, or what NVIDIA's workflow comes to; never nothing for what is unknown."""
    resolution: Resolution | None = None
    continuation: bool = False
    """An NVSwitch's further line whose head is not there."""
    line: int = 1
    """Number of its first input line."""
    stamp: str = ""
    """The time as printed."""
    seq: int | None = None
    usec: int | None = None

    def at(self, line: int, stamp: str, seq: int | None, usec: int | None) -> "Event":
        """Return the event at its place in a log."""
        return self._replace(line=line, stamp=stamp, seq=seq, usec=usec)

    def as_json(self) -> dict[str, Any]:
        """Return the keys of `chaos-gpu explain xid --json`."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in JSON_KEYS}
        facts["resolution"] = self.resolution.as_json() if self.resolution else None
        return {**facts, "continuation": True} if self.continuation else facts

    def as_json_line(self) -> str:
        """Return the same as one line of JSON; written out, since a log may hold millions of them."""
        resolution = json.dumps(self.resolution.as_json()) if self.resolution else "null"
        return (
            f'{{"line": {self.line}, "kind": "{self.kind}", "code": {self.code}, "pci": {_text(self.pci)}, '
            f'"gpu_instance": {_number(self.gpu_instance)}, "compute_instance": {_number(self.compute_instance)}, '
            f'"pid": {_number(self.pid)}, "process": {_text(self.process)}, "text": {_quote(self.text)}, '
            f'"subcode": {_text(self.subcode)}, "severity": {_text(self.severity)}, "link": {_number(self.link)}, '
            f'"injected": {_JSON[self.injected]}, "bucket": {_text(self.bucket)}, "action": "{self.action}", '
            f'"resolution": {resolution}{_CONTINUATION if self.continuation else ""}}}\n'
        )


JSON_KEYS = (
    *("line", "kind", "code", "pci", "gpu_instance", "compute_instance", "pid", "process", "text"),
    *("subcode", "severity", "link", "injected", "bucket", "action", "resolution"),
)
_CONTINUATION = ', "continuation": true'
_JSON = {None: "null", True: "true", False: "false"}
_quote = json.encoder.encode_basestring_ascii


def _text(value: str | None) -> str:
    return "null" if value is None else _quote(value)


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)
