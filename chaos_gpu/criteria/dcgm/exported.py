"""An exporter's metrics as a reading of each GPU's health, as far as they show it.

Source: dcgm-exporter 4.x, `DCGM_EXP_GPU_HEALTH_STATUS` (0 pass, 10 warn, 20 fail), which is off by default.
"""

from collections.abc import Iterator, Mapping

from chaos_gpu.criteria.dcgm.metrics import XID, GpuSeries, Sample
from chaos_gpu.criteria.dcgm.report import DiagError, Reading, Result, Status

HEALTH = "DCGM_EXP_GPU_HEALTH_STATUS"
ROW_REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"

_STATUS = {0.0: Status.PASS, 10.0: Status.WARN, 20.0: Status.FAIL}


def read_exported(gpus: Mapping[str, GpuSeries]) -> Reading:
    """Read what the metrics say of each GPU; where its health is not exported, or a field is missing, that is a gap."""
    gaps = [gap for gpu in gpus.values() for gap in _gaps(gpu)]
    results = tuple(result for gpu in gpus.values() for result in _results(gpu))
    entities = frozenset(_entity(gpu) for gpu in gpus.values())
    return Reading("metrics", None, None, results, gpus=entities, gpu_count=len(gpus), gaps=tuple(gaps))


def _results(gpu: GpuSeries) -> Iterator[Result]:
    for sample in gpu.samples:
        if sample.name == HEALTH:
            yield _health(gpu, sample)
    for code in sorted({value for value in gpu.values(XID) if value > 0}):
        text = f"Xid {code:g} was the last one; the metric keeps it after recovery"
        yield Result(XID, _entity(gpu), Status.WARN, (DiagError(None, "driver", None, text),), gpu.uuid)
    if any(value > 0 for value in gpu.values(ROW_REMAP_FAILURE)):
        error = DiagError(None, "memory", None, "a row of memory could not be remapped")
        yield Result(ROW_REMAP_FAILURE, _entity(gpu), Status.FAIL, (error,), gpu.uuid)


def _health(gpu: GpuSeries, sample: Sample) -> Result:
    watch, code = sample.labels.get("health_watch", HEALTH), sample.labels.get("health_error_code", "")
    status = _STATUS.get(sample.value, Status.UNKNOWN)
    number = int(code) if code.isascii() and code.isdecimal() and len(code) < 10 else None
    errors = () if status not in (Status.WARN, Status.FAIL) else (DiagError(number, None, None, code),)
    return Result(watch, _entity(gpu), status, errors, gpu.uuid)


def _gaps(gpu: GpuSeries) -> Iterator[str]:
    if not gpu.values(HEALTH):
        yield f"{_entity(gpu)}: its health is not exported; add {HEALTH} to the exporter's counters"
    missing = gpu.missing()
    if missing:
        yield f"{_entity(gpu)}: no series of {', '.join(missing)}"


def _entity(gpu: GpuSeries) -> str:
    return f"GPU {gpu.gpu or gpu.uuid}"
