"""The ledger: a ConfigMap per run that says what was changed and how to undo it, written before the change."""

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.errors import ApiError, ApiUnavailable, Conflict, Forbidden, Refused
from chaos_gpu.faults import ours
from chaos_gpu.faults.names import LEDGER, NAMESPACE, RUN, ledgers_path
from chaos_gpu.payloads.endings import WATCH

OPEN, CLOSED, STUCK = "open", "closed", "stuck"
KEPT = timedelta(hours=24)
UNREADABLE = "unreadable"
"""Key under which a record that is no JSON object is kept as the text that it is."""


@dataclass
class Ledger:
    """One run's ledger. Each record has a key of its own, so that two writers never overwrite each other."""

    api: Api
    run: str
    uid: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """Marks what this process makes for the run."""
    _verdicts: int = field(default=0)

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{ledgers_path()}/chaos-gpu-run-{self.run}"

    def open(self, facts: Mapping[str, Any]) -> None:
        """Create it. Raises Refused when the run id was used before."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"chaos-gpu-run-{self.run}",
                "namespace": NAMESPACE,
                "labels": {RUN: self.run, LEDGER: OPEN, "app.kubernetes.io/managed-by": "chaos-gpu"},
            },
            "data": {"run": json.dumps({"run": self.run, "opened_at": utc(), **facts})},
        }
        try:
            self.uid = ours.create(self.api, ledgers_path(), body, self.token)["metadata"]["uid"]
        except Conflict as failure:
            raise Refused(
                f"run id {self.run} was used before", remedy="unset CHAOS_GPU_RUN or choose a new one"
            ) from failure

    def write(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Write some records at once: all or none of them are there afterwards."""
        self.api.patch(self.path, {"data": {key: json.dumps(record) for key, record in records.items()}})

    def write_verdicts(self, verdicts: list[dict[str, Any]]) -> None:
        """Keep outcome and reason of verdicts; their evidence goes into the journal."""
        records = {}
        for verdict in verdicts:
            self._verdicts += 1
            records[f"verdict.{self._verdicts:03}"] = {
                key: verdict[key] for key in ("criterion", "outcome", "reason", "at")
            }
        self.write(records)


@dataclass(frozen=True)
class Entry:
    """A ledger as found in the cluster."""

    run: str
    state: str
    records: dict[str, Any]
    created_at: datetime
    token: str = ""

    @property
    def faults(self) -> list[dict[str, Any]]:
        """Return what was injected (or was about to be), in no particular order."""
        return [record for key, record in self.records.items() if key.startswith("fault.")]

    @property
    def open_items(self) -> list[str]:
        """Return what remains, as text."""
        left = self.records.get("recovery", {}).get("open", [])
        return [str(item) for item in left] if isinstance(left, list) else [str(left)]

    @property
    def unreadable(self) -> list[str]:
        """Return the keys of the records that are no JSON objects."""
        return sorted(key for key, record in self.records.items() if UNREADABLE in record)


def ledgers(api: Api, state: str = "") -> list[Entry]:
    """List the ledgers of all runs, oldest first, optionally of one state."""
    selector = f"{LEDGER}={state}" if state else LEDGER
    return sorted((entry_of(each) for each in api.items(ledgers_path(), labels=selector)), key=lambda e: e.created_at)


def ledger_of(api: Api, run: str) -> Entry | None:
    """Read one run's ledger, None when there is none."""
    found = api.find(f"{ledgers_path()}/chaos-gpu-run-{run}")
    return entry_of(found) if found else None


def entry_of(configmap: JsonObject) -> Entry:
    """Read a ledger's ConfigMap; a record that is no JSON is kept as text, never fatal: `recover` must go on."""
    meta = configmap["metadata"]
    labels = meta.get("labels") or {}
    created = datetime.fromisoformat(meta["creationTimestamp"].replace("Z", "+00:00"))
    records = {key: _parse(value) for key, value in (configmap.get("data") or {}).items()}
    run = labels.get(RUN) or meta["name"].removeprefix("chaos-gpu-run-")
    token = (meta.get("annotations") or {}).get(ours.TOKEN, "")
    return Entry(run, labels.get(LEDGER, ""), records, created, token)


def recent_faults(api: Api, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield what was injected in the last 24 h, from every ledger that is kept."""
    for entry in ledgers(api):
        for fault in entry.faults:
            if now - _moment(fault.get("at"), entry.created_at) < KEPT:
                yield fault


def caller(api: Api) -> Any:
    """Make the `call` through which the undo payload reaches the API: (status, object), OSError without an answer."""

    def call(
        method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[int, JsonObject]:
        where, _, text = path.partition("?")
        query = dict(parse_qsl(text))
        try:
            if method == WATCH:
                return 200, _next(api, where, query)
            return 200, api.request(method, where, query, body, content_type)
        except Forbidden as failure:
            raise OSError(failure.reason) from failure
        except ApiError as failure:
            return failure.status, {"message": failure.reason}
        except ApiUnavailable as failure:
            raise OSError(failure.reason) from failure

    return call


def _next(api: Api, path: str, query: dict[str, str]) -> JsonObject:
    """Return the next event of a watch, nothing where none came."""
    found: JsonObject = json.loads(next(api.lines(path, query, read_s=api.deadlines.read_s), b"{}"))
    return found


def utc() -> str:
    """Return the time now, UTC, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _moment(text: Any, otherwise: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return otherwise
    return found if found.tzinfo else otherwise


def _parse(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {UNREADABLE: text}
