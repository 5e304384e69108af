"""The walk of a pickle comes to the same data as a load of it, for data; and to records, for the rest."""

import collections
import pickle
import sys
import types
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chaos_gpu.payloads.checkpoint_opcodes  # noqa: F401  fills the table of opcodes
from chaos_gpu.payloads.checkpoint_files import Torn
from chaos_gpu.payloads.checkpoint_pickle import Made, Walk

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ATOMS = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
DATA = st.recursive(
    ATOMS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner), max_leaves=30
)


class Thing:
    """Pickles as an object with attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Size(tuple[int, ...]):
    """Pickles as torch.Size does."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (tuple(self),))


@settings(max_examples=200, deadline=None)
@given(DATA, st.sampled_from(PROTOCOLS))
def test_data_is_what_a_load_gives(data: Any, protocol: int) -> None:
    written = pickle.dumps(data, protocol)
    walk = Walk(written)
    assert walk.run() == data
    assert walk.end == len(written)


@settings(max_examples=100, deadline=None)
@given(DATA, st.sampled_from(PROTOCOLS), st.data())
def test_a_part_of_a_pickle_is_torn(data: Any, protocol: int, draw: st.DataObject) -> None:
    written = pickle.dumps(data, protocol)
    keep = draw.draw(st.integers(0, len(written) - 1))
    with pytest.raises(Torn):
        Walk(written[:keep]).run()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("count", [0, 1, 3, 1500])
def test_objects_keep_their_attributes(count: int, protocol: int) -> None:
    shared = Thing(name="shared")
    attributes = {f"a{number}": number for number in range(count)}
    made = Walk(pickle.dumps([Thing(**attributes), shared, shared], protocol)).run()
    assert made[0].fields() == attributes
    assert made[1] is made[2]
    assert (made[1].get("name"), made[1].get("other", 7), made[0].get("a0")) == ("shared", 7, attributes.get("a0"))


def test_a_value_that_is_an_attributes_name_is_no_attribute() -> None:
    made = Walk(pickle.dumps(Thing(fqn="offset", offset=5))).run()
    assert (made.get("offset"), made.get("fqn")) == (5, "offset")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_sizes_are_tuples(protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    torch.Size = Size  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(Size, "__module__", "torch")
    sizes = [Size(range(dimensions)) for dimensions in (0, 1, 2, 3)]
    data = [Thing(offset=size, again=sizes[2]) for size in sizes] + [(1, 2), [(3, 4)]]
    *made, pair, pairs = Walk(pickle.dumps(data, protocol)).run()
    assert [each.get("offset") for each in made] == [tuple(size) for size in sizes]
    assert {each.get("again") for each in made} == {(0, 1)}
    assert (pair, pairs) == ((1, 2), [(3, 4)])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_the_standard_library_makes(protocol: int) -> None:
    ordered = collections.OrderedDict(a=1, b=[2])
    counted = collections.defaultdict(list, c=[1])
    found = Walk(pickle.dumps([ordered, counted, {1}, frozenset({2}), 1j, bytearray(b"x")], protocol)).run()
    assert found[:2] == [{"a": 1, "b": [2]}, {"c": [1]}]
    assert all(type(each) in (Made, bytes) for each in found[2:])
