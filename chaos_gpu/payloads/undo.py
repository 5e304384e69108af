"""Undo what a run changed, from its ledger: as data, idempotent, best effort over everything, one summary.

The runner, `chaos-gpu recover` and the in-cluster reverter Job all execute the ledger with these functions.
A `call` is `call(method, path, body=None, content_type=…) -> (status, object)`; it raises OSError when no answer came.
"""

import datetime
import json
import time
import urllib.parse
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from chaos_gpu.payloads.endings import (
    GONE_S,
    LATE_S,
    NOT_UNDONE,
    could_not_undo,
    end_trainings,
    exit_codes,
    expect,
    last_event,
    last_states,
    last_words,
    named,
    role_of,
    selector_of,
    still_there,
)
from chaos_gpu.payloads.reactions import CORDONED, describe, restoring_patch, trouble_of

Object = Dict[str, Any]
Call = Callable[..., Tuple[int, Object]]
Result = Tuple[List[str], List[str]]

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
LEDGER_LABEL = "chaos-gpu/ledger"
GO = "go"
PAGE = 200
UNEXPECTED = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""No answer, or one of an unexpected shape: one step of many fails, the others are still tried."""
SMALL_FLEET = 64


def utc() -> str:
    """Return the time now, UTC, microseconds."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="microseconds")


# --- the ledger ------------------------------------------------------------------------------------------------------


def ledger_path(namespace: str, run: str) -> str:
    """Where the run's ledger is kept."""
    return f"/api/v1/namespaces/{namespace}/configmaps/chaos-gpu-run-{run}"


def read_ledger(call: Call, namespace: str, run: str) -> Tuple[Optional[Object], str]:
    """Return (records by key, state), or (None, "") when there is no ledger."""
    status, found = call("GET", ledger_path(namespace, run))
    if status == 404:
        return None, ""
    expect(status, found, "read the ledger")
    records = {key: parse_record(value) for key, value in (found.get("data") or {}).items()}
    return records, found["metadata"].get("labels", {}).get(LEDGER_LABEL, "")


def parse_record(text: str) -> Object:
    """Read one record; what is no JSON object must not keep the others from being undone."""
    try:
        record = json.loads(text)
    except ValueError:
        record = None
    return record if isinstance(record, dict) else {"unreadable": text}


def write_record(call: Call, namespace: str, run: str, key: str, record: Object, state: str = "") -> None:
    """Write one record of the ledger; other keys stay as they are."""
    patch: Object = {"data": {key: json.dumps(record)}}
    if state:
        patch["metadata"] = {"labels": {LEDGER_LABEL: state}}
    status, found = call("PATCH", ledger_path(namespace, run), patch, MERGE_PATCH)
    expect(status, found, "write the ledger")


def records_of(records: Object, kind: str, fault: str = "") -> List[Tuple[str, Object]]:
    """Return [(key, record)] of one kind, newest first: undo runs backwards."""
    prefix = kind + "." + (fault + "." if fault and kind == "change" else fault)
    exact = kind != "change" and fault
    return [(k, records[k]) for k in sorted(records, reverse=True) if (k == prefix if exact else k.startswith(prefix))]


# --- undo ------------------------------------------------------------------------------------------------------------


def call_off(call: Call, namespace: str, run: str) -> Result:
    """Let no injector of the run start any more: each needs a key of the ledger, which is taken away here.

    Only then is the list of injectors to end complete: one that is on its way may arrive at any time.
    """
    status, found = call("PATCH", ledger_path(namespace, run), {"data": {GO: None}}, MERGE_PATCH)
    expect(status, found, "call the run off")
    return [], []


def undo(call: Call, namespace: str, run: str, fault: str = "", again: bool = False) -> Result:
    """Undo the changes of one fault, or of all, end what these ran and the injectors. Returns (restored, open).

    `again`: also try once more what was not ours to undo (it may have arrived since).
    """
    records, _ = read_ledger(call, namespace, run)
    restored: List[str] = []
    left: List[str] = []
    changes = records_of(records or {}, "change", fault)
    for key, record in changes:
        if "unreadable" in record:
            left.append(f"record {key} of the ledger cannot be read: what it undoes is not known")
            continue
        if record.get("state") in ("undone", "gone") or (record.get("state") == "foreign" and not again):
            continue
        good, bad = attempt(undo_change, call, namespace, run, key, record)
        restored, left = restored + good, left + bad
    ran = [end_trainings] if any(record.get("kind") == "delete" for _, record in changes) else []
    for step in [*ran, end_injectors]:  # the injector removes what the trainings leave
        good, bad = attempt(step, call, namespace, run, fault)
        restored, left = restored + good, left + bad
    told = [record for _, record in records_of(records or {}, "left", fault) if record.get("state") == "open"]
    return restored, left + [record["what"] for record in told if record["what"] not in left]


def attempt(step: Callable[..., Any], *arguments: Any) -> Result:
    """Do one step of many: what it could not do is said, and the next one is still tried."""
    try:
        return step(*arguments)  # type: ignore[no-any-return]
    except UNEXPECTED as error:
        return [], ["{}: {!r}".format(step.__name__.replace("_", " "), error)]


def end_injectors(call: Call, namespace: str, run: str, fault: str = "") -> Result:
    """Delete the run's pods on nodes and see them gone; each injector undoes its own fault on SIGTERM.

    Of one that could not, the exit code is learnt in any case, and the ledger keeps it: afterwards nothing tells.
    """
    selector = selector_of(run, "injector,reader", fault)
    path, version, end = f"/api/v1/namespaces/{namespace}/pods", "", time.monotonic() + GONE_S
    seen: Object = {}
    stuck: Dict[str, str] = {}  # UID → what is left of its fault, "" for nothing
    while True:
        status, found = call("GET", path + "?labelSelector=" + urllib.parse.quote(selector))
        expect(status, found, "list the injector pods")
        version = version or str((found.get("metadata") or {}).get("resourceVersion", ""))
        pods = {pod["metadata"]["uid"]: pod for pod in found.get("items") or ()}
        for uid, pod in pods.items():
            if uid not in stuck and exit_codes(pod):
                stuck[uid] = note_stuck(call, namespace, run, path, pod) if could_not_undo(pod) else ""
        for uid in set(pods) - set(seen):
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
            call("DELETE", path + "/" + pods[uid]["metadata"]["name"], options)
        seen.update(pods)
        if not pods or time.monotonic() > end:
            break
        time.sleep(0.05)
    injectors = {uid: pod for uid, pod in seen.items() if role_of(pod["metadata"]) == "injector"}
    unseen = set(injectors) - set(pods) - set(stuck)
    last = last_states(call, path, selector, version, unseen, max(end, time.monotonic() + LATE_S))
    for uid in unseen:
        known = uid in last and not could_not_undo(last[uid])
        stuck[uid] = "" if known else note_stuck(call, namespace, run, path, last.get(uid, injectors[uid]))
    alive = [still_there(pod) for pod in pods.values()]
    ended = [f"{named(pod)} ended" for uid, pod in seen.items() if uid not in pods and not stuck.get(uid)]
    return ended, [text for text in stuck.values() if text] + alive


def note_stuck(call: Call, namespace: str, run: str, path: str, pod: Object) -> str:
    """Note in the ledger that an injector could not undo its fault, and what it said of it. Returns the text."""
    meta = pod["metadata"]
    try:
        said = str(last_words(call, path + "/" + meta["name"]).get("reason", ""))[:500]
    except UNEXPECTED:  # its log may be gone already
        said = ""
    text = "injector pod {} could not undo its fault (exit {}): {}".format(meta["name"], NOT_UNDONE, said)
    if not could_not_undo(pod):
        text = "injector pod {} is gone, and nothing says whether it undid its fault".format(meta["name"])
    key = "left." + str((meta.get("labels") or {}).get("chaos-gpu/fault", meta["name"]))
    attempt(write_record, call, namespace, run, key, {"what": text, "state": "open", "at": utc()})
    return text


def undo_change(call: Call, namespace: str, run: str, key: str, record: Object) -> Result:
    """Undo one change, if the object is still the same and the value still ours."""
    if record["kind"] == "delete":
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}  # its pods go too
        known = {"preconditions": {"uid": record["uid"]}} if record["uid"] else {}  # else its name, which is the run's
        status, found = call("DELETE", record["path"], {**options, **known})
    else:
        patch = [{"op": "test", "path": "/metadata/uid", "value": record["uid"]}] + record["undo"]
        status, found = patch_json(call, record["path"], patch)
    if status == 404:
        return close_change(call, namespace, run, key, record, "gone", "{}: the object is gone".format(record["what"]))
    if status == 422 or (status == 409 and record["kind"] == "delete"):
        note = "{}: is not (any more) as we made it, left alone".format(record["what"])
        return close_change(call, namespace, run, key, record, "foreign", note)
    expect(status, found, "undo {}".format(record["what"]))
    return close_change(call, namespace, run, key, record, "undone", "{}: undone".format(record["what"]))


def patch_json(call: Call, path: str, patch: List[Object]) -> Tuple[int, Object]:
    """Send a JSON patch; one that met a change by someone else (409) has not been tested yet, so it is sent again."""
    for _ in range(5):
        status, found = call("PATCH", path, patch, JSON_PATCH)
        if status != 409:
            break
        time.sleep(0.1)
    return status, found


def close_change(call: Call, namespace: str, run: str, key: str, record: Object, state: str, note: str) -> Result:
    """Note in the ledger how a change ended."""
    write_record(call, namespace, run, key, {**record, "state": state, "note": note, "ended_at": utc()})
    return [note], []


# --- consequences: the platform's own reaction -----------------------------------------------------------------------


def settle(
    call: Call,
    namespace: str,
    run: str,
    fault: str = "",
    elapsed_s: float = 0.0,
    seen: Sequence[str] = (),
    pause: Callable[[float], None] = time.sleep,
) -> Result:
    """See the platform's reaction to one fault, or to all, through to its end. Returns (restored, open).

    Args:
        call: reaches the API server.
        namespace: where the ledger is.
        run: the run's id.
        fault: only this one; "" for all.
        elapsed_s: time since the fault landed that already counts towards the reaction window.
        seen: reactions that were seen already, as text.
        pause: sleeps between two looks; the runner's raises when it must stop.
    """
    records, _ = read_ledger(call, namespace, run)
    restored: List[str] = []
    left: List[str] = []
    for key, record in reversed(records_of(records or {}, "consequence", fault)):
        if record.get("state") == "settled":
            continue
        if "unreadable" in record:
            left.append(f"record {key} of the ledger cannot be read: what to wait for is not known")
            continue
        record = {**record, "seen": list(record.get("seen", [])) + list(seen)}
        good, bad = attempt(settle_one, call, namespace, run, key, record, elapsed_s, pause)
        restored, left = restored + good, left + bad
    return restored, left


def settle_one(
    call: Call, namespace: str, run: str, key: str, record: Object, elapsed_s: float, pause: Callable[[float], None]
) -> Result:
    """Wait for the reaction and for its end; restore the node ourselves only when all says that it is ours."""
    react_by = time.monotonic() + max(0.0, record["reaction_s"] - elapsed_s)
    return_by = time.monotonic() if record.get("state") == "open" else None  # open: all windows have passed before
    seen = record["seen"]
    while True:
        troubles, pace_s = look(call, record)
        now = time.monotonic()
        if troubles and return_by is None:
            return_by = now + record["uncordon_s"]
        seen += [text for text in (describe(trouble) for trouble in troubles) if text not in seen]
        record = {**record, "seen": seen}
        over = any(CORDONED in text for text in seen)  # a condition alone may still bring a cordon
        if not troubles and (over or now >= react_by):
            how = "the platform took it back: " + "; ".join(seen) if seen else "no reaction of the platform"
            return close_consequence(call, namespace, run, key, record, how)
        if return_by is not None and troubles and now >= return_by:
            return restore_all(call, namespace, run, key, record, troubles)
        pause(pace_s)


def look(call: Call, record: Object) -> Tuple[List[Object], float]:
    """List what the platform did on any GPU node because of our record: ([trouble], seconds to the next look)."""
    troubles: List[Object] = []
    count = 0
    for page in node_pages(call, record["selector"]):
        count += len(page)
        troubles += [trouble for trouble in (trouble_of(node, record) for node in page) if trouble]
    return troubles, 0.1 if count <= SMALL_FLEET else 2.0


def node_pages(call: Call, selector: str) -> Iterator[List[Object]]:
    """List nodes page by page: a fleet of thousands does not fit into a small pod's memory at once."""
    query = {"labelSelector": selector, "limit": str(PAGE)}
    while True:
        status, found = call("GET", "/api/v1/nodes?" + urllib.parse.urlencode(query))
        expect(status, found, "list the GPU nodes")
        yield found.get("items") or []
        token = (found.get("metadata") or {}).get("continue")
        if not token:
            return
        query["continue"] = token


def restore_all(call: Call, namespace: str, run: str, key: str, record: Object, troubles: List[Object]) -> Result:
    """The platform did not take its reaction back in time: return the nodes, where that is surely right."""
    foreign = foreign_records(call, namespace, record)
    restored: List[str] = []
    left: List[str] = []
    for trouble in troubles:
        good, bad = attempt(restore_node, call, record, trouble, foreign)
        restored, left = restored + good, left + bad
    if left:
        write_record(call, namespace, run, key, {**record, "state": "open", "how": "; ".join(left)})
        return restored, left
    how = "restored by us after {:g} s: {}".format(record["uncordon_s"], "; ".join(restored))
    close_consequence(call, namespace, run, key, record, how)
    return restored, left


def restore_node(call: Call, record: Object, trouble: Object, foreign: Optional[List[str]]) -> Result:
    """Uncordon one node whose cordon names our record; what the platform itself must clear is left and said."""
    name = trouble["node"]
    if foreign is None:
        return [], [f"{describe(trouble)}: left as it is, its kernel log could not be read for other fault records"]
    if foreign:
        return [], [f"{name}: left as it is, a fault record that is not ours came since: {foreign[0][:200]}"]
    if name != record["node"]:
        return [], [f"{describe(trouble)}: left as it is, only the target is known to have been schedulable before"]
    if not record["schedulable_before"]:
        return [], [f"{name}: left as it is, it was not schedulable before the run"]
    restored: List[str] = []
    if trouble["cordoned"] or trouble["keys"]:
        status, found = patch_json(call, "/api/v1/nodes/" + name, restoring_patch(trouble))
        if status == 422:
            return [], [f"{describe(trouble)}: changed by someone else meanwhile, left alone"]
        expect(status, found, f"restore node {name}")
        restored.append(f"{name}: uncordoned, its cordon named our record")
    left = [f"node {name}: cordoned, and nothing says that our record was why; left alone"] * trouble["unexplained"]
    left += [
        f"node {name}: condition {condition} still names our record; only its detector can clear it"
        for condition in trouble["conditions"]
    ]
    return restored, left


def foreign_records(call: Call, namespace: str, record: Object) -> Optional[List[str]]:
    """Read the node's kernel log by a pod for GPU records since ours that are not ours; None if it cannot be read."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    manifest = record.get("scan")
    if not manifest:
        return None
    path = pods + "/" + manifest["metadata"]["name"]
    at_once = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    try:
        status, found = call("POST", pods, manifest)
        if status == 409:  # an earlier reader's log may be older than what we look for
            attempt(call, "DELETE", path, at_once)
            status, found = call("POST", pods, manifest)
        expect(status, found, "start the kernel log reader")
        event = last_event(call, path)
        return list(event["foreign"]) if event.get("event") == "reverted" else None
    except UNEXPECTED:
        return None
    finally:
        attempt(call, "DELETE", path, at_once)


def close_consequence(call: Call, namespace: str, run: str, key: str, record: Object, how: str) -> Result:
    """Note in the ledger how a consequence ended."""
    write_record(call, namespace, run, key, {**record, "state": "settled", "how": how, "settled_at": utc()})
    return ["consequence of {}: {}".format(record["fault"], how)], []


# --- the end of a run ------------------------------------------------------------------------------------------------


def close_ledger(call: Call, namespace: str, run: str, by: str, restored: List[str], left: List[str]) -> None:
    """Close the ledger, or mark it stuck with what remains."""
    record = {"by": by, "at": utc(), "restored": restored, "open": left}
    write_record(call, namespace, run, "recovery", record, "stuck" if left else "closed")


def recover(call: Call, namespace: str, run: str, by: str) -> Result:
    """Undo and settle everything of a run, then close its ledger. Returns (restored, open).

    What an injector could not undo keeps a ledger from being closed once: who comes again has read it.
    """
    call_off(call, namespace, run)
    records, state = read_ledger(call, namespace, run)
    for key, record in records_of(records or {}, "left") if state == "stuck" else ():
        write_record(call, namespace, run, key, {**record, "state": "told"})
    restored, left = undo(call, namespace, run)
    settled, unsettled = settle(call, namespace, run)
    restored, left = restored + settled, left + unsettled
    close_ledger(call, namespace, run, by, restored, left)
    return restored, left
