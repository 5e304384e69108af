"""How a pod of ours ends: what it was, what it said last, whether it could undo its fault, whether it is gone."""

import json
import time
import urllib.parse
from typing import Any, Callable, Dict, List, Set, Tuple

NOT_UNDONE = 4
"""Exit code of an injector that could not undo its fault."""
SCAN_S = 20.0
GONE_S, LATE_S = 45.0, 3.0
"""Twice the longest grace of an injector, and more; and for what is asked after that."""
TRAINING_S = 1
"""The grace of a training's pod once its run is undone."""
WATCH = "WATCH"
"""A GET of which only the first line of the answer is waited for."""


def expect(status: int, found: Dict[str, Any], what: str) -> None:
    """Raise OSError unless the status is a success."""
    if status >= 300:
        raise OSError("cannot {}: HTTP {} {}".format(what, status, str(found.get("message", ""))[:200]))


def role_of(metadata: Dict[str, Any]) -> str:
    """Say what a pod of ours is."""
    return str((metadata.get("labels") or {}).get("chaos-gpu/role", "injector"))


def named(pod: Dict[str, Any]) -> str:
    """Say which pod of ours it is."""
    return "{} pod {}".format(role_of(pod["metadata"]), pod["metadata"]["name"])


def still_there(pod: Dict[str, Any]) -> str:
    """Say of a pod of ours that it was told to end in vain."""
    return f"{named(pod)} does not end: is its node lost?"


def selector_of(run: str, roles: str, fault: str = "") -> str:
    """Return the label selector of a run's pods in these roles, joined by commas, of one fault or of all."""
    return f"chaos-gpu/run={run},chaos-gpu/role in ({roles})" + (f",chaos-gpu/fault={fault}" if fault else "")


def end_trainings(call: Callable[..., Any], namespace: str, run: str, fault: str = "") -> Tuple[List[str], List[str]]:
    """Delete the pods of a run's trainings and see them gone. Returns (restored, open).

    Their Jobs are deleted already; that alone leaves them all the time that their manifest asks for, with their GPUs.
    Nobody waits any more for what they would save in it.
    """
    path, end = f"/api/v1/namespaces/{namespace}/pods", time.monotonic() + GONE_S
    query = "?labelSelector=" + urllib.parse.quote(selector_of(run, "training", fault))
    seen: Dict[str, Dict[str, Any]] = {}
    while True:
        status, found = call("GET", path + query)
        expect(status, found, "list the pods of the trainings")
        pods = {pod["metadata"]["uid"]: pod for pod in found.get("items") or ()}
        for uid, pod in pods.items():
            left_s = pod["metadata"].get("deletionGracePeriodSeconds")
            if left_s is None or left_s > TRAINING_S:
                options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}}
                call("DELETE", path + "/" + pod["metadata"]["name"], {**options, "gracePeriodSeconds": TRAINING_S})
        seen.update(pods)
        if not pods or time.monotonic() > end:
            break
        time.sleep(0.1)
    ended = [f"{named(pod)} ended" for uid, pod in seen.items() if uid not in pods]
    return ended, [still_there(pod) for pod in pods.values()]


def could_not_undo(pod: Dict[str, Any]) -> bool:
    """Say whether a pod is an injector that has ended with the exit code for that."""
    return role_of(pod["metadata"]) == "injector" and NOT_UNDONE in exit_codes(pod)


def exit_codes(pod: Dict[str, Any]) -> List[Any]:
    """Return those of a pod's containers that have ended."""
    states = [each.get("state") or {} for each in (pod.get("status") or {}).get("containerStatuses") or ()]
    return [state["terminated"].get("exitCode") for state in states if state.get("terminated")]


def last_states(
    call: Callable[..., Any], path: str, selector: str, version: str, wanted: Set[str], until_s: float
) -> Dict[str, Dict[str, Any]]:
    """Return pods that are gone, by UID, each as it was when it went; without those of which the server knows no more.

    A watch from a version of before they were deleted brings that however long ago it was: a look now and then may
    come too late.

    Args:
        call: reaches the API server; with WATCH it returns the next event, nothing after a second without one.
        path: of the list of pods.
        selector: by labels.
        version: of a list in which they were.
        wanted: their UIDs.
        until_s: when to give up, monotonic.
    """
    found: Dict[str, Dict[str, Any]] = {}
    while wanted - set(found) and time.monotonic() < until_s:
        query = {"labelSelector": selector, "watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
        status, event = call(WATCH, path + "?" + urllib.parse.urlencode(query))
        if status >= 300 or event.get("type") == "ERROR":
            break  # so old that the server has forgotten
        pod = event.get("object") or {"metadata": {}}
        version = pod["metadata"].get("resourceVersion", version)
        if event.get("type") == "DELETED":
            found[pod["metadata"]["uid"]] = pod
    return {uid: found[uid] for uid in wanted & set(found)}


def last_event(call: Callable[..., Tuple[int, Dict[str, Any]]], path: str) -> Dict[str, Any]:
    """Wait for a pod to end and return the last event of its log."""
    end = time.monotonic() + SCAN_S
    while time.monotonic() < end:
        status, pod = call("GET", path)
        expect(status, pod, "see the pod")
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return last_words(call, path)
        time.sleep(0.1)
    raise OSError(f"pod {path} did not end")


def last_words(call: Callable[..., Tuple[int, Dict[str, Any]]], path: str) -> Dict[str, Any]:
    """Return the last event of a pod's log."""
    status, log = call("GET", path + "/log")
    expect(status, log, "read the pod's log")
    return json.loads(log["text"].strip().splitlines()[-1]) if "text" in log else log
