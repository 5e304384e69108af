"""`dcgmi health -c -j`: what the watches of an engine have seen. The command exits 0 whatever they saw.

Source: `dcgmi/Health.cpp` and `DcgmHealthWatch.cpp` of DCGM 3.3.9 and 4.6.0, and their outputs.
"""

from collections.abc import Iterator
from typing import Any

from chaos_gpu.criteria.dcgm.document import mapping, sequence, text_of
from chaos_gpu.criteria.dcgm.report import DiagError, Reading, Result, Status
from chaos_gpu.criteria.dcgm.weigh import says

OVERALL = "Overall Health"
WHOLE = "health"
"""Stands for the test where an entity, or the engine, is judged as a whole."""

_STATUS = {"healthy": Status.PASS, "warning": Status.WARN, "failure": Status.FAIL}
_CATEGORY = {
    "memory": "memory",
    "pcie": "pcie",
    "nvlink": "nvlink",
    "nvswitch": "nvswitch",
    "thermal": "thermal",
    "power": "power",
    "inforom": "hardware",
    "driver": "driver",
}
"""By the first word of a system's name: `Memory system`."""


def is_health(document: dict[str, Any]) -> bool:
    """Tell whether this is a health check's document."""
    body = document.get("body")
    return isinstance(body, dict) and OVERALL in body


def read_health(document: dict[str, Any]) -> Reading:
    """Read a health check's document.

    It names only entities in trouble: without any, it is the same for a healthy engine, a paused one, and one
    without GPUs.

    Raises:
        UsageError: it has another structure than DCGM's.
    """
    body = mapping(document["body"], "body")
    groups = {text_of(name): mapping(group, "a group") for name, group in body.items() if name != OVERALL}
    results = [result for name, group in groups.items() for result in _group(name, group)]
    overall = Result(WHOLE, None, _status(mapping(body[OVERALL], OVERALL)))
    if all(says(overall) is not says(result) for result in results) and overall.status is not Status.PASS:
        results.append(overall)
    gpus = frozenset(result.entity for result in results if result.entity and result.entity.startswith("GPU "))
    return Reading("health", None, None, tuple(results), gpus=gpus, gpu_count=len(gpus))


def _group(name: str, group: dict[str, Any]) -> Iterator[Result]:
    for number, item in mapping(group.get("children"), f"the entities of {name}").items():
        entity = f"{name} {text_of(number)}"
        facts = mapping(item, entity)
        children = mapping(facts.get("children"), f"the children of {entity}")
        errors = mapping(children.get("Errors"), f"the errors of {entity}")
        systems = mapping(errors.get("children"), f"the systems of {entity}")
        rows = [_system(entity, text_of(system), mapping(trouble, "a system")) for system, trouble in systems.items()]
        yield from rows
        whole = Result(WHOLE, entity, _status(facts))
        if all(row.status is not whole.status for row in rows):
            yield whole


def _system(entity: str, system: str, trouble: dict[str, Any]) -> Result:
    """Read the trouble of one system: its text is folded into short lines, and has no error's number."""
    lines = [text_of(line).strip() for line in sequence(trouble.get("overflow"), f"the text of {system}")]
    text = " ".join(" ".join(lines).split())
    errors = (DiagError(None, _CATEGORY.get(system.casefold().partition(" ")[0]), None, text),) if text else ()
    return Result(system, entity, _status(trouble), errors)


def _status(item: dict[str, Any]) -> Status:
    return _STATUS.get(text_of(item.get("value")).strip().casefold(), Status.UNKNOWN)
