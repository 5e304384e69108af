"""A timeline of a large fleet is sorted in one pass."""

from collections.abc import Iterator
from typing import Any

import pytest

from chaos_gpu.criteria.timeline import NodeState, Scene, Timeline
from tests.criteria.scenes import ZERO_S, at, landed


class Counted(tuple[NodeState, ...]):
    """States that count how often they are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[NodeState]:
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("nodes", [1, 2, 300])
def test_the_states_are_gone_through_once_whatever_the_fleet(nodes: int) -> None:
    states = Counted(at(after_s, f"n{number}") for after_s in (-5, 1) for number in range(nodes))
    scene = Scene.of(landed(), Timeline(states, ZERO_S + 10))
    assert states.passes == 1
    assert list(scene.others) == sorted(f"n{number}" for number in range(1, nodes))
    assert all([state.at_s - ZERO_S for state in of_node] == [-5, 1] for of_node in scene.others.values())


def test_a_node_that_was_replaced_is_no_other_node() -> None:
    """The target's name with another UID is neither the target nor one of the others."""
    line: Any = (at(-5), at(1, uid="new"), at(2, "n1"))
    scene = Scene.of(landed(), Timeline(line, ZERO_S + 10))
    assert (scene.before, scene.after, list(scene.others)) == (line[0], (), ["n1"])
