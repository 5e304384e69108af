"""What dcgm-exporter shows of an engine: Prometheus text, a series for each GPU and field.

Source: dcgm-exporter 4.x, `etc/default-counters.csv` and its renderer. As there: no series of Xids before the first
one, then the last one for good; with the health watches' results, which are off in its defaults.
"""

from collections.abc import Iterator

from chaos_gpu.lab.dcgm.engine import Engine, Gpu
from chaos_gpu.lab.dcgm.fields import EXPORTED, XID, Field
from chaos_gpu.lab.dcgm.health import INFOROM, MEMORY, NVLINK, PCIE, POWER, THERMAL, Incident, incidents, worst

HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
_GRADES = {"Healthy": 0, "Warning": 10, "Failure": 20}
_WATCHES = {
    "p": (("PCIE", PCIE),),
    "m": (("MEM", MEMORY),),
    "i": (("INFOROM", INFOROM),),
    "t": (("THERMAL", THERMAL), ("POWER", POWER)),
    "n": (("NVLINK", NVLINK),),
}
_ANY = "ALL"
"""The watch under which errors of no single system stand."""


def rendered(engine: Engine, hostname: str, *, live: bool = False) -> str:
    """Return the metrics of all GPUs.

    Args:
        engine: whose cache is read.
        hostname: of the node.
        live: show what the GPUs say instead of what the cache holds.
    """
    lines = [line for field in EXPORTED for line in _family(engine, field, hostname, live)]
    if engine.health_systems is not None and not live:
        lines += _health(engine, hostname)
    return "\n".join(lines) + "\n"


def _family(engine: Engine, field: Field, hostname: str, live: bool) -> list[str]:
    name = f"DCGM_FI_DEV_{field.metric}"
    rows = []
    for gpu in engine.gpus:
        value = (None if field.id == XID else field.live) if live else engine.shown(gpu, field)
        if value is not None:
            more = {"err_code": f"{value:.0f}", "err_msg": "an Xid"} if field.id == XID else {}
            rows.append(f"{name}{{{_labels(engine, gpu, hostname, more)}}} {_number(field, value)}")
    kind = "counter" if field.counter else "gauge"
    return [f"# HELP {name} {field.tag.replace('_', ' ')}.", f"# TYPE {name} {kind}", *rows] if rows else []


def _number(field: Field, value: float) -> str:
    return f"{value:f}" if field.real else f"{value:.0f}"


def _labels(engine: Engine, gpu: Gpu, hostname: str, more: dict[str, str]) -> str:
    labels = {
        "gpu": str(gpu.number),
        "UUID": gpu.uuid,
        "pci_bus_id": gpu.pci,
        "device": f"nvidia{gpu.number}",
        "modelName": gpu.name,
        "Hostname": hostname,
        "DCGM_FI_DRIVER_VERSION": engine.driver,
        **more,
    }
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def _health(engine: Engine, hostname: str) -> Iterator[str]:
    found = incidents(engine)
    yield f"# HELP {HEALTH} Health of the GPU (0 pass, 10 warn, 20 fail)."
    yield f"# TYPE {HEALTH} gauge"
    for gpu in engine.gpus:
        of_gpu = [each for each in found if each.gpu == gpu.number]
        for watch, grade in _watched(engine.health_systems or "", of_gpu):
            labels = _labels(engine, gpu, hostname, {"health_watch": watch, "health_error_code": ""})
            yield f"{HEALTH}{{{labels}}} {_GRADES[grade]}"


def _watched(systems: str, found: list[Incident]) -> Iterator[tuple[str, str]]:
    known = [pair for letter in systems for pair in _WATCHES.get(letter, ())]
    for watch, system in known:
        yield watch, worst([each.grade for each in found if each.system == system])
    rest = [each.grade for each in found if each.system not in {system for _, system in known}]
    if rest:
        yield _ANY, worst(rest)
