"""The state of one node's engine: its cache of samples, its watches, what it has seen; a file, locked while in use.

Polling is not done but reckoned: whoever looks sees the samples that an engine would have taken until then. Rules of
an injected sample, as measured on DCGM 4.6.0:

* it is dated `offset` seconds ahead, and the field is not polled again before that date plus the polling interval;
* the newest sample by date stands, whatever came later;
* an Xid is not polled at all, and the health watch keeps it until the engine starts anew.
"""

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chaos_gpu.lab.dcgm.fields import EXPORTED, FIELDS, INFOROM, XID, Field

Json = dict[str, Any]

WINDOW_S = 60.0
POLL_S = 30.0
INFOROM_S = 3600.0
KEEP_S = 7200.0
MOST_SAMPLES = 64


class Sample(NamedTuple):
    """A value and its date, seconds since the epoch."""

    at: float
    value: float


class Gpu(NamedTuple):
    """A GPU as the engine knows it."""

    number: int
    uuid: str
    pci: str
    name: str
    device_id: str
    serial: str
    missing: tuple[int, ...] = ()
    """Fields that it does not support."""
    sram_threshold: bool = True


class Engine:
    """One engine, open for reading and change; see `opened`."""

    def __init__(self, inventory: Json, state: Json, now: float) -> None:
        """Take what the files say."""
        self.version: str = inventory["version"]
        self.driver: str = inventory["driver"]
        self.speed: float = inventory.get("speed", 1.0)
        """How many times faster than a real engine its intervals pass."""
        self.gpus = [Gpu(number, **facts) for number, facts in enumerate(inventory["gpus"])]
        self.state = state
        self.now = now
        self.changed = False
        """Whether there is something to keep: polls are reckoned again by the next who looks."""

    @property
    def paused(self) -> bool:
        """Whether it has stopped to collect anything."""
        return bool(self.state.get("paused"))

    @paused.setter
    def paused(self, value: bool) -> None:
        self.state["paused"] = value
        self.changed = True

    @property
    def health_systems(self) -> str | None:
        """Letters of the systems that health watches; None if nobody has set them."""
        health = self.state.get("health")
        return health["systems"] if health else None

    @property
    def window_s(self) -> float:
        """How far health looks back."""
        return WINDOW_S / self.speed

    def gpu(self, number: int) -> Gpu | None:
        """Return a GPU by the engine's number."""
        return self.gpus[number] if 0 <= number < len(self.gpus) else None

    def watch_health(self, systems: str, interval_s: float, keep_s: float) -> None:
        """Let health watch these systems of every GPU from now on."""
        self.changed = True
        self.state["health"] = {"systems": systems, "interval_s": interval_s, "keep_s": keep_s}
        self._begin(field for field in FIELDS.values() if self._health_interval(field))

    def clear_health(self) -> None:
        """Let health watch nothing."""
        self.state.pop("health", None)
        self.changed = True

    def watch_exported(self) -> None:
        """Let an exporter watch its fields from now on; they stay watched until the engine starts anew."""
        if not self.state.get("exporter"):
            self.state["exporter"] = self.changed = True
            self._begin(EXPORTED)

    def _begin(self, fields: Any) -> None:
        for field in fields:
            for gpu in self.gpus:
                if f"{gpu.number}/{field.id}" not in self._all_series:
                    samples = [] if field.id == XID or field.id in gpu.missing else [[self.now, field.live]]
                    self._all_series[f"{gpu.number}/{field.id}"] = {"queried": self.now, "samples": samples}

    def watchers(self, field: Field) -> int:
        """Count who watches a field."""
        return bool(self._health_interval(field)) + bool(self.state.get("exporter") and field.metric)

    def interval_s(self, field: Field) -> float | None:
        """Return the time between two polls: the shortest that a watcher asks for; None if nobody watches."""
        wanted = [self._health_interval(field)]
        if self.state.get("exporter") and field.metric:
            wanted.append(POLL_S)
        return min((each for each in wanted if each), default=None)

    def _health_interval(self, field: Field) -> float | None:
        health = self.state.get("health")
        if not health or not set(field.systems) & set(health["systems"]):
            return None
        if field.id == INFOROM:
            return max(INFOROM_S, float(health["interval_s"]))
        exact = field.systems in ("p", "n") or field.id == 311
        return float(health["interval_s"]) if exact else max(POLL_S, float(health["interval_s"]))

    def keep_s(self, field: Field) -> float:
        """Return how long samples are kept."""
        return KEEP_S if self._health_interval(field) else POLL_S

    @property
    def _all_series(self) -> Json:
        series: Json = self.state.setdefault("series", {})
        return series

    def inject(self, gpu: Gpu, field: Field, value: float, offset_s: float) -> None:
        """Put a sample into the cache, dated ahead."""
        series = self._refreshed(gpu, field) or {"queried": self.now, "samples": []}
        self._all_series[f"{gpu.number}/{field.id}"] = series
        self.changed = True
        at = self.now + offset_s
        series["samples"].append([at, value])
        series["queried"] = max(self.now, at)
        if field.id == XID and self.watchers(field) and set("mi") & set(self.health_systems or ""):
            self.state.setdefault("xids", {}).setdefault(str(gpu.number), []).append(int(value))

    def xids(self, gpu: Gpu) -> list[int]:
        """Return the Xids that health has seen since the engine started."""
        return list(self.state.get("xids", {}).get(str(gpu.number), []))

    def samples(self, gpu: Gpu, field: Field) -> list[Sample] | None:
        """Return what the cache holds, oldest date first; None for a field that was never watched nor injected."""
        series = self._refreshed(gpu, field)
        return None if series is None else sorted(Sample(at, value) for at, value in series["samples"])

    def latest(self, gpu: Gpu, field_id: int) -> float | None:
        """Return the value with the newest date."""
        found = self.samples(gpu, FIELDS[field_id])
        return found[-1].value if found else None

    def recent(self, gpu: Gpu, field_id: int) -> list[float]:
        """Return the values of health's window, the dates to come among them."""
        found = self.samples(gpu, FIELDS[field_id]) or []
        return [value for at, value in found if at >= self.now - self.window_s]

    def shown(self, gpu: Gpu, field: Field) -> float | None:
        """Return what a monitor shows: the newest sample, or else what the GPU itself says."""
        if (value := self.latest(gpu, field.id)) is not None:
            return value
        return None if field.id in gpu.missing or field.id == XID else field.live

    def _refreshed(self, gpu: Gpu, field: Field) -> Json | None:
        """Take the polls that were due until now."""
        series: Json | None = self._all_series.get(f"{gpu.number}/{field.id}")
        interval_s = self.interval_s(field)
        if series is None or interval_s is None or self.paused or field.id == XID or field.id in gpu.missing:
            return series
        step = interval_s / self.speed
        due = math.floor((self.now - series["queried"]) / step)
        for turn in range(max(1, due - MOST_SAMPLES), due + 1):
            series["samples"].append([series["queried"] + turn * step, field.live])
        series["queried"] += max(0, due) * step
        kept = [sample for sample in series["samples"] if sample[0] >= self.now - self.keep_s(field)]
        series["samples"] = (kept or series["samples"])[-MOST_SAMPLES:]
        return series


@contextlib.contextmanager
def opened(directory: Path, clock: Callable[[], float] = time.time) -> Iterator[Engine]:
    """Open the engine of a node; what is changed on it is kept when the block ends well."""
    with locked(directory / "lock"):
        inventory = json.loads((directory / "engine.json").read_text(encoding="utf-8"))
        path = state_file(directory)
        try:
            before = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = "{}"
        engine = Engine(inventory, json.loads(before), clock())
        yield engine
        if engine.changed:
            after = json.dumps(engine.state)
            fresh = path.with_name(f".state.{os.getpid()}")
            fresh.write_text(after, encoding="utf-8")
            fresh.replace(path)


def state_file(directory: Path) -> Path:
    """Return the file that holds what an engine was told; it is written anew at each change."""
    return directory / "state.json"


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True, shared: bool = False) -> Iterator[None]:
    """Hold a lock file.

    Raises:
        BlockingIOError: another holds it, and it was not to be waited for.
    """
    with path.open("a", encoding="ascii") as file:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield


def hosted(directory: Path) -> Path:
    """Return the lock that a standalone engine holds as long as it lives."""
    return directory / "hostengine"


def is_running(directory: Path) -> bool:
    """Say whether a standalone engine runs on the node."""
    try:
        with locked(hosted(directory), wait=False, shared=True):
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def write_inventory(directory: Path, inventory: Json) -> None:
    """Write what the engine knows of its node before it starts: `version`, `driver`, `speed` and `gpus`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "engine.json").write_text(json.dumps(inventory), encoding="utf-8")
