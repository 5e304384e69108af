"""gpu-health-policy: r2 before a node takes work and weekly while it is idle, r3 after an Xid, a record of each.

The detector cordons, this controller decides about the node's return: r3 runs once the node has no job any more; a
pass returns it, a warning waits for an operator (annotation `gpu-health.lab/r2-confirmed-by`), a failure isolates it.
A node whose annotation `gpu-health.lab/r2-result` says no r2 that passed is out of service. Diagnostics run as pods
on the node. Records: one JSON text for each GPU in ConfigMap `health-records-<node>`, and on HTTP under `/records`.

Environment: LAB_PLATFORM_FILE (planted defects), KUBERNETES_API_URL or KUBERNETES_SERVICE_HOST/PORT,
SERVICEACCOUNT_DIR, HEALTH_RECORDS_ADDRESS (host:port), HEALTH_POLL_S, DCGM_IMAGE, DCGM_HOST, DIAGNOSIS_POD and
DIAGNOSIS_CONTAINER (JSON: what its pods and their containers have besides, where images bring no dcgmi). Stdlib only;
`policy_source` in `health_manifests` makes one file of this, `health_api` and `health_rules`.
"""

import datetime
import json
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from chaos_gpu.lab.platform.health_api import TROUBLES, Api, Refused
from chaos_gpu.lab.platform.health_rules import (
    CORDONED_BY,
    POLICY,
    R2_RESULT,
    R3,
    Facts,
    Json,
    Rules,
    Step,
    facts_of,
    has_gpus,
    records_of,
    results_by_uuid,
    worst_of,
)

NAMESPACE = "gpu-health"
GPU_NODES = "nvidia.com/gpu.present=true"
RECORDS = "gpu-health.lab/records"
DIAGNOSIS = "gpu-health.lab/diagnosis"
KEPT = 256
"""So many records are kept of each node."""
RESYNC_S = 30.0
Clock = Callable[[], float]


def say(event: str, **facts: Any) -> None:
    """Write one line of the controller's own log."""
    sys.stdout.write(json.dumps({"event": event, "at": stamp(time.time()), **facts}) + "\n")
    sys.stdout.flush()


def stamp(seconds: float) -> str:
    """Return a time as records bear it: RFC 3339, UTC, microseconds."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="microseconds")


def seconds_of(text: Any) -> float:
    """Read a record's time; 0 for what is none."""
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def pointer(key: str) -> str:
    """Return the JSON pointer of an annotation."""
    return "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")


class Keeper:
    """The records: as kept in the cluster, and what is asked of them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kept: dict[str, dict[str, Json]] = {}

    def load(self) -> None:
        """Read what was kept before."""
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        for found in self._api.items(path, labels=f"{RECORDS}=true"):
            data = {key: json.loads(text) for key, text in (found.get("data") or {}).items()}
            self._kept[found["metadata"]["name"].removeprefix("health-records-")] = data

    def add(self, node: str, records: Iterable[Json]) -> None:
        """Keep records, and drop the oldest beyond the number that is kept."""
        fresh = {f"{int(time.time() * 1e6)}-{secrets.token_hex(4)}": record for record in records}
        kept = {**self._kept.get(node, {}), **fresh}
        surplus = sorted(kept)[: max(0, len(kept) - KEPT)]
        data = {key: json.dumps(record) for key, record in fresh.items()} | dict.fromkeys(surplus)
        name = f"health-records-{node}"
        where = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        try:
            self._api.request("PATCH", f"{where}/{name}", {"data": data}, "application/merge-patch+json")
        except Refused as refused:
            if refused.status != 404:
                raise
            meta = {"name": name, "namespace": NAMESPACE, "labels": {RECORDS: "true"}}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            self._api.request("POST", where, body)
        self._kept[node] = {key: record for key, record in kept.items() if key not in surplus}

    def newest_r2_s(self, node: str) -> float | None:
        """Return when the newest diagnosis of level 2 or more ended, seconds since the epoch."""
        done = (record for record in self._kept.get(node, {}).values() if record.get("level") in ("r2", "r3", "r4"))
        return max((seconds_of(record.get("ended_at")) for record in done), default=None)

    def everything(self) -> list[Json]:
        """Return all records, the oldest first."""
        return [record for node in sorted(self._kept) for _, record in sorted(self._kept[node].items())]


class Controller:
    """Looks at every node, and takes each one step further."""

    def __init__(self, api: Api, keeper: Keeper, rules: Callable[[], Rules], clock: Clock = time.time) -> None:
        self._api, self._keeper, self._rules, self._clock = api, keeper, rules, clock

    def look(self) -> bool:
        """Take each node one step; say whether something is under way, so that the next look must be soon."""
        pods = list(self._api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labels=DIAGNOSIS))
        running = {pod["metadata"]["labels"][DIAGNOSIS]: pod for pod in pods}
        return any([self._one(node, running) for node in self._api.items("/api/v1/nodes", labels=GPU_NODES)])

    def _one(self, node: Json, running: dict[str, Json]) -> bool:
        name = node["metadata"]["name"]
        try:
            if name in running:
                self._follow(node, running[name])
                return True
            newest = self._keeper.newest_r2_s(name)
            facts = facts_of(node, None if newest is None else self._clock() - newest)
            if facts.note or facts.is_due:
                facts = facts._replace(busy=self._is_busy(node))
            step = self._rules().next_step(facts)
            if step:
                self._take(step, facts, node)
            return bool(step) or bool(facts.note)
        except TROUBLES as error:
            say("failed", node=name, error=repr(error))
            return True

    def _is_busy(self, node: Json) -> bool:
        pods = self._api.items("/api/v1/pods", fields=f"spec.nodeName={node['metadata']['name']}")
        return any(has_gpus(pod) for pod in pods)

    def _take(self, step: Step, facts: Facts, node: Json) -> None:
        say(step.do, node=facts.name, level=step.level, why=step.why)
        if step.do == "cordon":
            self._cordon(facts, node["metadata"]["resourceVersion"], step.why)
        elif step.do == "diagnose":
            self._diagnose(facts, step)
        else:
            self._return(facts)

    def _cordon(self, facts: Facts, version: str, why: str) -> None:
        note = json.dumps({"detector": POLICY, "why": why, "at": stamp(self._clock())})
        metadata = {"resourceVersion": version, "annotations": {CORDONED_BY: note}}
        self._patch_node(facts.name, {"metadata": metadata, "spec": {"unschedulable": True}}, "merge")

    def _return(self, facts: Facts) -> None:
        patch: list[Json] = [
            {"op": "test", "path": pointer(CORDONED_BY), "value": facts.note},
            {"op": "remove", "path": pointer(CORDONED_BY)},
        ]
        patch += [{"op": "remove", "path": pointer(R3)}] if facts.r3 else []
        patch += [] if facts.schedulable else [{"op": "remove", "path": "/spec/unschedulable"}]
        self._patch_node(facts.name, patch, "json")

    def _diagnose(self, facts: Facts, step: Step) -> None:
        self._api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", diagnosis_pod(facts, step, self._clock()))

    def _follow(self, node: Json, pod: Json) -> None:
        """Conclude a diagnosis that has ended; one that says nothing is run again."""
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            return
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        about = json.loads(pod["metadata"]["annotations"][DIAGNOSIS])
        try:
            logs = [self._api.request("GET", f"{path}/log?container={name}") for name in ("discovery", "diag")]
            results = results_by_uuid(*(log.get("text") or json.dumps(log) for log in logs))
            self._conclude(node, about, results)
        finally:
            self._api.request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})

    def _conclude(self, node: Json, about: Json, results: dict[str, str]) -> None:
        name, level, worst = node["metadata"]["name"], int(about["level"]), worst_of(results.values())
        span = (str(about["started_at"]), stamp(self._clock()))
        self._keeper.add(name, records_of(name, level, results, span, self._rules()))
        note = {R3: json.dumps({"for": about["note"], "result": worst})} if level == 3 else {R2_RESULT: worst}
        self._patch_node(name, {"metadata": {"annotations": note}}, "merge")
        say("judged", node=name, level=level, result=worst)

    def _patch_node(self, name: str, patch: Any, kind: str) -> None:
        self._api.request("PATCH", f"/api/v1/nodes/{name}", patch, f"application/{kind}-patch+json")


def diagnosis_pod(facts: Facts, step: Step, now_s: float) -> Json:
    """Make the pod that runs the diagnostic on its node, beside the node's own engine."""
    image = os.environ.get("DCGM_IMAGE", "nvcr.io/nvidia/cloud-native/dcgm:4.6.0-1-ubuntu22.04")
    host = ["--host", os.environ.get("DCGM_HOST", "nvidia-dcgm.gpu-operator.svc:5555")]
    about = {"level": step.level, "note": facts.note, "started_at": stamp(now_s)}
    commands = {
        "diag": ["dcgmi", "diag", *host, "-r", str(step.level), "-j"],
        "discovery": ["dcgmi", "discovery", *host, "-l"],
    }
    pod, container = (json.loads(os.environ.get(f"DIAGNOSIS_{part}") or "{}") for part in ("POD", "CONTAINER"))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"diagnosis-r{step.level}-{facts.name}-{secrets.token_hex(3)}",
            "namespace": NAMESPACE,
            "labels": {"app": "gpu-health-diagnosis", DIAGNOSIS: facts.name},
            "annotations": {DIAGNOSIS: json.dumps(about)},
        },
        "spec": {
            "nodeName": facts.name,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": name, "image": image, "command": command, **container} for name, command in commands.items()
            ],
            **pod,
        },
    }


def rules_file(path: str) -> Callable[[], Rules]:
    """Return a function that reads the planted defects anew each time."""

    def read() -> Rules:
        try:
            facts = json.loads(Path(path).read_text()) if path else {}
        except (OSError, ValueError):  # being written
            facts = {}
        return Rules(frozenset(facts.get("defects", ())))

    return read


def serve(keeper: Keeper, address: str) -> ThreadingHTTPServer:
    """Serve the records on HTTP, in threads of its own. `address` is host:port; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        """Answers GET /records."""

        def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
            """Answer with all records."""
            known = self.path.partition("?")[0] == "/records"
            answer = {"items": keeper.everything()} if known else {"message": "only /records is here"}
            body = json.dumps(answer).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing: standard error is the pod's log."""

    host, _, port = address.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def listen(api: Api, path: str, labels: str, wake: threading.Event) -> None:
    """Wake the controller at each change of a list, for ever."""
    while True:
        try:
            for _ in api.changes(path, labels):
                wake.set()
        except TROUBLES as error:
            say("watch-lost", path=path, error=repr(error))
            time.sleep(0.2)


def main() -> None:
    """Run until killed."""
    api, wake = Api(), threading.Event()
    keeper = Keeper(api)
    poll_s = float(os.environ.get("HEALTH_POLL_S", "2"))
    while True:
        try:
            keeper.load()
            break
        except TROUBLES as error:
            say("failed", error=repr(error))
            time.sleep(0.5)
    server = serve(keeper, os.environ.get("HEALTH_RECORDS_ADDRESS", "127.0.0.1:0"))
    say("started", records="http://{}:{}/records".format(*server.server_address[:2]))
    threading.Thread(target=listen, args=(api, "/api/v1/nodes", GPU_NODES, wake), daemon=True).start()
    controller = Controller(api, keeper, rules_file(os.environ.get("LAB_PLATFORM_FILE", "")))
    pending = True
    while True:
        wake.wait(poll_s if pending else RESYNC_S)
        wake.clear()
        try:
            pending = controller.look()
        except TROUBLES as error:
            say("failed", error=repr(error))
            pending = True


if __name__ == "__main__":
    main()
