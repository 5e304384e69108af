"""The platform's detectors. gpu-health-agent takes a node out of service while a fault in its kernel log matters.

One process per node, run by a DaemonSet. A fatal Xid sets the node condition `GpuXidError`, cordons the node and says
in the annotation `gpu-health.lab/cordoned-by` why; one second after the later of last record and cordon it takes all of
that back, but never a cordon that is not its own, nor one that the platform's policy says another returns
(`returned_by`). An application Xid becomes an Event. It acts only on GPUs of its own node, so it also works where
several nodes share one kernel log. It trusts records from its own start on, as a reader that seeks to the end of the
log would, unless the platform file says `replays_log`. Records of one fault that come together are one Event.

gpu-journal-watch is the same program with AGENT_ROLE=journal: it reads what the journal shows, sets the condition
`GpuXidInJournal` and takes it back, and never cordons.

Environment: NODE_NAME; KMSG_FILE_PATH (/dev/kmsg), NVIDIA_PROC_PATH (/proc/driver/nvidia), LAB_PLATFORM_FILE (policy
and planted defects, read again when it changes), KUBERNETES_API_URL or KUBERNETES_SERVICE_HOST/PORT,
SERVICEACCOUNT_DIR. On stdout: one JSON object per line and event, with UTC and CLOCK_MONOTONIC in µs. Stdlib only;
`agent_source` in `manifests` makes one file of this, `records` and `rules`.
"""

import json
import os
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

if os.environ.get("KUBERNETES_API_URL", "").startswith("http:"):
    sys.modules["ssl"] = None  # type: ignore[assignment] # a quarter of the start-up time, and not needed then
import http.client

from chaos_gpu.lab.platform.records import KernelLog, Record, Xid, gpus_of_node, own_start_us, read_journal, read_kernel
from chaos_gpu.lab.platform.rules import Policy
from chaos_gpu.lab.platform.wire import encoded

POLL_S = 0.004
RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
BURST_US = 50_000

Json = dict[str, Any]


class Role(NamedTuple):
    """Which of the detectors this process is."""

    name: str
    component: str
    condition: str
    annotation: str
    """In which it says why it cordoned; "" for one that does not cordon."""
    read: Callable[[Record, dict[str, str]], Xid | None]


ROLES = {
    "kernel": Role("gpu-health-agent", "detector", "GpuXidError", "gpu-health.lab/cordoned-by", read_kernel),
    "journal": Role("gpu-journal-watch", "journal", "GpuXidInJournal", "", read_journal),
}


def say(event: str, **facts: Any) -> None:
    """Write one line of the agent's own log."""
    utc = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(utc)) + f".{int(utc % 1 * 1e6):06d}Z"
    line = {"event": event, "at": stamp, "monotonic_us": time.monotonic_ns() // 1000, **facts}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def rfc3339() -> str:
    """Return the time now as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


class Api:
    """The API server, as this pod's ServiceAccount; one connection, opened again when it breaks."""

    def __init__(self) -> None:
        self._account = Path(os.environ.get("SERVICEACCOUNT_DIR", "/var/run/secrets/kubernetes.io/serviceaccount"))
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._url = urllib.parse.urlsplit(os.environ.get("KUBERNETES_API_URL") or f"https://{host}:{port}")
        self._connection: http.client.HTTPConnection | None = None

    def _connect(self) -> http.client.HTTPConnection:
        address, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(address, port, timeout=5)
        import ssl

        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        return http.client.HTTPSConnection(address, port, timeout=5, context=context)

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Json:
        """Send one request.

        Raises:
            Refused: the server said no.
            OSError, http.client.HTTPException: no answer.
        """
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind, "Accept": "application/json"}
        data = None if body is None else encoded(body)
        connection = self._connection = self._connection or self._connect()
        try:
            connection.request(method, self._url.path.rstrip("/") + path, data, headers)
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._connection = None
            raise
        if response.status >= 400:
            raise Refused(response.status, raw[:300].decode(errors="replace"))
        return dict(json.loads(raw))

    def node(self, name: str, patch: Any = None, kind: str = "") -> Json:
        """Return a node, or patch it; `name` may end in "/status"."""
        if patch is None:
            return self.request("GET", f"/api/v1/nodes/{name}")
        return self.request("PATCH", f"/api/v1/nodes/{name}", patch, f"application/{kind}-patch+json")


class Incident:
    """One node out of service: what was done about it, and when it may come back."""

    def __init__(self, xid: Xid, due: float, cordoned_node: str) -> None:
        self.xid = xid
        self.due = due
        self.cordoned_node = cordoned_node
        self.last_seen = time.monotonic()
        self.step = "condition"
        self.note = ""
        self.failures = 0


class Agent:
    """Reads records, and takes every incident step by step; a step that fails is tried again."""

    def __init__(self, role: Role, node: str, api: Api, policy: Policy, gpus: dict[str, str]) -> None:
        self._role, self._node, self._api, self._policy, self._gpus = role, node, api, policy, gpus
        self._incident: Incident | None = None
        self._events: list[tuple[float, Xid]] = []
        self._fatal_seen = 0
        self._told_us: dict[tuple[int, str], int] = {}

    def _own_note(self, node: Json) -> str:
        """Return this detector's annotation on a node, or ""."""
        note = str((node["metadata"].get("annotations") or {}).get(self._role.annotation, ""))
        return note if f'"detector": "{self._role.name}"' in note else ""

    def resume(self) -> None:
        """Take over what an earlier agent on this node has left."""
        node = self._api.node(self._node)
        note = self._own_note(node)
        conditions = node.get("status", {}).get("conditions", [])
        if note or any(c["type"] == self._role.condition and c["status"] == "True" for c in conditions):
            xid = Xid(Record(0, 0, "taken over"), 0, "", "")
            self._incident = Incident(xid, time.monotonic() + self._quiet_s(), self._node)
            self._incident.step, self._incident.note = "healthy", note
            say("resumed", note=note)

    def see(self, record: Record) -> None:
        """Take note of a record."""
        xid = self._role.read(record, self._gpus)
        if xid is None:
            return
        say("record", seq=record.seq, usec=record.usec, code=xid.code, pci=xid.pci, text=record.text)
        self._policy.refresh()
        if self._policy.overlooks(xid):
            return
        if not self._policy.is_fatal(xid):
            self._take_down(xid)
            return
        self._fatal_seen += 1
        if self._policy.has("misses-every-second") and self._fatal_seen % 2 == 0:
            return
        self._open(xid)

    def _take_down(self, xid: Xid) -> None:
        """Report it as an Event, unless it is a further record of a burst."""
        before_us = self._told_us.get((xid.code, xid.pci))
        self._told_us[xid.code, xid.pci] = xid.record.usec
        if before_us is None or xid.record.usec - before_us > BURST_US:
            self._events.append((time.monotonic(), xid))

    def _open(self, xid: Xid) -> None:
        incident = self._incident
        known = incident.xid.record.text if incident and incident.step in ("condition", "cordon", "hold") else None
        if incident and known == xid.record.text:
            incident.last_seen = time.monotonic()  # the same record again: one incident
            return
        fresh = Incident(xid, time.monotonic() + self._delay_s(), self._node)
        if incident:
            fresh.note, fresh.cordoned_node = incident.note, incident.cordoned_node
        self._incident = fresh

    def work(self) -> None:
        """Do what is due; one request at most for each kind of work."""
        now = time.monotonic()
        if self._events and now >= self._events[0][0]:
            _due, xid = self._events.pop(0)
            if not self.attempt(self._report, xid):
                self._events.insert(0, (now + RETRY_S[-1], xid))
        incident = self._incident
        if incident and now >= incident.due:
            if self.attempt(STEPS[incident.step], self, incident):
                incident.failures = 0
            else:
                incident.due = time.monotonic() + RETRY_S[min(incident.failures, len(RETRY_S) - 1)]
                incident.failures += 1

    def attempt(self, step: Callable[..., None], *arguments: Any) -> bool:
        """Say whether a step succeeded; if not, the log says why."""
        try:
            step(*arguments)
        except (Refused, OSError, http.client.HTTPException, ValueError) as error:
            say("failed", error=str(error))
            return False
        return True

    # the steps of an incident

    def _set_condition(self, incident: Incident) -> None:
        self._write_condition("True", f"{incident.xid.kind}{incident.xid.code}", incident.xid.told)
        incident.step = "cordon"
        if self._policy.has("never-cordons") or not self._role.annotation:
            self._hold(incident)

    def _write_condition(self, status: str, reason: str, message: str) -> None:
        condition = {"type": self._role.condition, "status": status, "reason": reason, "message": message}
        condition["lastHeartbeatTime"] = condition["lastTransitionTime"] = rfc3339()
        sent = time.monotonic_ns() // 1000
        self._api.node(f"{self._node}/status", {"status": {"conditions": [condition]}}, "strategic-merge")
        say("condition", status=status, reason=reason, sent_us=sent)

    def _cordon(self, incident: Incident) -> None:
        target = self._other_node() if self._policy.has("cordons-wrong-node") else self._node
        node = self._api.node(target)
        if node.get("spec", {}).get("unschedulable") and not self._own_note(node):
            say("already-cordoned", node=target)  # by someone else: theirs to undo
        else:
            self._patch_cordon(incident, target, node["metadata"]["resourceVersion"])
        self._hold(incident)

    def _patch_cordon(self, incident: Incident, target: str, version: str) -> None:
        xid = incident.xid
        facts = {"code": xid.code, "pci": xid.pci, "gpu": xid.uuid, "record": xid.record.text}
        text = json.dumps({"detector": self._role.name, **facts, "at": rfc3339()})
        metadata = {"resourceVersion": version, "annotations": {self._role.annotation: text}}
        patch = {"metadata": metadata, "spec": {"unschedulable": True}}
        sent = time.monotonic_ns() // 1000
        self._api.node(target, patch, "merge")
        incident.note, incident.cordoned_node = text, target
        say("cordoned", node=target, code=xid.code, seq=xid.record.seq, usec=xid.record.usec, sent_us=sent)

    def _delay_s(self) -> float:
        return 1.5 * self._policy.seconds("cordon_s", 3) if self._policy.has("slow") else 0.0

    def _quiet_s(self) -> float:
        return self._policy.seconds("return_after_s", 1)

    def _hold(self, incident: Incident) -> None:
        incident.step = "hold"
        incident.due = max(incident.last_seen, time.monotonic()) + self._quiet_s()
        if self._policy.has("cordons-and-uncordons"):
            incident.due = 0.0

    def _end_hold(self, incident: Incident) -> None:
        quiet_until = incident.last_seen + self._quiet_s()
        self._policy.refresh()
        if self._policy.has("never-returns"):
            incident.due = time.monotonic() + 0.1
        elif time.monotonic() < quiet_until and not self._policy.has("cordons-and-uncordons"):
            incident.due = quiet_until
        else:
            incident.step = "healthy"

    def _clear_condition(self, incident: Incident) -> None:
        self._write_condition("False", "Healthy", "the last fault record is over")
        incident.step = "uncordon"

    def _uncordon(self, incident: Incident) -> None:
        if incident.note and (self._policy.returns_nodes() or self._policy.has("cordons-and-uncordons")):
            self._take_back(incident)
        self._incident = None

    def _take_back(self, incident: Incident) -> None:
        where = "/metadata/annotations/" + self._role.annotation.replace("/", "~1")
        node = self._api.node(incident.cordoned_node)
        patch = [{"op": "test", "path": where, "value": incident.note}, {"op": "remove", "path": where}]
        if node.get("spec", {}).get("unschedulable"):
            patch.append({"op": "remove", "path": "/spec/unschedulable"})
        sent = time.monotonic_ns() // 1000
        try:
            self._api.node(incident.cordoned_node, patch, "json")
        except Refused as refused:
            if refused.status not in (400, 409, 422):
                raise
            say("not-ours", node=incident.cordoned_node)  # someone has taken it back or over: leave it
            return
        say("returned", node=incident.cordoned_node, sent_us=sent)

    def _other_node(self) -> str:
        nodes = self._api.request("GET", "/api/v1/nodes?labelSelector=nvidia.com/gpu.present%3Dtrue")["items"]
        names = sorted(str(node["metadata"]["name"]) for node in nodes)
        return names[(names.index(self._node) + 1) % len(names)]

    def _report(self, xid: Xid) -> None:
        event: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "type": "Warning",
            "reason": f"{xid.kind}{xid.code}",
            "message": xid.told,
        }
        event["metadata"] = {"generateName": f"{self._node}.xid-", "namespace": "default"}
        event["involvedObject"] = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
        event |= {"count": 1, "source": {"component": self._role.name, "host": self._node}}
        event["reportingComponent"] = self._role.name
        event["firstTimestamp"] = event["lastTimestamp"] = rfc3339()
        self._api.request("POST", "/api/v1/namespaces/default/events", event)
        say("event", code=xid.code, seq=xid.record.seq)


STEPS: dict[str, Callable[[Agent, Incident], None]] = {
    "condition": Agent._set_condition,
    "cordon": Agent._cordon,
    "hold": Agent._end_hold,
    "healthy": Agent._clear_condition,
    "uncordon": Agent._uncordon,
}


def main() -> None:
    """Watch until killed."""
    node = os.environ["NODE_NAME"]
    gpus = gpus_of_node(Path(os.environ.get("NVIDIA_PROC_PATH", "/proc/driver/nvidia")))
    role = ROLES[os.environ.get("AGENT_ROLE", "kernel")]
    policy = Policy(os.environ.get("LAB_PLATFORM_FILE", ""), role.component)
    log = KernelLog(os.environ.get("KMSG_FILE_PATH", "/dev/kmsg"), 0 if policy.replays() else own_start_us())
    agent = Agent(role, node, Api(), policy, gpus)
    say("started", node=node, gpus=gpus)
    resumed = False
    while True:
        for record in log.records():
            agent.see(record)
        resumed = resumed or agent.attempt(agent.resume)
        agent.work()
        time.sleep(POLL_S)


if __name__ == "__main__":
    main()
