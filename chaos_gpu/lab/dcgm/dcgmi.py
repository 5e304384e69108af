"""The `dcgmi` that the lab's pods find: texts and exit codes of DCGM 4.6.0, against the simulated engine of the node.

Commands: discovery -l; health -s|-c|-f|--clear; test --inject|--introspect|--pause|--resume; dmon -e; diag -r.
As the real one, it validates neither numbers nor field ids when it injects, and says success all the same.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chaos_gpu.lab.dcgm import diag, health
from chaos_gpu.lab.dcgm.arguments import Arguments, BadArgument, ParseError, number, parse, whole
from chaos_gpu.lab.dcgm.defects import planted
from chaos_gpu.lab.dcgm.engine import Engine, Gpu, Sample, is_running, locked, opened
from chaos_gpu.lab.dcgm.fields import BINARY, FIELDS, Field
from chaos_gpu.lab.dcgm.styled import row, rule

OK, PARSE, ARGUMENT = 0, 1, 254
BAD_PARAMETER, GENERIC, NOT_SUPPORTED, NOT_WATCHED, NO_ENGINE = 255, 253, 250, 240, 235
DIAG_S = (0.2, 0.6, 0.9, 1.2)
"""How long the levels take here, seconds."""
HEALTH_S, KEEP_S = 30.0, 600.0
_SYSTEM_NAMES = {"p": "PCIe", "n": "NVLINK", "m": "Memory", "i": "InfoROM", "t": "Thermal", "d": "Driver"}
SYSTEMS = "pmitnd"


class Answer(NamedTuple):
    """What the command prints, and its exit status."""

    rc: int
    out: str = ""
    err: str = ""


def answer(argv: Sequence[str], directory: Path) -> Answer:
    """Do what a command line asks for, on the engine whose files are in `directory`."""
    try:
        arguments = parse(argv)
        if not is_running(directory):
            return _unreachable(arguments)
        return COMMANDS[arguments.command](arguments, directory)
    except ParseError as problem:
        return Answer(PARSE, err=f"PARSE ERROR: {problem}\n")
    except BadArgument as problem:
        return Answer(ARGUMENT, err=f"Error: {problem}\nAn error occurred trying to parse the command line.\n")


def _unreachable(arguments: Arguments) -> Answer:
    host = arguments.text("host") or "localhost"
    first = f"Error: unable to establish a connection to the specified host: {host}\n"
    second = "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
    return Answer(NO_ENGINE, first + second)


def _discovery(_arguments: Arguments, directory: Path) -> Answer:
    with opened(directory) as engine:
        gpus = engine.gpus
    wide = (8, 70)
    text = f"{len(gpus)} GPUs found (Active).\n" + _list("GPU ID", [_described(gpu) for gpu in gpus], wide)
    text += f"0 NvSwitches found.\n{rule((11,))}\n{row(('Switch ID',), (11,))}\n{rule((11,))}\n{rule((11,))}\n"
    text += f"0 ConnectX found.\n{rule((10,))}\n{row(('ConnectX',), (10,))}\n{rule((10,))}\n{rule((10,))}\n"
    return Answer(OK, f"{text}0 CPUs found.\n" + _list("CPU ID", [], wide))


def _described(gpu: Gpu) -> list[tuple[str, str]]:
    lines = (f"Name: {gpu.name}", f"PCI Bus ID: {gpu.pci}", f"Device UUID: {gpu.uuid}")
    return [(str(gpu.number) if at == 0 else "", line) for at, line in enumerate(lines)]


def _list(title: str, items: list[list[tuple[str, str]]], widths: tuple[int, int]) -> str:
    lines = [rule(widths), row((title, "Device Information"), widths), rule(widths)]
    for item in items:
        lines += [*(row(cells, widths) for cells in item), rule(widths)]
    return "\n".join(lines if items else [*lines, rule(widths)]) + "\n"


def _health(arguments: Arguments, directory: Path) -> Answer:
    with opened(directory) as engine:
        if systems := arguments.text("set"):
            if unknown := set(systems) - set(SYSTEMS + "ax"):
                raise BadArgument(f"Invalid value '{min(unknown)}' specified for -s..")
            letters = SYSTEMS if "a" in systems else systems
            interval_s = number(arguments.text("update-interval") or HEALTH_S)
            engine.watch_health(letters, interval_s, number(arguments.text("max-keep-age") or KEEP_S))
            return Answer(OK, "Health monitor systems set successfully.\n")
        if arguments.has("clear"):
            engine.clear_health()
            return Answer(OK, "Health monitor systems cleared successfully.\n")
        if arguments.has("fetch"):
            return Answer(OK, _watched(engine.health_systems or ""))
        if not arguments.has("check"):
            raise ParseError("One and only one of -s, -c, -f, --clear is required.")
        if engine.health_systems is None:
            return Answer(GENERIC, "Error: Health watches not enabled. Please enable watches. \n")
        found = health.incidents(engine)
    if planted("warn-as-fail"):
        found = [each._replace(grade="Failure") for each in found]
    return Answer(OK, health.as_json(found) if arguments.has("json") else health.as_table(found))


def _watched(systems: str) -> str:
    widths = (27, 58)
    rows = [row((name, "On" if letter in systems else "Off"), widths) for letter, name in _SYSTEM_NAMES.items()]
    return "\n".join(["Health monitor systems report", rule(widths), *rows, rule(widths)]) + "\n"


def _test(arguments: Arguments, directory: Path) -> Answer:
    modes = [mode for mode in ("inject", "introspect", "pause", "resume") if arguments.has(mode)]
    if len(modes) != 1:
        raise ParseError("One and only one of --inject, --introspect, --pause, --resume is required.")
    with opened(directory) as engine:
        if modes[0] == "inject":
            return _inject(arguments, engine)
        if modes[0] == "introspect":
            return _introspect(arguments, engine)
        engine.paused = modes[0] == "pause"
    return Answer(OK, f"Successfully {modes[0]}d metrics monitoring\n")


def _inject(arguments: Arguments, engine: Engine) -> Answer:
    for name, short in (("value", "v"), ("field", "f")):
        if arguments.text(name) is None:
            raise BadArgument(f"The -{short}/--{name} argument is required for --inject.")
    text = arguments.text("value") or ""
    gpu, field_id = engine.gpu(arguments.integer("gpuid", 1)), whole(arguments.text("field") or "") & 0xFFFF
    if field_id in BINARY:
        first = "Field types of DCGM_FT_BINARY cannot be injected.\n"
        return Answer(NOT_SUPPORTED, f"{first}Error: Unable to parse value '{text}' Return: Feature not supported\n")
    field = FIELDS.get(field_id)
    if gpu is None or field is None:
        return Answer(BAD_PARAMETER, "Error: Unable to inject info. Return: Bad parameter passed to function\n")
    engine.inject(gpu, field, number(text) if field.real else whole(text), arguments.integer("offset", 1))
    return Answer(OK, "Successfully injected field info.\n")


def _introspect(arguments: Arguments, engine: Engine) -> Answer:
    if arguments.text("field") is None:
        raise BadArgument("The -f/--field argument is required for --introspect.")
    wanted = arguments.integer("gpuid", 1)
    gpu, field = engine.gpu(wanted), FIELDS.get(whole(arguments.text("field") or ""))
    samples = engine.samples(gpu, field) if gpu and field else None
    if field is None or samples is None:
        why = f"Error: Unable to get field info for entity ID: {wanted}. Return: Field is not being watched\n"
        return Answer(NOT_WATCHED, why)
    dated = samples or [Sample(0.0, 0.0)]
    facts = {
        "Field ID": field.tag,
        "Flags": 1,
        "Last Status": 0,
        "Number of Samples": len(samples),
        "Newest Timestamp": _date(dated[-1].at),
        "Oldest Timestamp": _date(dated[0].at),
        "Monitor Interval (ms)": round((engine.interval_s(field) or 0) * 1000 / engine.speed),
        "Max Age (sec)": round(engine.keep_s(field)),
        "Fetch Count": 1,
        "Total Fetch Usec": 7,
        "Usec Per Fetch": 7,
        "Number of Watchers": engine.watchers(field),
    }
    return Answer(OK, "".join(f" {name:<26}: {value!s:<47}\n" for name, value in facts.items()) + "\n")


def _date(at: float) -> str:
    return time.asctime(time.gmtime(at))


def _dmon(arguments: Arguments, directory: Path) -> Answer:
    with opened(directory) as engine:
        ids = [whole(each) for each in (arguments.text("field-id") or "").split(",")]
        fields = [FIELDS[each] for each in ids if each in FIELDS]
        chosen = [int(each) for each in (arguments.text("entity-id") or "").split(",") if each.isdecimal()]
        gpus = [gpu for gpu in engine.gpus if not chosen or gpu.number in chosen]
        if len(fields) < len(ids) or not gpus:
            return Answer(BAD_PARAMETER, "Error setting watches. Result: Bad parameter passed to function\n")
        lines = [("#Entity", [field.column for field in fields]), ("ID", [field.unit for field in fields])]
        lines += [(f"GPU {gpu.number}", [_shown(engine, gpu, field) for field in fields]) for gpu in gpus]
    return Answer(OK, "".join(f"{name:<16}{''.join(f'{cell:<13}' for cell in cells)}\n" for name, cells in lines))


def _shown(engine: Engine, gpu: Gpu, field: Field) -> str:
    value = engine.shown(gpu, field)
    if value is None:
        return "N/A"
    return f"{value:.3f}" if field.real else f"{value:.0f}"


def _diag(arguments: Arguments, directory: Path) -> Answer:
    wanted, in_json = arguments.text("run") or "", arguments.has("json")
    if wanted not in ("1", "2", "3", "4"):
        raise BadArgument(f"Invalid value '{wanted}' specified for -r..")
    try:
        with locked(directory / "diagnostic", wait=False):
            return _diagnosed(directory, int(wanted), in_json)
    except BlockingIOError:
        reason = "The requested operation could not be completed because the affected resource is in use"
        text = f"Unable to complete diagnostic for entities *,cpu:*. Return: (-34) : {reason}"
        with opened(directory) as engine:
            return _not_run(engine, diag.IN_USE_RC, text, in_json)


def _diagnosed(directory: Path, level: int, in_json: bool) -> Answer:
    time.sleep(DIAG_S[level - 1])
    with opened(directory) as engine:
        if engine.paused:
            why = "Diagnostic could not be run while DCGM is paused."
            return _not_run(engine, diag.PAUSED_RC, why, in_json)
        found = diag.diagnose(engine, level, diag.faults_of_hardware(directory))
        if not in_json:
            return Answer(found.exit_status, diag.as_table(engine, found))
        text = diag.as_json(engine, found)
    if planted("truncated-json"):
        return Answer(OK, text[: len(text) * 2 // 3])
    return Answer(found.exit_status, text)


def _not_run(engine: Engine, rc: int, why: str, in_json: bool) -> Answer:
    return Answer(rc, diag.runtime_error(engine, why) if in_json else f"Error: {why}\n")


COMMANDS = {"discovery": _discovery, "health": _health, "test": _test, "dmon": _dmon, "diag": _diag}


def main() -> int:
    """Run one command on the engine of this node."""
    said = answer(sys.argv[1:], Path(os.environ["LAB_DCGM_PATH"]))
    sys.stdout.write(said.out)
    sys.stderr.write(said.err)
    return said.rc


if __name__ == "__main__":
    sys.exit(main())
