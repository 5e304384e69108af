"""A detector that is restarted in mid-run reads the log from its beginning, and acts on our record a second time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.engine.site import Json, Site, activity, experiment, inject, over
from tests.lab.battery.conftest import program
from tests.lab.conftest import DEADLINE_S

NODE = "gpu-node-2"
AGENT = "gpu-health-agent"


@contextmanager
def replaying(site: Site) -> Iterator[None]:
    """Let agents that start from now on replay the log."""
    file = site.lab.root / "platform.json"
    before = file.read_text()
    for text in (json.dumps({**json.loads(before), "replays_log": True}), before):
        fresh = file.with_suffix(".fresh")
        fresh.write_text(text)
        fresh.replace(file)
        if text is not before:
            yield


def agent(site: Site) -> Json:
    path = f"api/v1/namespaces/gpu-health/pods?labelSelector=app%3D{AGENT}&fieldSelector=spec.nodeName%3D{NODE}"
    (pod,) = site.items(path)
    return pod


def kubectl(name: str, *arguments: str) -> Json:
    """Let Chaos Toolkit call kubectl in the middle of the method."""
    provider = {"type": "process", "path": program("kubectl"), "arguments": ["--context=lab", *arguments]}
    return {"type": "action", "name": name, "provider": {**provider, "timeout": 2 * DEADLINE_S}}


def wait_for_condition(status: str) -> Json:
    wanted = f"--for=condition=GpuXidError={status}"
    return kubectl(f"until-{status}", "wait", f"node/{NODE}", wanted, f"--timeout={DEADLINE_S:g}s")


def test_a_replayed_record_gives_no_second_verdict(site: Site) -> None:
    """The second reaction names our record too: it is seen through, and judged by nobody."""
    first = agent(site)
    method = [
        inject("xid-48", 48),
        activity("probe", "detected", "chaos_gpu.probes.device", "xid_detected", fault="xid-48"),
        activity("probe", "cordons", "chaos_gpu.probes.device", "time_to_cordon", fault="xid-48"),
        wait_for_condition("False"),
        kubectl("restart", "delete", "pod", first["metadata"]["name"], "--namespace=gpu-health", "--wait=false"),
        wait_for_condition("True"),
        *over("xid-48"),
    ]
    with replaying(site):
        ended = site.run(experiment(*method, criteria=["DEV-02", "DEV-06", "DEV-07"]), CHAOS_GPU_NODE=NODE)
    statuses = {step["activity"]["name"]: step.get("output") for step in ended.journal["run"]}
    assert [name for name, said in statuses.items() if isinstance(said, dict) and said.get("status", 0)] == [], statuses
    second = agent(site)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    said = [json.loads(line) for line in site.lab.logs(second["metadata"]["name"], "gpu-health").splitlines()]
    marker = site.ledger(ended.guard["run"])["fault.xid-48"]["marker"]
    assert [line for line in said if line["event"] == "record" and marker in line["text"]], "it did replay our record"
    judged = sorted(verdict["criterion"] for verdict in ended.guard["verdicts"])
    assert judged == ["DEV-02", "DEV-02", "DEV-06", "DEV-07"]
    assert {verdict["outcome"] for verdict in ended.guard["verdicts"]} == {"pass"}
    assert ended.guard["recovery"]["open"] == []
    assert ended.result.exit_code == 0, ended.text
    agents = "apis/apps/v1/namespaces/gpu-health/daemonsets"
    site.lab.wait(agents, AGENT, lambda ds: ds["status"]["numberReady"] == 4, DEADLINE_S)
