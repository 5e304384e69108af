"""The run's heartbeat: renews the Lease that the reverter watches, and hears when someone aborts the run."""

import logging
import os
import signal
import threading
import time
from typing import Any

from chaos_gpu.cluster.client import MERGE_PATCH
from chaos_gpu.cluster.watch import watch_query
from chaos_gpu.errors import ApiError, ApiUnavailable, Conflict, Gone, NotFound, Refused
from chaos_gpu.faults import ours
from chaos_gpu.faults.ledger import CLOSED, ledger_of, utc
from chaos_gpu.faults.names import LEASE, NAMESPACE, leases_path, ledgers_path
from chaos_gpu.faults.run import Run

logger = logging.getLogger("chaostoolkit.gpu")


class Keeper:
    """Holds the Lease from arming to closing, in one daemon thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._version = ""
        self._valid_until = 0.0
        self._renewing = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="chaos-gpu-keeper", daemon=True)

    def make_way(self) -> None:
        """Remove a Lease that a dead run has left. Raises Refused when another run is active.

        A run that is just arming has no ledger yet, so its Lease is watched for twice its duration: only a living
        runner renews it.
        """
        api, path = self._run.api, f"{leases_path()}/{LEASE}"
        lease = api.find(path)
        if lease is None or lease["spec"].get("holderIdentity") == self._run.id:
            return
        holder = str(lease["spec"].get("holderIdentity", "")).split(".")[0]
        entry = ledger_of(api, holder)
        if (entry and entry.state != CLOSED) or (entry is None and not self._stale(lease)):
            raise _active(holder)
        api.delete(path, uid=lease["metadata"]["uid"])

    def acquire(self) -> None:
        """Take the Lease; one run at a time. Raises Refused when another run was faster."""
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": NAMESPACE},
            "spec": self._spec(),
        }
        asked_at = time.monotonic()
        try:
            lease = ours.create(self._run.api, leases_path(), body, self._run.ledger.token)
        except Conflict:
            found = self._run.api.find(f"{leases_path()}/{LEASE}") or {"spec": self._spec()}
            raise _active(str(found["spec"].get("holderIdentity", ""))) from None
        self._renewed(lease, asked_at)

    def confirm(self) -> None:
        """See that the Lease is still ours, or leave `run.lost`; costs nothing while the last renewal holds."""
        with self._renewing:
            if self._version and self._valid_until < time.monotonic() and not self._run.closing.is_set():
                self._renew()

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def release(self) -> None:
        """Let go of the Lease, if it is still ours."""
        self._run.closing.set()
        lease = self._run.api.find(f"{leases_path()}/{LEASE}")
        holds = lease and lease["spec"].get("holderIdentity") == self._run.id
        if lease and holds and ours.bears(lease, self._run.ledger.token):
            self._run.api.delete(f"{leases_path()}/{LEASE}", uid=lease["metadata"]["uid"])

    def _stale(self, lease: dict[str, Any]) -> bool:
        seconds = 2 * float(lease["spec"].get("leaseDurationSeconds") or 15)
        time.sleep(seconds)
        again = self._run.api.find(f"{leases_path()}/{LEASE}")
        return again is None or again["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"]

    def _spec(self) -> dict[str, Any]:
        seconds = max(1, round(self._run.settings.lease_s))
        return {
            "holderIdentity": self._run.id,
            "leaseDurationSeconds": seconds,
            "renewTime": utc().replace("+00:00", "Z"),
        }

    def _renewed(self, lease: dict[str, Any], asked_at: float) -> None:
        self._version = lease["metadata"]["resourceVersion"]
        self._valid_until = asked_at + self._run.settings.lease_s

    def _keep(self) -> None:
        version = ""
        while not self._run.closing.is_set() and not self._run.lost:
            version = self._listen(version, self._run.settings.lease_s / 3)
            with self._renewing:
                if not self._run.closing.is_set():
                    self._renew()

    def _renew(self) -> None:
        asked_at = time.monotonic()
        patch = {"metadata": {"resourceVersion": self._version}, "spec": self._spec()}
        path = f"{leases_path()}/{LEASE}"
        limit_s = max(1.0, self._valid_until - asked_at)
        try:
            lease = self._run.api.request("PATCH", path, body=patch, content_type=MERGE_PATCH, deadline_s=limit_s)
            self._renewed(lease, asked_at)
        except (Conflict, NotFound) as failure:
            self._adopt_or_lose(path, asked_at, failure.reason)
        except (ApiError, ApiUnavailable) as failure:
            if time.monotonic() >= self._valid_until:
                self._lose(f"its Lease could not be renewed ({failure.reason})")

    def _adopt_or_lose(self, path: str, asked_at: float, reason: str) -> None:
        """Changed since we saw it: by our own renewal, the answer of which got lost, or by the reverter."""
        try:
            lease = self._run.api.find(path)
        except (ApiError, ApiUnavailable):
            return  # asked again at the next renewal
        if lease and lease["spec"].get("holderIdentity") == self._run.id:
            self._renewed(lease, asked_at)
        else:
            self._lose(f"its Lease was taken over ({reason})")

    def _lose(self, why: str) -> None:
        if not self._run.closing.is_set():
            self._run.lost = why
            logger.error("run %s: %s; the reverter undoes it", self._run.id, why)
            self._stop("the loss of its Lease")

    def _listen(self, version: str, seconds: float) -> str:
        """Watch the ledger for the abort key for some seconds. Returns the version seen last."""
        end = time.monotonic() + seconds
        fields = f"metadata.name=chaos-gpu-run-{self._run.id}"
        try:
            if not version:
                page = self._run.api.get(ledgers_path(), {"fieldSelector": fields})
                version = page["metadata"]["resourceVersion"]
                self._look(*(page.get("items") or ()))
            left = max(0.05, end - time.monotonic())
            for event in self._run.api.watch(ledgers_path(), watch_query(version, fields=fields), read_s=left):
                version = event["object"]["metadata"]["resourceVersion"]
                self._look(event["object"])
                if time.monotonic() > end:
                    break
        except Gone:
            return ""
        except (ApiError, ApiUnavailable):  # silence is the usual end of it
            self._run.closing.wait(max(0.0, end - time.monotonic()))
        return version

    def _look(self, *ledgers: dict[str, Any]) -> None:
        if self._run.signal or not any("abort" in (each.get("data") or {}) for each in ledgers):
            return
        logger.warning("run %s was aborted", self._run.id)
        self._stop("abort")

    def _stop(self, by: str) -> None:
        """Interrupt whatever the run is waiting for, as a signal does; the guard sees to the rest."""
        self._run.signal = self._run.signal or by
        os.kill(os.getpid(), signal.SIGTERM)


def _active(run: str) -> Refused:
    return Refused(f"run {run} is active", remedy=f"wait for it, or: chaos-gpu abort {run} (chaos-gpu status {run})")
