"""What can be injected into DCGM's cache, and what an engine then must say: fields, named errors, health's rules.

`dcgmi test --inject` checks neither field nor value: text becomes 0, ids wrap at 65536, and it says success. So both
are checked here. Injection fills the cache only; it never reaches the driver, and `dcgmi diag -r 1` does not see it.

Source: `dcgm_fields.h`, `DcgmHealthWatch.cpp` and `dcgm_errors.h` of DCGM 4.6.0, and its behaviour as measured.
"""

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

from chaos_gpu.criteria.dcgm.report import Status
from chaos_gpu.errors import UsageError

MOST = 2**31
"""Larger values are DCGM's marks for "blank"."""

XID, LINK_GEN = 230, 237
STICKY = "the health watch keeps an Xid until the engine restarts: engine restart needed"
NOT_ON_A_REAL_ONE = "dcgmi would take the value, and a real engine then reads outside of a table"


class Field(NamedTuple):
    """A field whose values can be injected and put back.

    Attributes:
        name: DCGM's own, shortened.
        baseline: what a healthy GPU has where the engine shows nothing; None where only the engine can tell.
        fraction: whether it holds one: DCGM's double instead of its integer.
        systems: letters of `dcgmi health -s` that watch it.
        metric: what dcgm-exporter calls it, "" where it exports none.
    """

    name: str
    baseline: float | None = None
    fraction: bool = False
    systems: str = ""
    metric: str = ""


FIELDS: Mapping[int, Field] = MappingProxyType(
    {
        84: Field("inforom valid", 1, systems="i"),
        100: Field("SM clock, MHz", metric="DCGM_FI_DEV_SM_CLOCK"),
        101: Field("memory clock, MHz", metric="DCGM_FI_DEV_MEM_CLOCK"),
        112: Field("clock event reasons"),
        140: Field("memory temperature, °C", metric="DCGM_FI_DEV_MEMORY_TEMP"),
        150: Field("GPU temperature, °C", metric="DCGM_FI_DEV_GPU_TEMP"),
        155: Field("power, W", fraction=True, metric="DCGM_FI_DEV_POWER_USAGE"),
        202: Field("PCIe replays", systems="p", metric="DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
        203: Field("GPU utilisation, %", metric="DCGM_FI_DEV_GPU_UTIL"),
        204: Field("memory utilisation, %", metric="DCGM_FI_DEV_MEM_COPY_UTIL"),
        XID: Field("last Xid", 0, systems="m", metric="DCGM_FI_DEV_XID_ERRORS"),
        LINK_GEN: Field("PCIe generation"),
        238: Field("PCIe lanes"),
        240: Field("time slowed by power", systems="t", metric="DCGM_FI_DEV_POWER_VIOLATION"),
        241: Field("time slowed by heat", systems="t", metric="DCGM_FI_DEV_THERMAL_VIOLATION"),
        310: Field("single-bit errors", metric="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
        311: Field("double-bit errors", systems="m", metric="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
        312: Field("single-bit errors, all", metric="DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
        313: Field("double-bit errors, all", metric="DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
        392: Field("page retirement pending", systems="m"),
        393: Field("rows remapped, uncorrectable", systems="m", metric="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
        394: Field("rows remapped, correctable", metric="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
        395: Field("row remap failed", systems="m", metric="DCGM_FI_DEV_ROW_REMAP_FAILURE"),
        396: Field("row remap pending"),
        409: Field("NVLink flit CRC errors", systems="n", metric="DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
        419: Field("NVLink data CRC errors", systems="n", metric="DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"),
        429: Field("NVLink replays", systems="n", metric="DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"),
        439: Field("NVLink recoveries", systems="n", metric="DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"),
    }
)
"""Only these: of any other, nobody here knows what to put back."""


class Named(NamedTuple):
    """An error by name: a sample that health must see.

    Attributes:
        field: DCGM's number.
        value: to inject; of a counter, above what it has.
        grows: whether health looks at the change of a counter: then it must go on growing while it is held.
        grade: what health must call it.
        system: what health files it under, first word.
        code: DCGM's error; of an Xid, the Xid.
    """

    field: int
    value: float
    grows: bool
    grade: Status
    system: str
    code: int


NAMED: Mapping[str, Named] = MappingProxyType(
    {
        "double-bit-ecc": Named(311, 1, False, Status.FAIL, "memory", 4),
        "row-remap-failure": Named(395, 1, False, Status.FAIL, "memory", 80),
        "inforom": Named(84, 0, False, Status.WARN, "inforom", 9),
        "pcie-replay": Named(202, 100, True, Status.WARN, "pcie", 3),
        "power": Named(240, 1_000_000, True, Status.WARN, "power", 12),
        "thermal": Named(241, 1_000_000, True, Status.WARN, "thermal", 10),
        "nvlink": Named(409, 10, True, Status.WARN, "nvlink", 13),
        "xid": Named(XID, 79, False, Status.FAIL, "internal", 79),
    }
)


class Injection(NamedTuple):
    """One sample to inject, checked."""

    error: str
    """Its name, "" of a raw field."""
    field: int
    value: float

    @property
    def facts(self) -> Field:
        """What is known of the field."""
        return FIELDS[self.field]

    @property
    def named(self) -> Named | None:
        """What health must make of it, None of a raw field."""
        return NAMED.get(self.error)

    @property
    def sticky(self) -> str:
        """What outlives its being put back, "" for nothing."""
        return STICKY if self.field == XID else ""

    @property
    def grows(self) -> bool:
        """Whether it is a counter that goes on growing: then its end is felt once more, after health's window."""
        return bool(self.named and self.named.grows)

    @property
    def called(self) -> str:
        """What it is, in few words."""
        return f"{self.error or self.facts.name} (DCGM field {self.field})"

    def __str__(self) -> str:
        return f"{self.error or 'a raw value'}: field {self.field} ({self.facts.name}) = {self.value:g}"


def injection(error: str, field: int, value: str) -> Injection:
    """Check what an experiment wants to inject.

    Args:
        error: a name of `NAMED`, or "".
        field: DCGM's number of a field, 0 with a name.
        value: a number as text, "" for the named error's own.

    Raises:
        UsageError: neither or both of name and field, an unknown one, or a value that the field cannot have.
    """
    if bool(error) == bool(field):
        raise UsageError(
            "name an error, or give a field and a value: one of both", f"the errors are: {', '.join(sorted(NAMED))}"
        )
    if error and error not in NAMED:
        raise UsageError(f"no error {error!r}", f"one of: {', '.join(sorted(NAMED))}")
    number = NAMED[error].field if error else field
    if number not in FIELDS:
        known = ", ".join(map(str, sorted(FIELDS)))
        raise UsageError(f"field {number} is none that could be put back", f"one of: {known}; no text, no other type")
    if not error and not value.strip():
        raise UsageError(f"field {number}: no value", remedy="give value: a number, as text")
    return Injection(error, number, NAMED[error].value if not value.strip() else _number(number, value))


def _number(field: int, text: str) -> float:
    """Read a value. Raises UsageError for one that the field cannot have."""
    try:
        value = float(text) if text.strip().isascii() and "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not 0 <= value < MOST:
        raise UsageError(f"field {field}: {text!r} is not a number from 0 to {MOST - 1}", "give a plain number")
    if not FIELDS[field].fraction and not value.is_integer():
        raise UsageError(f"field {field}: {text!r} is not whole, and dcgmi would cut it off", "give a whole number")
    if field == LINK_GEN and value < 1:
        raise UsageError(f"field {field}: {NOT_ON_A_REAL_ONE}", "a PCIe generation is at least 1")
    return value
