"""What the health watches make of the samples: rules of DCGM 4.6.0, and the report of `dcgmi health -c`.

Source: `DcgmHealthWatch.cpp` of DCGM 4.6.0, as far as measured on its binaries.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from chaos_gpu.lab.dcgm.engine import Engine, Gpu
from chaos_gpu.lab.dcgm.styled import CELL, LABEL, folded, row, rule, styled

MEMORY, PCIE, NVLINK = "Memory system", "PCIe system", "NVLink system"
POWER, THERMAL, INFOROM, INTERNAL = "Power system", "Thermal system", "Inforom", "Internal error"
REPLAYS_PER_MINUTE = 31
"""Above so many PCIe replays a minute, a link of generation 5 with 16 lanes is in trouble."""

FELL_OFF = (
    "GPU {gpu} has fallen off the bus Please re-seat the GPU, check for thermal and power issues, and verify that"
    " there is no outstanding bug against your driver or BIOS versions. If the issue persists, please run a field"
    " diagnostic on the GPU.  (triggered by XID 79: GPU %d has fallen off the bus)"
)
XID_TEXT = "GPU {gpu} reported an error of the driver (triggered by XID {xid})"
XID_FAILS = (48, 74, 79, 95, 119, 120, 140)
XID_WARNS = (94,)
XID_OF_MEMORY = {31: "Warning", 32: "Warning", 43: "Warning", 63: "Warning", 64: "Failure"}


class Incident(NamedTuple):
    """One trouble of one GPU."""

    gpu: int
    system: str
    grade: str
    """`Warning` or `Failure`."""
    text: str
    code: int
    """DCGM's number of the error; of an Xid, the Xid."""


class Latest(NamedTuple):
    """A rule on the newest sample: from `at_least` on it is a trouble."""

    field: int
    letter: str
    at_least: float
    system: str
    grade: str
    code: int
    text: str


LATEST_RULES = (
    Latest(
        392, "m", 1, MEMORY, "Warning", 6, "GPU {gpu} has pages that wait to be retired. Reset it or reboot the node."
    ),
    Latest(393, "m", 512, MEMORY, "Warning", 132, "GPU {gpu} has {value:.0f} rows remapped for uncorrectable errors."),
    Latest(395, "m", 1, MEMORY, "Failure", 80, "GPU 0 had uncorrectable memory errors and row remapping failed."),
    Latest(1507, "m", 1, MEMORY, "Failure", 52, "GPU {gpu} has memory that cannot be repaired."),
)


class Change(NamedTuple):
    """A rule on first and last sample of the window: what differs by more than `above` is a trouble."""

    field: int
    letter: str
    above: float
    system: str
    grade: str
    code: int
    text: str


CHANGE_RULES = (
    Change(202, "p", REPLAYS_PER_MINUTE, PCIE, "Warning", 3, "GPU {gpu}: {value:.0f} PCIe replays in the last minute."),
    Change(240, "t", 0, POWER, "Warning", 12, "GPU {gpu} was slowed down by its power limit."),
    Change(241, "t", 0, THERMAL, "Warning", 10, "GPU {gpu} was slowed down by heat."),
    Change(409, "n", 0, NVLINK, "Warning", 13, "GPU {gpu}: {value:.0f} CRC errors of NVLink flits."),
    Change(419, "n", 0, NVLINK, "Warning", 13, "GPU {gpu}: {value:.0f} CRC errors of NVLink data."),
    Change(429, "n", 0, NVLINK, "Failure", 71, "GPU {gpu}: {value:.0f} replay errors of NVLink."),
    Change(439, "n", 0, NVLINK, "Failure", 71, "GPU {gpu}: {value:.0f} recovery errors of NVLink."),
)


def incidents(engine: Engine) -> list[Incident]:
    """Return every trouble that the watches see now. A paused engine sees nothing, as the real one."""
    systems = engine.health_systems or ""
    return [] if engine.paused else [found for gpu in engine.gpus for found in _of_gpu(engine, gpu, systems)]


def _of_gpu(engine: Engine, gpu: Gpu, systems: str) -> Iterator[Incident]:
    number = gpu.number
    yield from _of_xids(engine, gpu)
    if "m" in systems and any(value >= 1 for value in engine.recent(gpu, 311)[-1:]):
        count = engine.recent(gpu, 311)[-1]
        text = f"Detected {count:.0f} volatile double-bit ECC error(s) in GPU {number}. Drain the GPU and reset it"
        yield Incident(number, MEMORY, "Failure", f"{text} or reboot the node.", 4)
    for latest in LATEST_RULES:
        value = engine.latest(gpu, latest.field) if latest.letter in systems else None
        if value is not None and value >= latest.at_least:
            yield Incident(
                number, latest.system, latest.grade, latest.text.format(gpu=number, value=value), latest.code
            )
    if "i" in systems and engine.latest(gpu, 84) == 0:
        yield Incident(number, INFOROM, "Warning", f"The InfoROM of GPU {number} is corrupt.", 9)
    for change in CHANGE_RULES:
        values = engine.recent(gpu, change.field) if change.letter in systems else []
        moved = abs(values[-1] - values[0]) if values else 0
        if moved > change.above:
            yield Incident(
                number, change.system, change.grade, change.text.format(gpu=number, value=moved), change.code
            )


def _of_xids(engine: Engine, gpu: Gpu) -> Iterator[Incident]:
    for xid in dict.fromkeys(engine.xids(gpu)):
        text = (FELL_OFF if xid == 79 else XID_TEXT).format(gpu=gpu.number, xid=xid)
        if xid in XID_FAILS or xid in XID_WARNS:
            yield Incident(gpu.number, INTERNAL, "Failure" if xid in XID_FAILS else "Warning", text, xid)
        elif xid in XID_OF_MEMORY and "m" in (engine.health_systems or ""):
            yield Incident(gpu.number, MEMORY, XID_OF_MEMORY[xid], text, xid)


def worst(grades: list[str]) -> str:
    """Return the worst grade; of none, `Healthy`."""
    return next((grade for grade in ("Failure", "Warning") if grade in grades), "Healthy")


def _by_gpu(found: list[Incident]) -> dict[int, dict[str, list[Incident]]]:
    tree: dict[int, dict[str, list[Incident]]] = {}
    for incident in found:
        tree.setdefault(incident.gpu, {}).setdefault(incident.system, []).append(incident)
    return tree


def _grade(found: list[Incident]) -> str:
    return worst([incident.grade for incident in found])


def as_json(found: list[Incident]) -> str:
    """Return the report as `dcgmi health -c -j` prints it."""
    body: dict[str, Any] = {"Overall Health": {"value": _grade(found)}}
    for number, systems in _by_gpu(found).items():
        errors = {
            system: {"overflow": folded(", ".join(each.text for each in group)), "value": _grade(group)}
            for system, group in systems.items()
        }
        gpu = {"children": {"Errors": {"children": errors}}, "value": _grade([e for g in systems.values() for e in g])}
        body.setdefault("GPU", {"children": {}})["children"][str(number)] = gpu
    return styled({"body": body, "header": ["Health Monitor Report"]}) + "\n"


def as_table(found: list[Incident]) -> str:
    """Return the report as `dcgmi health -c` prints it."""
    widths = (LABEL, CELL)
    lines = [rule(widths), "| Health Monitor Report".ljust(LABEL + CELL + 2) + "|", rule(widths, "=")]
    rows = [("Overall Health", _grade(found))]
    tree = _by_gpu(found)
    rows += [("GPU", "")] if tree else []
    for number, systems in tree.items():
        rows += [(f"-> {number}", _grade([e for g in systems.values() for e in g])), ("   -> Errors", "")]
        for system, group in systems.items():
            rows.append((f"      -> {system}", _grade(group)))
            rows += [("", line) for line in folded(", ".join(each.text for each in group))]
    lines += [row(cells, widths) for cells in rows]
    return "\n".join([*lines, rule(widths)]) + "\n"
