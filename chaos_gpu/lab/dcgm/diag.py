"""Diagnostics: what each level runs, what it finds on a GPU that has a fault, and the report in DCGM 4.6's forms.

A GPU has a fault in two ways. `faults.json` in the engine's directory lists those of the simulated hardware, as
`[{"gpu": 3, "code": 58}]`: the test that finds that code fails from its level on. And from level 2 on the tests read
watched fields while they run, so that an injected sample fails them; level 1 reads the hardware itself and does not.

Source: `nvvs/src/NvidiaValidationSuite.cpp`, `dcgm_errors.c` and `dcgmi/Diag.cpp` of DCGM 4.6.0, and its output.
"""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chaos_gpu.lab.dcgm.engine import Engine, Gpu
from chaos_gpu.lab.dcgm.styled import row, rule, styled

Json = dict[str, Any]
MONITOR, ISOLATE, TRIAGE, CONFIG, RESET = 1, 2, 4, 5, 6
OK, SOME_ERROR, ISOLATE_RC, PAUSED_RC, IN_USE_RC = 0, 226, 205, 202, 222

TESTS: tuple[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]], ...] = (
    ("1", (("Deployment", ("software",)),)),
    ("2", (("Integration", ("pcie",)), ("Hardware", ("memory",)))),
    ("3", (("Hardware", ("diagnostic",)), ("Stress", ("memory_bandwidth", "targeted_stress", "targeted_power")))),
    ("4", (("Hardware", ("memtest", "pulse_test")),)),
)
"""Level → category → tests that it adds."""

_CATEGORIES = ("Deployment", "Integration", "Hardware", "Stress")


class Code(NamedTuple):
    """An error of DCGM: which test finds it, and what it asks for."""

    test: str
    severity: int
    category: int
    text: str


CODES: dict[int, Code] = {
    9: Code("software", TRIAGE, 15, "Inforom: the InfoROM of GPU {gpu} is corrupt."),
    28: Code("software", CONFIG, 3, "Persistence Mode: persistence mode for GPU {gpu} is disabled."),
    80: Code("software", RESET, 10, "Page Retirement/Row Remap: row remapping failed on GPU {gpu}."),
    30: Code("pcie", TRIAGE, 13, "The bandwidth between host and GPU {gpu} is below its minimum."),
    46: Code("pcie", CONFIG, 13, "The PCIe link of GPU {gpu} is narrower than expected."),
    51: Code("memory", MONITOR, 6, "An API call of CUDA failed on GPU {gpu}."),
    52: Code("memory", ISOLATE, 10, "Found faulty memory on GPU {gpu}."),
    58: Code("memory", ISOLATE, 10, "Memory of GPU {gpu} does not hold what was written."),
    62: Code("memory_bandwidth", TRIAGE, 10, "The memory bandwidth of GPU {gpu} is below its minimum."),
    63: Code("targeted_power", TRIAGE, 14, "GPU {gpu} does not reach its target power."),
    111: Code("diagnostic", ISOLATE, 15, "A computation on GPU {gpu} gave NaN."),
    42: Code("memory", MONITOR, 9, "GPU {gpu} was hotter than allowed while the test ran."),
    43: Code("memory", MONITOR, 9, "The clocks of GPU {gpu} were held down while the test ran."),
    101: Code("memory", TRIAGE, 5, "GPU {gpu} reported an Xid while the test ran."),
    103: Code("memory", ISOLATE, 10, "GPU {gpu} had double-bit ECC errors while the test ran."),
    104: Code("pcie", ISOLATE, 13, "GPU {gpu} had too many PCIe replays while the test ran."),
}

_HOT_C, _HELD_DOWN, _REPLAYS = 90, 8 | 64 | 128, 31
_IN_SAMPLES = (
    (150, 42, lambda value: value >= _HOT_C),
    (112, 43, lambda value: bool(int(value) & _HELD_DOWN)),
    (230, 101, lambda value: value > 0),
    (311, 103, lambda value: value > 0),
    (202, 104, lambda value: value > _REPLAYS),
)
_SRAM = (
    "Error getting the SRAM Threshold Count for GPU {gpu}. Status = 0. Value = 9223372036854775792."
    " SRAM Threshold checking was skipped."
)


class Found(NamedTuple):
    """An error on a GPU."""

    gpu: int
    code: int

    def as_json(self) -> Json:
        """Return it as an item of `warnings`."""
        code = CODES[self.code]
        return {
            "error_category": code.category,
            "error_id": self.code,
            "error_severity": code.severity,
            "warning": code.text.format(gpu=self.gpu),
        }


def faults_of_hardware(directory: Path) -> list[Found]:
    """Return what is wrong with the simulated GPUs of a node; nothing where nobody has written it down."""
    try:
        listed = json.loads((directory / "faults.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return [Found(item["gpu"], item["code"]) for item in listed]


def tests_of(level: int) -> dict[str, tuple[str, ...]]:
    """Return category → tests of a level; each level contains the lower ones."""
    steps = [step for number, step in TESTS if int(number) <= level]
    return {
        category: names
        for category in _CATEGORIES
        if (names := tuple(name for step in steps for where, each in step if where == category for name in each))
    }


class Diagnosis(NamedTuple):
    """What a diagnostic found."""

    level: int
    errors: tuple[Found, ...]
    gpus: tuple[Gpu, ...]

    @property
    def exit_status(self) -> int:
        """Return the exit status of `dcgmi`."""
        if not self.errors:
            return OK
        grave = any(CODES[error.code].severity == ISOLATE for error in self.errors)
        return ISOLATE_RC if grave else SOME_ERROR

    def of(self, test: str, gpu: int) -> list[Found]:
        """Return the errors of one test on one GPU."""
        return [error for error in self.errors if error.gpu == gpu and CODES[error.code].test == test]

    def status(self, test: str, gpu: int | None = None) -> str:
        """Return the status of a test as the table prints it."""
        numbers = [each.number for each in self.gpus] if gpu is None else [gpu]
        severities = [CODES[error.code].severity for number in numbers for error in self.of(test, number)]
        if any(severity not in (MONITOR, CONFIG) for severity in severities):
            return "Fail"
        return "Warn" if severities else "Pass"


def diagnose(engine: Engine, level: int, hardware: list[Found]) -> Diagnosis:
    """Run a level on all GPUs."""
    known = {name for names in tests_of(level).values() for name in names}
    found = [error for error in hardware if CODES[error.code].test in known and engine.gpu(error.gpu)]
    if level > 1:
        found += [error for gpu in engine.gpus for error in _in_samples(engine, gpu)]
    return Diagnosis(level, tuple(dict.fromkeys(found)), tuple(engine.gpus))


def _in_samples(engine: Engine, gpu: Gpu) -> Iterator[Found]:
    for field, code, is_bad in _IN_SAMPLES:
        value = engine.latest(gpu, field)
        if value is not None and is_bad(value):
            yield Found(gpu.number, code)


def as_json(engine: Engine, diagnosis: Diagnosis) -> str:
    """Return the report as `dcgmi diag -j` prints it: there a warning is a `Fail` too."""
    categories = [
        {"category": category, "tests": [_test(name, diagnosis) for name in names]}
        for category, names in tests_of(diagnosis.level).items()
    ]
    entities = [{"device_id": gpu.device_id, "entity_id": gpu.number, "serial_num": gpu.serial} for gpu in engine.gpus]
    document = {
        "DCGM Diagnostic": {"test_categories": categories},
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"Driver Version Detected": engine.driver, "version": engine.version},
    }
    return styled(document) + "\n"


def _test(name: str, diagnosis: Diagnosis) -> Json:
    results = [_with_errors(_result(name, diagnosis, gpu), diagnosis.of(name, gpu.number)) for gpu in diagnosis.gpus]
    summary = _with_errors({"status": _printed(diagnosis.status(name))}, _all_of(name, diagnosis))
    info = [_SRAM.format(gpu=gpu.number) for gpu in diagnosis.gpus if not gpu.sram_threshold]
    if info and name == "software":
        summary["info"] = info
    return {"name": name, "results": results, "test_summary": summary}


def _result(name: str, diagnosis: Diagnosis, gpu: Gpu) -> Json:
    status = _printed(diagnosis.status(name, gpu.number))
    return {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu.number, "status": status}


def _with_errors(item: Json, errors: list[Found]) -> Json:
    return item | ({"warnings": [error.as_json() for error in errors]} if errors else {})


def _all_of(name: str, diagnosis: Diagnosis) -> list[Found]:
    return [error for gpu in diagnosis.gpus for error in diagnosis.of(name, gpu.number)]


def _printed(status: str) -> str:
    return "Fail" if status == "Warn" else status


def as_table(engine: Engine, diagnosis: Diagnosis) -> str:
    """Return the report as `dcgmi diag` prints it."""
    widths = (27, 48)
    lines = ["Successfully ran diagnostic for group.", rule(widths), row(("Diagnostic", "Result"), widths)]
    lines += [rule(widths, "="), _section("Metadata")]
    rows = [
        ("DCGM Version", engine.version),
        ("Driver Version Detected", engine.driver),
        ("GPU Device IDs Detected", ", ".join(gpu.device_id for gpu in engine.gpus)),
    ]
    lines += [row(cells, widths) for cells in rows]
    for category, names in tests_of(diagnosis.level).items():
        lines.append(_section(category))
        for name in names:
            rows = [(name, diagnosis.status(name))]
            rows += [("", f"GPU{gpu.number}: {diagnosis.status(name, gpu.number)}") for gpu in engine.gpus]
            errors = _all_of(name, diagnosis)
            rows += [cells for error in errors for cells in _warning(error)]
            lines += [row(cells, widths) for cells in rows]
    return "\n".join([*lines, rule(widths)]) + "\n"


def _warning(error: Found) -> Iterator[tuple[str, str]]:
    for at, line in enumerate(textwrap.wrap(CODES[error.code].text.format(gpu=error.gpu), 46)):
        yield ("" if at else f"Warning: GPU{error.gpu}"), line


def _section(name: str) -> str:
    return f"|-----  {name}  ".ljust(28, "-") + "+" + "-" * 48 + "|"


def runtime_error(engine: Engine, text: str) -> str:
    """Return what `dcgmi diag -j` prints when nothing could be run."""
    return styled({"DCGM Diagnostic": {"runtime_error": f"Error: {text}", "version": engine.version}}) + "\n\n"
