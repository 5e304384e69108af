"""What happens to a fault when the cluster itself breaks in the middle of it."""

import json
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.cluster.kubectl import until
from tests.cluster.layout import NODES
from tests.cluster.lifecycle import Cluster
from tests.cluster.product import LEASE_S, OURS, RUN_LIMIT_S, Done, Site

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TARGET = NODES[0]
SETTLED_S = 120.0
RESTART_S = 2.0
"""How long a service of the control plane is kept down."""
NODE_DOWN_S = 30.0
"""How long a node, or what makes it one, is kept away: longer than Lease and grace period of nodes."""


class Disturbance(NamedTuple):
    """Something that breaks, for so many seconds."""

    name: str
    begin: Callable[[Cluster], None]
    end: Callable[[Cluster], None]
    seconds: float


def down(service: str, seconds: float, node: str = "") -> Disturbance:
    name = f"{service} of {node}" if node else service
    return Disturbance(name, lambda it: it.hold(service, node), lambda it: it.release(service, node), seconds)


DISTURBANCES = [
    down("kubelet", NODE_DOWN_S, TARGET),
    down("containerd", RESTART_S, TARGET),
    down("kube-apiserver", RESTART_S),
    down("etcd", RESTART_S),
    down(TARGET, NODE_DOWN_S),
    Disturbance("link", lambda it: it.cut(TARGET), lambda it: it.join(TARGET), NODE_DOWN_S),
]


@pytest.mark.parametrize("disturbance", DISTURBANCES, ids=lambda each: each.name)
def test_nothing_stays_and_nothing_is_hidden(site: Site, disturbance: Disturbance) -> None:
    site.deploy()
    running = site.start(site.one_fault(), node=TARGET)
    until(lambda: has_landed(site) or running.poll() is not None, RUN_LIMIT_S, "the fault did not land")
    assert running.poll() is None, site.finish(running)
    disturbance.begin(site.cluster)
    try:
        wait_out(disturbance.seconds)
    finally:
        disturbance.end(site.cluster)
    done = site.finish(running)
    until(lambda: all(site.cluster.node_ready(name) for name in NODES), 90, "a node does not come back")
    settle(site, done)


def has_landed(site: Site) -> bool:
    """Whether the ledger of the run says so; any other fault record of it counts, too."""
    listed = json.loads(site.kubectl.try_raw(f"/api/v1/namespaces/{OURS}/configmaps") or '{"items": []}')
    records = [text for each in listed["items"] for key, text in (each.get("data") or {}).items() if "fault." in key]
    return any(json.loads(text)["state"] == "landed" for text in records)


def wait_out(seconds: float) -> None:
    """Let time pass: the length of an outage is what is tested, there is no event to wait for."""
    threading.Event().wait(seconds)


def settle(site: Site, done: Done) -> None:
    """All is gone by itself, or the ledger says what remains and `recover` puts it right."""

    def over() -> bool:
        return not [each for each in site.leftovers() if not each.endswith("is stuck")]  # said, not hidden

    until(over, SETTLED_S + LEASE_S, f"left behind after {done.code} {done.reasons}: {site.leftovers()}")
    stuck = [run for run, state in site.ledgers().items() if state == "stuck"]
    for run in stuck:
        said = site.command("status", run, codes=(3,))
        assert "remains:" in said, said
        site.command("recover", run)
    assert done.code in (0, 1, 2, 3), f"{done.reasons}\n{done.said}"
    assert (done.code == 3) <= bool(stuck or done.reasons)
