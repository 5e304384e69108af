"""dcgm-health-agent: sets the health watches of every node's engine, and acts on what they say.

One process for the cluster, which asks the engines over the network, as one may ask a standalone engine; or one on each
node. A GPU whose health is a failure sets the node condition `GpuDcgmUnhealthy`, whose message names GPU, UUID and
error, and cordons the node; the annotation `dcgm-health.lab/cordoned-by` says why. A warning becomes an Event. When
health has been well for a second, it takes back what is its own.

Environment: LAB_DCGM_PATH; NODE_NAME, whose engine that is, or else the other nodes' lie beside its like;
LAB_PLATFORM_FILE; what `detector.Api` needs.
"""

import json
import os
import time
from pathlib import Path

from chaos_gpu.lab.dcgm.defects import planted
from chaos_gpu.lab.dcgm.engine import is_running, opened, state_file
from chaos_gpu.lab.dcgm.health import Incident, incidents
from chaos_gpu.lab.dcgm.manifests import AGENT as NAME
from chaos_gpu.lab.dcgm.manifests import ANNOTATION, CONDITION
from chaos_gpu.lab.platform.detector import Api, Json, Refused, rfc3339, say

import http.client  # isort: skip - the detector says first whether it needs ssl

SYSTEMS = "pmitn"
HEALTH_S, KEEP_S = 30.0, 600.0
LOOK_S, WELL_S = 0.25, 1.0
SETTLED_S = 10.0
"""Longer than the window, and a poll, of the lab's engines."""

Trouble = tuple[Incident, str]
"""What health says, and the GPU's UUID."""


class Quiet:
    """Spares looking at an engine that was well, and to which nothing has been done since its window went by."""

    def __init__(self, directory: Path) -> None:
        """Nobody has looked yet."""
        self._file = state_file(directory)
        self._well = False

    def note(self, found: list[Trouble]) -> None:
        """Take note of a look."""
        self._well = not found

    def __bool__(self) -> bool:
        """Whether another look would see what the last one saw: that all is well."""
        try:
            changed = self._file.stat().st_mtime
        except FileNotFoundError:
            return False
        return self._well and time.time() - changed > SETTLED_S


def look(directory: Path) -> list[Trouble]:
    """Return what the engine's health says now, having set its watches where nobody has."""
    if not is_running(directory) or planted("not-watched", "health"):
        return []
    with opened(directory) as engine:
        if engine.health_systems is None:
            engine.watch_health(SYSTEMS, HEALTH_S, KEEP_S)
        return [(each, engine.gpus[each.gpu].uuid) for each in incidents(engine)]


class Agent:
    """Brings the node into the state that its GPUs' health asks for; what fails is tried at the next look."""

    def __init__(self, node: str, api: Api) -> None:
        """Nothing is known of the node yet."""
        self._node, self._api = node, api
        self._said: set[str] = set()
        self._out = True
        self._well_since: float | None = None

    def act(self, found: list[Trouble], now: float) -> None:
        """Do what is due."""
        failures = [each for each in found if each[0].grade == "Failure"]
        for each in found:
            if each[0].grade == "Warning":
                self._report(each)
        self._said &= {_told(each) for each in found}
        if failures:
            self._well_since = None
            if not self._out:
                self._take_out(failures[0])
            self._out = True
        elif self._out:
            self._well_since = now if self._well_since is None else self._well_since
            if now - self._well_since >= WELL_S:
                self._give_back()
                self._out = False

    def _take_out(self, trouble: Trouble) -> None:
        self._condition("True", "DcgmHealthFailure", _told(trouble))
        node = self._api.node(self._node)
        if node.get("spec", {}).get("unschedulable"):
            say("already-cordoned", node=self._node)
            return
        incident, uuid = trouble
        note = {
            "detector": NAME,
            "code": incident.code,
            "gpu": uuid,
            "system": incident.system,
            "record": incident.text,
            "at": rfc3339(),
        }
        metadata = {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "annotations": {ANNOTATION: json.dumps(note)},
        }
        self._api.node(self._node, {"metadata": metadata, "spec": {"unschedulable": True}}, "merge")
        say("cordoned", node=self._node, gpu=uuid)

    def _give_back(self) -> None:
        node = self._api.node(self._node)
        conditions = node.get("status", {}).get("conditions", [])
        if any(each["type"] == CONDITION and each["status"] == "True" for each in conditions):
            self._condition("False", "Healthy", "the health watches see no failure")
        note = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
        if note is None:
            return
        where = "/metadata/annotations/" + ANNOTATION.replace("/", "~1")
        patch = [{"op": "test", "path": where, "value": note}, {"op": "remove", "path": where}]
        if node.get("spec", {}).get("unschedulable"):
            patch.append({"op": "remove", "path": "/spec/unschedulable"})
        self._api.node(self._node, patch, "json")
        say("returned", node=self._node)

    def _condition(self, status: str, reason: str, message: str) -> None:
        condition = {"type": CONDITION, "status": status, "reason": reason, "message": message}
        condition["lastHeartbeatTime"] = condition["lastTransitionTime"] = rfc3339()
        self._api.node(f"{self._node}/status", {"status": {"conditions": [condition]}}, "strategic-merge")

    def _report(self, trouble: Trouble) -> None:
        if _told(trouble) in self._said:
            return
        event: Json = {"apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "DcgmHealthWarning"}
        event["metadata"] = {"generateName": f"{self._node}.dcgm-", "namespace": "default"}
        event["involvedObject"] = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
        event |= {"message": _told(trouble), "count": 1, "source": {"component": NAME, "host": self._node}}
        event |= {"reportingComponent": NAME, "firstTimestamp": rfc3339(), "lastTimestamp": rfc3339()}
        self._api.request("POST", "/api/v1/namespaces/default/events", event)
        self._said.add(_told(trouble))


def _told(trouble: Trouble) -> str:
    incident, uuid = trouble
    what = f"DCGM error {incident.code} ({incident.grade}) of {uuid}"
    return f"{what}, GPU {incident.gpu}, {incident.system}: {incident.text}"


def engines_to_watch() -> dict[str, Path]:
    """Return where the files of each engine are, by node."""
    own = Path(os.environ["LAB_DCGM_PATH"])
    if node := os.environ.get("NODE_NAME"):
        return {node: own}
    return {path.parent.name: path for path in own.parent.parent.glob(f"*/{own.name}")}


def main() -> None:
    """Watch until killed."""
    api, engines = Api(), engines_to_watch()
    agents = [(Agent(node, api), Quiet(path), path) for node, path in engines.items()]
    say("started", nodes=sorted(engines))
    while True:
        for agent, quiet, directory in agents:
            try:
                found = [] if quiet else look(directory)
                agent.act(found, time.monotonic())
                quiet.note(found)
            except (Refused, OSError, http.client.HTTPException, ValueError) as error:
                say("failed", error=str(error))
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
