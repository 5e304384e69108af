"""What became of a run that is over, or that nobody can ask any more: read from its ledger."""

import time

from chaos_gpu.cluster.client import MERGE_PATCH, Api
from chaos_gpu.errors import ApiUnavailable, NotFound, NotRecovered, Refused
from chaos_gpu.faults.ledger import CLOSED, OPEN, STUCK, Entry, caller, ledger_of, ledgers, utc
from chaos_gpu.faults.names import LEASE, NAMESPACE, leases_path, ledgers_path
from chaos_gpu.faults.settings import Settings
from chaos_gpu.payloads import undo

ACTIVE, ABORTING = "active", "aborting"
WINDOWS = ("reaction_s", "uncordon_s")
"""Of a foreseen consequence: how long it is waited for, and for its end."""


def state_of(entry: Entry) -> str:
    """Say in one word how it stands with a run: `active`, `aborting`, `closed` or `stuck`.

    A ledger that is open is that of a run that is active: it runs, or is still being undone.
    """
    if entry.state != OPEN:
        return entry.state
    return ABORTING if "abort" in entry.records else ACTIVE


def await_closed(api: Api, run: str, settings: Settings) -> Entry | None:
    """Wait until a run's ledger is closed or stuck, as long as its reverter may take; None when it has no ledger.

    Raises: ApiUnavailable when the API server did not answer up to the end.
    """
    limit_s = settings.lease_s + settings.reaction_s + settings.uncordon_s + settings.settle_s
    end = time.monotonic() + limit_s
    while True:
        try:
            entry = ledger_of(api, run)
        except ApiUnavailable:
            if time.monotonic() >= end:
                raise
            continue  # each try takes its own time
        if entry is None or entry.state in (CLOSED, STUCK) or time.monotonic() >= end:
            return entry
        time.sleep(0.5)


def abort(api: Api, run: str) -> float:
    """Ask a run to stop now: its guard sees the key within a second.

    Returns: for how long, seconds, it may see reactions of the platform through before it ends; 0 where none may come.

    Raises: Refused when it is not active.
    """
    entry = ledger_of(api, run)
    if entry is None or entry.state != OPEN:
        raise Refused(f"run {run} is not active", remedy="chaos-gpu status lists the runs")
    patch = {"data": {"abort": f'{{"at": "{utc()}"}}'}}
    api.patch(f"{ledgers_path()}/chaos-gpu-run-{run}", patch)
    return unsettled_s(entry)


def unsettled_s(entry: Entry) -> float:
    """Say for how long, seconds, reactions to a run's faults that are not settled yet may still be waited for."""
    foreseen = (record for key, record in entry.records.items() if key.startswith("consequence."))
    windows = [each.get(key) for each in foreseen if each.get("state") != "settled" for key in WINDOWS]
    return float(sum(each for each in windows if isinstance(each, int | float)))


def recover(api: Api, run: str) -> Entry:
    """Replay a run's ledger: undo, settle, close.

    Raises: Refused without a ledger or while the run is alive, NotRecovered when the API server gave up on us.
    """
    entry = ledger_of(api, run)
    if entry is None:
        raise Refused(f"run {run} has no ledger", remedy="chaos-gpu status lists the runs")
    if entry.state == CLOSED:
        return entry
    if is_alive(api, run):
        raise Refused(f"run {run} is active: its own runner undoes it", remedy=f"chaos-gpu abort {run}")
    fence(api, run)
    try:
        undo.recover(caller(api), NAMESPACE, run, "recover")
    except OSError as failure:
        raise NotRecovered(
            f"run {run}: {failure}", remedy=f"chaos-gpu recover {run}, once the API answers"
        ) from failure
    return ledger_of(api, run) or entry


def is_alive(api: Api, run: str) -> bool:
    """Watch the Lease for as long as it lasts: a living runner renews it. No two clocks are compared."""
    path = f"{leases_path()}/{LEASE}"
    lease = api.find(path)
    if lease is None or lease["spec"].get("holderIdentity") != run:
        return False
    version = lease["metadata"]["resourceVersion"]
    end = time.monotonic() + float(lease["spec"].get("leaseDurationSeconds") or 15)
    while time.monotonic() < end:
        time.sleep(0.2)
        lease = api.find(path)
        if lease is None or lease["spec"].get("holderIdentity") != run:
            return False
        if lease["metadata"]["resourceVersion"] != version:
            return True
    return False


def fence(api: Api, run: str) -> None:
    """Take the Lease from a runner that may only be asleep, so that it stops when it wakes up."""
    path = f"{leases_path()}/{LEASE}"
    lease = api.find(path)
    if lease and str(lease["spec"].get("holderIdentity", "")).split(".")[0] == run:
        api.patch(path, {"spec": {"holderIdentity": f"{run}.recover"}}, MERGE_PATCH)
        api.delete(path, uid=lease["metadata"]["uid"])


def prune(api: Api, older_than_s: float) -> list[str]:
    """Delete closed ledgers that no budget needs any more. Returns the run ids."""
    now, gone = time.time(), []
    for entry in ledgers(api, CLOSED):
        if now - entry.created_at.timestamp() > older_than_s:
            try:
                api.request("DELETE", f"{ledgers_path()}/chaos-gpu-run-{entry.run}")
            except NotFound:
                continue
            gone.append(entry.run)
    return gone
