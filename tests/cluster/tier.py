"""Hooks of pytest: this tier's tests come last, on one worker, and only where they can; else one line says why not.

`--cluster=auto` (the default) runs them on a machine that can and has all it needs built, `never` leaves them out, and
`always` is an error where they cannot run.
"""

from typing import Any

import pytest

from tests.cluster import builds, capable

MARK = "cluster"
FOLDER = "tests/cluster/"
TIMEOUT_S = 600.0
"""Unless a test has its own. The first one starts the cluster."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--cluster`."""
    options = parser.getgroup("cluster", "the tests on a real control plane")
    options.addoption(
        "--cluster", choices=("auto", "never", "always"), default="auto", help="whether to run them; see tests/cluster"
    )


def obstacle(config: pytest.Config) -> str:
    """Say why the tier does not run, "" if it does. Raises UsageError where it must and cannot."""
    wanted = config.getoption("--cluster")
    if wanted == "never":
        return "told not to"
    found = capable.obstacle()
    if not found and (missing := builds.missing()):
        found = f"{', '.join(missing)} not built yet: `python -m tests.cluster build`, some 25 minutes once"
    if found and wanted == "always":
        raise pytest.UsageError(f"no cluster on this machine: {found}")
    return found


def pytest_report_header(config: pytest.Config) -> str:
    """Say whether the tier runs."""
    found = obstacle(config)
    return f"cluster tier: {f'not run: {found}' if found else 'runs, last'}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tier out, or put it last."""
    tier = [item for item in items if item.get_closest_marker(MARK)]
    if not tier:
        return
    rest = [item for item in items if not item.get_closest_marker(MARK)]
    if obstacle(config):
        config.hook.pytest_deselected(items=tier)
        tier = []
    for item in tier:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
    items[:] = rest + tier


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tier to one worker under `--dist=loadgroup`; groups by mark do not work with xdist 3.8 on pytest 9.2."""
    from xdist.scheduler import LoadGroupScheduling  # a run without xdist never asks

    class OneWorkerForTheTier(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return MARK if nodeid.startswith(FOLDER) else str(super()._split_scope(nodeid))

    return OneWorkerForTheTier(config, log) if config.getoption("dist") == "loadgroup" else None
