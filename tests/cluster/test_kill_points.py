"""The runner killed at a request of its own, before it is sent or after it was answered: nothing of ours stays.

The first few of a seeded order of a run's requests, so that a larger sample holds the smaller one: 4, or as many as
CHAOS_GPU_KILL_POINTS says. On the lab every one of them is tried (`make sweep`).
"""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_gpu.cli.lab import SHORT_LIMITS
from tests.cluster.deployment import CORDON_S
from tests.cluster.layout import CONTEXT
from tests.cluster.product import LEASE_S, Site
from tests.support.proxy import AFTER, BEFORE, Proxy, at, send_signal

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SAMPLE = int(os.environ.get("CHAOS_GPU_KILL_POINTS", "4"))
SEED = 20261129
REQUESTS = 110
"""About so many requests a run of one fault makes; a point beyond its end shows that a whole run leaves nothing."""
BOUND_S = LEASE_S + 2 * CORDON_S + float(SHORT_LIMITS["CHAOS_GPU_UNCORDON_S"]) + 30
"""The promise: by Lease, reaction window, uncordon window and 30 s the ledger is closed."""
POINTS = [(ordinal, stage) for ordinal in range(1, REQUESTS) for stage in (BEFORE, AFTER)]
random.Random(SEED).shuffle(POINTS)


@pytest.fixture
def proxy(site: Site, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(Path(site.environment["KUBECONFIG"]), tmp_path / "through.kubeconfig", CONTEXT) as proxy:
        yield proxy


@pytest.mark.parametrize(("ordinal", "stage"), POINTS[:SAMPLE])
def test_a_killed_runner_leaves_nothing(site: Site, proxy: Proxy, ordinal: int, stage: str) -> None:
    site.deploy()
    running = []
    proxy.on(at(ordinal), send_signal(lambda: running[0].pid, signal.SIGKILL), stage=stage)
    through = site.through(proxy.kubeconfig)
    running.append(through.start_bare(site.one_fault()))
    running[0].communicate(timeout=BOUND_S + 60)
    site.settle(BOUND_S)
    assert set(site.ledgers().values()) <= {"closed"}
