"""`dcgmi diag -j` in its three schemas: up to 3.2, 3.3, and 4.x.

| | up to 3.2 | 3.3 | 4.x |
|---|---|---|---|
| root | `DCGM GPU Diagnostic` | the same | `DCGM Diagnostic` |
| entity | `gpu_ids` | `gpu_id`: 0 for every failure of level 1 | `entity_group`, `entity_id` |
| errors | a text | list with id, category, severity; level 1 names the text `warnings` | the same, `warning` |
| summary | - | - | `test_summary`, repeats the entities' errors since 4.5 |

Source: DCGM 3.1.8, 3.3.9, 4.6.0 (`dcgmi/Diag.cpp`, `nvvs`), and their outputs.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from chaos_gpu.criteria.dcgm.document import mapping, number_of, sequence, text_of
from chaos_gpu.criteria.dcgm.levels import level_of, level_of_test, skipped_levels
from chaos_gpu.criteria.dcgm.report import CATEGORIES, SEVERITIES, DiagError, Reading, Result, Says, Status
from chaos_gpu.criteria.dcgm.weigh import weighed

ROOT_3, ROOT_4 = "DCGM GPU Diagnostic", "DCGM Diagnostic"
_GPU = "GPU"
_STATUSES = {status.casefold(): status for status in Status if status is not Status.UNKNOWN} | {"": Status.NOT_RUN}
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)
_IDS = re.compile(r"\d{1,6}(?:\s*,\s*\d{1,6}){0,255}", re.ASCII)
_CONFIG_CHECKS = ("persistence mode", "environment variables", "permissions and os blocks")
"""Checks of level 1 that can only warn, and about the node's configuration; DCGM up to 3.2 prints `Fail` and a text."""

_OVERALL = {"pass": Says.PASS, "fail": Says.FAIL}


class _Test(NamedTuple):
    level: int | None
    results: tuple[Result, ...]
    gaps: tuple[str, ...]


def is_diag(document: dict[str, Any]) -> bool:
    """Tell whether this is a diagnostic's document, or several of its iterations."""
    return ROOT_3 in document or ROOT_4 in document or isinstance(document.get("iterations"), list)


def read_diag(document: dict[str, Any]) -> Reading:
    """Read a diagnostic's document.

    Raises:
        UsageError: it has another structure than DCGM's.
    """
    if "iterations" in document:
        return _read_iterations(document)
    root_name = ROOT_4 if ROOT_4 in document else ROOT_3
    root = mapping(document[root_name], root_name)
    schema, version = _schema(document, root, root_name)
    failure = text_of(root.get("runtime_error"))
    tests = [_read_test(test, category, schema) for category, test in _tests(root)]
    results = tuple(result for test in tests for result in test.results)
    gaps = [f"the engine could not run it: {failure}"] if failure or "runtime_error" in root else []
    gaps += [gap for test in tests for gap in test.gaps]
    listed, counted = _inventory(document)
    gpus = listed | {result.entity for result in results if result.entity and result.entity.startswith(f"{_GPU} ")}
    return Reading(
        schema=schema,
        version=version,
        level=level_of(test.level for test in tests),
        results=results,
        gpus=frozenset(gpus),
        gpu_count=max(counted, len(gpus)),
        skipped_levels=skipped_levels((test.level, result) for test in tests for result in test.results),
        gaps=tuple(gaps),
    )


def _read_iterations(document: dict[str, Any]) -> Reading:
    """Put all iterations one behind the other; each result stands for itself."""
    each = [mapping(item, "an iteration") for item in sequence(document["iterations"], "iterations")]
    readings = [read_diag(item) for item in each if ROOT_3 in item or ROOT_4 in item]
    gaps = [f"{len(each) - len(readings)} of {len(each)} iterations are empty"] if len(readings) < len(each) else []
    if not readings:
        gaps = ["there is no iteration in it"]
    levels = [reading.level for reading in readings]
    claim = _OVERALL.get(text_of(document.get("Overall Result")).casefold(), Says.INCONCLUSIVE)
    return Reading(
        schema=readings[0].schema if readings else "4.x",
        version=readings[0].version if readings else None,
        level=None if None in levels else min((level for level in levels if level), default=None),
        results=tuple(result for reading in readings for result in reading.results),
        gpus=frozenset(gpu for reading in readings for gpu in reading.gpus),
        gpu_count=max((reading.gpu_count for reading in readings), default=0),
        skipped_levels=tuple(sorted({level for reading in readings for level in reading.skipped_levels})),
        gaps=(*gaps, *(gap for reading in readings for gap in reading.gaps)),
        claim=claim if "Overall Result" in document else None,
    )


def _schema(document: dict[str, Any], root: dict[str, Any], root_name: str) -> tuple[str, str | None]:
    metadata = mapping(document.get("metadata"), "metadata")
    versions = (text_of(place.get("version")) for place in (metadata, document, root))
    version = next((found for found in versions if found), None)
    if root_name == ROOT_4:
        return "4.x", version
    number = _VERSION.match(version or "")
    if number:
        return ("3.1" if (int(number[1]), int(number[2])) < (3, 3) else "3.3"), version
    results = [result for _, test in _tests(root) for result in sequence(test.get("results"), "results")]
    newer = any(isinstance(result, dict) and ("gpu_id" in result or _has_list(result)) for result in results)
    return ("3.3" if newer or "GPU Device Serials" in document else "3.1"), version


def _has_list(result: dict[str, Any]) -> bool:
    return isinstance(result.get("warnings"), list)


def _tests(root: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in sequence(root.get("test_categories"), "test_categories"):
        category = mapping(item, "a test category")
        for test in sequence(category.get("tests"), "tests"):
            yield text_of(category.get("category")), mapping(test, "a test")


def _read_test(test: dict[str, Any], category: str, schema: str) -> _Test:
    name = text_of(test.get("name")) or "(no name)"
    level = level_of_test(name, category)
    items = sequence(test.get("results"), f"the results of {name}")
    named = schema == "4.x" or level != 1  # below 4.x, level 1 writes gpu_id 0 whatever GPU it means
    found = (mapping(item, f"a result of {name}") for item in items if item is not None)
    rows = [row for item in found for row in _rows(item, named)]
    gaps = [f"{name}: no result in place {place}" for place, item in enumerate(items) if item is None]
    summary = mapping(test.get("test_summary"), f"the summary of {name}")
    rest = _without(_errors(summary.get("warnings")), rows)
    if summary and (rest or not rows or not _explains(rows, summary)):
        rows.append((None, _status(summary), rest))
    if not rows and not gaps:
        gaps.append(f"{name}: no result")
    results = tuple(
        Result(name, entity, weighed(status, _graded(name, errors or (rest if status is Status.FAIL else ()))), errors)
        for entity, status, errors in rows
    )
    return _Test(level, results, tuple(gaps))


def _graded(name: str, errors: tuple[DiagError, ...]) -> tuple[DiagError, ...]:
    """Give errors that come without a severity the one that later engines give the same check, where it has but one."""
    if name.casefold() not in _CONFIG_CHECKS:
        return errors
    return tuple(error if error.severity else error._replace(severity="config") for error in errors)


_Row = tuple[str | None, Status, tuple[DiagError, ...]]


def _without(errors: tuple[DiagError, ...], rows: list[_Row]) -> tuple[DiagError, ...]:
    """Return the errors of a summary that no entity reports."""
    told = {(error.id, error.text) for _, _, of_entity in rows for error in of_entity}
    return tuple(error for error in errors if (error.id, error.text) not in told)


def _explains(rows: list[_Row], summary: dict[str, Any]) -> bool:
    """Say whether a summary says nothing worse than the entities do."""
    failed = (Status.FAIL, Status.WARN)
    return _status(summary) not in (*failed, Status.UNKNOWN) or any(status in failed for _, status, _ in rows)


def _rows(item: dict[str, Any], named: bool) -> Iterator[_Row]:
    status, errors = _status(item), _errors(item.get("warnings"))
    for entity in _entities(item) if named else [None]:
        yield entity, status, errors


def _entities(item: dict[str, Any]) -> list[str | None]:
    """Return the entities of one result: several only where an old engine lists several GPUs."""
    if "entity_id" in item or "entity_group" in item:
        number, group = number_of(item.get("entity_id")), text_of(item.get("entity_group"))
        return [f"{group or _GPU} {number}" if number is not None else None]
    ids = item.get("gpu_id", item.get("gpu_ids"))
    text = str(ids) if number_of(ids) is not None else text_of(ids).strip()
    if not _IDS.fullmatch(text):
        return [None]
    return [f"{_GPU} {int(each)}" for each in text.split(",")]


def _status(item: dict[str, Any]) -> Status:
    """Return the status as printed; without one, it did not run."""
    value = item.get("status", "")
    return _STATUSES.get(value.strip().casefold(), Status.UNKNOWN) if isinstance(value, str) else Status.UNKNOWN


def _errors(warnings: Any) -> tuple[DiagError, ...]:
    if isinstance(warnings, str):
        return (DiagError(None, None, None, warnings),) if warnings else ()
    return tuple(_error(item) for item in sequence(warnings, "warnings"))


def _error(item: Any) -> DiagError:
    if isinstance(item, str):
        return DiagError(None, None, None, item)
    fields = mapping(item, "a warning")
    return DiagError(
        number_of(fields.get("error_id")),
        _word(CATEGORIES, fields.get("error_category"), "unknown"),
        _word(SEVERITIES, fields.get("error_severity"), "unknown"),
        text_of(fields.get("warning")) or text_of(fields.get("warnings")),
    )


def _word(words: tuple[str, ...], value: Any, otherwise: str) -> str | None:
    """Return the word of a number; None if there is no number, `otherwise` if DCGM documents none for it."""
    if value is None:
        return None
    number = number_of(value)
    return words[number] if number is not None and number < len(words) else otherwise


def _inventory(document: dict[str, Any]) -> tuple[set[str], int]:
    """Return the GPUs that the document lists, and how many it counts.

    `GPU Device IDs` holds the product's id, the same for equal GPUs: it counts, and names none.
    """
    gpus = {
        f"{_GPU} {int(key)}"
        for key in mapping(document.get("GPU Device Serials"), "GPU Device Serials")
        if _IDS.fullmatch(key) and "," not in key
    }
    for item in sequence(document.get("entity_groups"), "entity_groups"):
        group = mapping(item, "an entity group")
        if text_of(group.get("entity_group")) == _GPU:
            members = (mapping(each, "an entity") for each in sequence(group.get("entities"), "entities"))
            numbers = (number_of(member.get("entity_id")) for member in members)
            gpus |= {f"{_GPU} {number}" for number in numbers if number is not None}
    return gpus, max(len(gpus), len(sequence(document.get("GPU Device IDs"), "GPU Device IDs")))
