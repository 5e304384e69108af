"""node_kept: what a cordon was for may be written a moment later, and a condition is a sign of life as an Event is."""

from typing import Any

import pytest

from chaos_gpu.probes import device
from tests.criteria.scenes import HEALTHY, MARKER, TEXT, at, landed, timeline

NOTED = {"GpuXidError": ("False", "Noted", TEXT)}


@pytest.mark.parametrize(
    ("states", "signs"),
    [
        ((at(1, conditions=NOTED),), 1),
        ((at(1, conditions=HEALTHY),), 0),
        ((at(-1, conditions=NOTED),), 0),
        ((at(1, uid="another", conditions=NOTED),), 0),
    ],
    ids=["after the record", "nothing named", "before the record", "another node"],
)
def test_a_condition_that_names_the_record_shows_that_it_was_seen(states: Any, signs: int) -> None:
    found = device._conditions_naming(landed(), timeline(*states))
    assert len(found) == signs
    assert all(MARKER in text for text in found)
