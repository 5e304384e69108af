"""What the tests of payloads share."""

from collections.abc import Iterator

import pytest

from tests.support.killer import STARTED


@pytest.fixture(autouse=True)
def no_killer_stays() -> Iterator[None]:
    """End what a test that failed has left."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()
