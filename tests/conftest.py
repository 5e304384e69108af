"""What all tests share: properties are checked for what they say, not for how fast a busy machine gets there."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "tests.cluster.tier"]

# A landing does not depend on the luck of a search; the search goes on in everybody's own runs.
settings.register_profile(
    "any-machine", deadline=None, derandomize="CI" in os.environ, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")
