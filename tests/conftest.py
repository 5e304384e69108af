"""What all tests share: properties are checked for what they say, not for how fast a busy machine gets there."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.cluster.tier"]

# A landing does not depend on the luck of a search; the search goes on in everybody's own runs.
settings.register_profile(
    "any-machine", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")

STARTED_S = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell what each part of a whole run (`.ci/run`) took, this one last."""
    before = os.environ.get("CI_MINUTES", "")
    if before and Path(before).is_file():
        terminalreporter.section("minutes")
        terminalreporter.write(Path(before).read_text())
        terminalreporter.write_line(f"{(time.monotonic() - STARTED_S) / 60:6.1f} min  these tests")
