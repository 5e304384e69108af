"""The three patches, against their definitions."""

import copy
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.lab.apiserver.patches import json_patch, merge_patch, strategic_merge
from tests.lab.apiserver.conftest import code_of

keys = st.text("ab/~0", min_size=1, max_size=3)
leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
solid_leaves = st.integers(2) | st.text(max_size=3)
documents = st.recursive(
    st.dictionaries(keys, solid_leaves, max_size=3),
    lambda inner: st.dictionaries(keys, inner | solid_leaves | st.lists(solid_leaves, max_size=3), max_size=3),
    max_leaves=8,
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


@given(documents, documents)
def test_a_json_patch_of_the_difference_leads_there(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    assert json_patch(old, jsonpatch.make_patch(old, new).patch) == new
    assert old == before


@given(documents, anything)
def test_any_json_patch_applies_or_is_refused(document: Any, patch: Any) -> None:
    assert code_of(json_patch, document, patch) in (0, 400, 422)


operation = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
        "path": st.text("/ab01-~", max_size=6),
        "value": anything,
        "from": st.text("/ab01-~", max_size=6),
    }
)


@given(documents, st.lists(operation, max_size=4))
def test_any_operations_apply_or_are_refused(document: Any, patch: Any) -> None:
    before = copy.deepcopy(document)
    assert code_of(json_patch, document, patch) in (0, 400, 422)
    assert document == before


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


def difference(old: Any, new: Any) -> Any:
    """Return the merge patch from one document without nulls to another."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    patch: dict[str, Any] = dict.fromkeys(old.keys() - new.keys())
    return patch | {k: difference(old.get(k), v) for k, v in new.items() if k not in old or old[k] != v}


@given(documents, documents)
def test_a_merge_patch_of_the_difference_leads_there(old: Any, new: Any) -> None:
    before = copy.deepcopy(old)
    assert merge_patch(old, difference(old, new)) == new
    assert old == before


@given(documents, documents)
def test_without_keyed_lists_or_directives_strategic_is_merge(old: Any, patch: Any) -> None:
    assert strategic_merge(old, patch) == merge_patch(old, patch)


@given(documents, anything)
def test_any_strategic_patch_applies_or_is_refused(document: Any, patch: Any) -> None:
    assert code_of(strategic_merge, document, patch) in (0, 400)


A, B, C = ({"name": n, "image": n} for n in "abc")


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        ({"containers": [{"name": "b", "image": "new"}]}, ["a", "b"]),
        ({"containers": [C]}, ["a", "b", "c"]),
        ({"containers": [{"name": "a", "$patch": "delete"}]}, ["b"]),
        ({"containers": [{"name": "zz", "$patch": "delete"}]}, ["a", "b"]),
        ({"containers": [{"$patch": "replace"}, C]}, ["c"]),
        ({"containers": None}, None),
        ({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}, ["b", "a"]),
        (
            {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}], "containers": [C]},
            ["c", "a", "b"],
        ),
        ({"$retainKeys": ["other"], "other": 1}, None),
        ({"$patch": "replace", "containers": [C]}, ["c"]),
    ],
)
def test_strategic_lists_are_merged_by_key(patch: Any, names: list[str] | None) -> None:
    merged = strategic_merge({"containers": [A, B]}, patch)
    found = [c["name"] for c in merged["containers"]] if "containers" in merged else None
    assert found == names


def test_a_merged_item_keeps_its_other_fields() -> None:
    merged = strategic_merge({"containers": [A]}, {"containers": [{"name": "a", "env": [{"name": "E"}]}]})
    assert merged["containers"] == [{"name": "a", "image": "a", "env": [{"name": "E"}]}]


def test_ports_are_keyed_by_what_they_are_ports_of() -> None:
    merged = strategic_merge({"ports": [{"containerPort": 1}]}, {"ports": [{"containerPort": 1, "name": "x"}]})
    assert merged == {"ports": [{"containerPort": 1, "name": "x"}]}
    merged = strategic_merge({"ports": [{"port": 1}]}, {"ports": [{"port": 2}]})
    assert merged == {"ports": [{"port": 1}, {"port": 2}]}


def test_finalizers_are_a_set() -> None:
    merged = strategic_merge({"finalizers": ["a"]}, {"finalizers": ["a", "b"]})
    assert merged == {"finalizers": ["a", "b"]}
    merged = strategic_merge(merged, {"$deleteFromPrimitiveList/finalizers": ["a"]})
    assert merged == {"finalizers": ["b"]}


@pytest.mark.parametrize(
    "patch", [{"$patch": "maybe"}, {"containers": [{"image": "x"}]}, {"containers": ["x"]}, {"$retainKeys": 1}]
)
def test_senseless_directives_are_400(patch: Any) -> None:
    assert code_of(strategic_merge, {"containers": [A]}, patch) == 400
