"""One cluster for all tests of this tier: the one that runs already, or a fresh one that ends with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import builds, capable, lifecycle
from tests.cluster.layout import Layout, default_directory
from tests.cluster.lifecycle import Cluster
from tests.cluster.product import Site

SETTLE_S = 30.0
"""For what a run has deleted already: pods have their grace, and garbage is collected in the background."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster with Ready GPU nodes and Kueue."""
    if obstacle := capable.obstacle():
        pytest.skip(f"no cluster on this machine: {obstacle}")
    layout = Layout(default_directory())
    found = lifecycle.guardian(layout) is not None
    yield lifecycle.up(layout, builds.to_stderr, tied=not found)
    if not found:
        lifecycle.down(layout)


@pytest.fixture(scope="session")
def installed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The cluster with chaos_gpu installed, and the runner's own least-rights kubeconfig."""
    return Site.install(cluster, tmp_path_factory.mktemp("site"))


@pytest.fixture
def site(installed: Site, tmp_path: Path) -> Iterator[Site]:
    """The installed cluster, healthy, with no run in its past; afterwards no run may have left anything."""
    installed.forget_runs()
    fresh = installed.in_directory(tmp_path)
    before = fresh.nodes()
    yield fresh
    fresh.settle(SETTLE_S)
    assert fresh.nodes() == before, "a node is not as it was"
