"""The outputs kept in tests/data/dcgm, and small documents built like them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

DATA = Path(__file__).parents[2] / "data" / "dcgm"
SAMPLES = sorted(path for path in DATA.iterdir() if path.name != "transcripts.json")


class Run(NamedTuple):
    """One command that really ran."""

    version: str
    argv: tuple[str, ...]
    rc: int
    stdout: str


RUNS = [
    Run(version, tuple(run["argv"]), run["rc"], run["stdout"])
    for version, runs in json.loads((DATA / "transcripts.json").read_text()).items()
    if version != "note"
    for run in runs
]


def sample(name: str) -> bytes:
    return (DATA / name).read_bytes()


def error(number: int, severity: int | None, category: int = 10, text: str = "words", key: str = "warning") -> Any:
    return {key: text, "error_id": number, "error_category": category, "error_severity": severity}


def gpu(number: int, status: str = "Pass", *errors: Any) -> dict[str, Any]:
    """One result of 4.x."""
    found = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status}
    return found | ({"warnings": list(errors)} if errors else {})


def diag4(*tests: tuple[str, list[Any]], gpus: int | None = None, **more: Any) -> dict[str, Any]:
    """A document of 4.x: (name, results) for each test."""
    items = [{"name": name, "results": results, **more} for name, results in tests]
    whole: dict[str, Any] = {"DCGM Diagnostic": {"test_categories": [{"category": "Any", "tests": items}]}}
    if gpus is not None:
        entities = [{"entity_id": number, "device_id": "2330"} for number in range(gpus)]
        whole["entity_groups"] = [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}]
    return whole | {"metadata": {"version": "4.6.0"}}


def diag3(*tests: tuple[str, list[Any]], version: str = "3.3.9", gpus: int = 1) -> dict[str, Any]:
    """A document of 3.x."""
    items = [{"name": name, "results": results} for name, results in tests]
    root = {"test_categories": [{"category": "Any", "tests": items}]}
    return {"DCGM GPU Diagnostic": root, "version": version, "GPU Device IDs": ["2330"] * gpus}


def as_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()
