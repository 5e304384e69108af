"""The dead-man of a run: a Job that undoes the run from its ledger once the runner's Lease has lapsed.

Spec (JSON): run, namespace, lease (its name), lease_s (seconds), ledger_wait_s (end when no ledger came by then),
rights (what it must be allowed, as a SelfSubjectAccessReview's `resourceAttributes`).
Sent into its pod as one file together with `undo.py`.
"""

import http.client
import json
import os
import ssl
import sys
import time
import urllib.parse
from pathlib import Path
from typing import Any, List, Tuple

from chaos_gpu.payloads.endings import WATCH, expect
from chaos_gpu.payloads.undo import MERGE_PATCH, Call, Object, Result, ledger_path, read_ledger, recover, utc
from chaos_gpu.payloads.wire import encoded

ACCOUNT = Path(os.environ.get("SERVICEACCOUNT_DIR", "/var/run/secrets/kubernetes.io/serviceaccount"))


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def say(event: str, **facts: Any) -> None:
    """Print one event; a reader follows this log line by line."""
    print(json.dumps({"event": event, "at": utc(), **facts}), flush=True)


class Connection:
    """The API server as seen from inside a pod, by the pod's own ServiceAccount."""

    def __init__(self) -> None:
        """Read address and authority from the environment that every pod has."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        self.url = urllib.parse.urlsplit(os.environ.get("KUBERNETES_API_URL") or f"https://{host}:{port}")
        authority = ACCOUNT / "ca.crt"
        self.tls = ssl.create_default_context(cafile=str(authority)) if self.url.scheme == "https" else None

    def __call__(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Tuple[int, Object]:
        """Send one request; raises OSError when no answer came."""
        token = (ACCOUNT / "token").read_text().strip()  # read each time: the kubelet renews it
        headers = {"Authorization": "Bearer " + token, "Content-Type": content_type}
        link: http.client.HTTPConnection
        if self.tls:
            link = http.client.HTTPSConnection(self.url.netloc, timeout=10, context=self.tls)
        else:
            link = http.client.HTTPConnection(self.url.netloc, timeout=10)
        try:
            data = None if body is None else encoded(body)
            link.request("GET" if method == WATCH else method, self.url.path.rstrip("/") + path, data, headers)
            answer = link.getresponse()
            return answer.status, parse(answer.readline() if method == WATCH else answer.read())
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            link.close()


def parse(data: bytes) -> Object:
    """Return the JSON object, or the text of a log as {"text": …}."""
    try:
        value = json.loads(data)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"text": data.decode(errors="replace")}


def steadily(call: Call) -> Call:
    """Make a call that rides out what passes: no answer, 429, 5xx. Gives up after about 30 s."""

    def patient(method: str, path: str, body: Any = None, content_type: str = "application/json") -> Tuple[int, Object]:
        end, wait = time.monotonic() + 30, 0.1
        while True:
            try:
                status, found = call(method, path, body, content_type)
                if status != 429 and status < 500:
                    return status, found
                error = OSError(f"HTTP {status}")
            except OSError as failure:
                error = failure
            if time.monotonic() > end:
                raise error
            time.sleep(wait)
            wait = min(2.0, wait * 2)

    return patient


def missing_rights(call: Call, rights: List[Object]) -> List[str]:
    """List what this account may not do. A reverter without its rights is alive, and could only look on."""
    missing = []
    for right in rights:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        status, answer = call("POST", REVIEWS, {**review, "spec": {"resourceAttributes": right}})
        if status >= 300 or not (answer.get("status") or {}).get("allowed"):
            kind = "/".join(filter(None, (right["resource"], right.get("subresource"))))
            missing.append("{} {}".format(right["verb"], kind))
    return missing


def await_lapse(call: Call, spec: Object) -> bool:
    """Wait until the run's Lease has lapsed; False when the run closed its ledger itself, or never opened one.

    Only changes of the Lease seen on our own monotonic clock count: clocks of two machines are never compared.
    """
    path, run = lease_path(spec), (spec["namespace"], spec["run"])
    last, changed_at = None, time.monotonic()
    while True:
        try:
            records, state = read_ledger(call, *run)
            status, lease = call("GET", path)
            ours = status == 200 and lease["spec"].get("holderIdentity") == spec["run"]
            if ours and lease["metadata"]["resourceVersion"] != last:
                last, changed_at = lease["metadata"]["resourceVersion"], time.monotonic()
            silent_s = time.monotonic() - changed_at
            if state == "closed" or (records is None and silent_s > spec["ledger_wait_s"] and bar(call, *run)):
                return False
            lapsed = records is not None and silent_s > spec["lease_s"]
            if lapsed and (not ours or take_over(call, path, lease)):
                return True
        except OSError as error:  # what we cannot see, we cannot call lapsed: the count starts anew
            say("holding", reason=f"the API server does not answer: {error}")
            changed_at = time.monotonic()
        time.sleep(min(1.0, spec["lease_s"] / 10))


def bar(call: Call, namespace: str, run: str) -> bool:
    """Take the place of the ledger that never came, so that no run begins without us. False if it came just now."""
    where, _, name = ledger_path(namespace, run).rpartition("/")
    labels = {"chaos-gpu/run": run, "chaos-gpu/ledger": "closed", "app.kubernetes.io/managed-by": "chaos-gpu"}
    record = {"by": "reverter", "at": utc(), "restored": [], "open": []}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
    status, found = call("POST", where, {**body, "data": {"recovery": json.dumps(record)}})
    if status != 409:
        expect(status, found, "bar the run")
    return status != 409


def recover_steadily(call: Call, spec: Object) -> Result:
    """Undo the run; while the API server does not answer, keep trying: nobody else will."""
    while True:
        try:
            return recover(call, spec["namespace"], spec["run"], "reverter")
        except OSError as error:
            say("holding", reason=str(error))
            time.sleep(1)


def lease_path(spec: Object) -> str:
    """Where the Lease is that the runner renews."""
    return "/apis/coordination.k8s.io/v1/namespaces/{}/leases/{}".format(spec["namespace"], spec["lease"])


def take_over(call: Call, path: str, lease: Object) -> bool:
    """Fence the runner off: once the Lease has another holder, its next renewal fails and it stops."""
    patch = {
        "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
        "spec": {"holderIdentity": lease["spec"]["holderIdentity"] + ".reverter"},
    }
    status, _ = call("PATCH", path, patch, MERGE_PATCH)
    return status == 200


def drop_lease(call: Call, spec: Object) -> None:
    """Remove the run's Lease, so that another run may start."""
    status, lease = call("GET", lease_path(spec))
    if status == 200 and lease["spec"].get("holderIdentity", "").split(".")[0] == spec["run"]:
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": lease["metadata"]["uid"]}}
        call("DELETE", lease_path(spec), options)


def main(argv: List[str]) -> int:
    """Watch over one run.

    Exit 0: nothing (more) to undo; 3: it may not do its work, and has not begun; 4: something remains, the ledger says
    what.
    """
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    call = steadily(Connection())
    missing = missing_rights(call, spec.get("rights", []))
    if missing:
        say("failed", run=spec["run"], reason="it may not " + ", ".join(missing))
        return 3
    say("started", run=spec["run"])
    left: List[str] = []
    if await_lapse(call, spec):
        say("holding", reason="the Lease has lapsed: undoing the run")
        restored, left = recover_steadily(call, spec)
        say("failed" if left else "reverted", restored=restored, open=left)
    drop_lease(call, spec)
    return 4 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
