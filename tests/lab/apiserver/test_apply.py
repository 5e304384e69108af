"""Server-side apply: who owns which field, and what happens when two want the same one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.lab.apiserver.fields import (
    Path,
    built_in_keys,
    dotted,
    from_fields_v1,
    leaves,
    schema_keys,
    to_fields_v1,
)
from chaos_gpu.lab.apiserver.managers import Manager, apply, owned_fields, record_update
from chaos_gpu.lab.apiserver.status import StatusError
from tests.lab.apiserver.conftest import MAPS, Served

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


def applied(
    served: Served, manager: str, data: dict[str, str], *, force: str = "false", **meta: Any
) -> tuple[int, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **meta}, "data": data}
    parameters = {"fieldManager": manager, "force": force}
    return served.call("PATCH", f"{MAPS}/a", body, media=APPLY, params=parameters)


def test_it_makes_then_changes(served: Served) -> None:
    assert applied(served, "one", {"k": "1"})[0] == 201
    code, answer = applied(served, "one", {"k": "2"})
    assert (code, answer["data"]) == (200, {"k": "2"})
    (entry,) = answer["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("one", "Apply")
    assert entry["fieldsV1"] == {"f:data": {"f:k": {}}}


def test_what_a_manager_no_longer_applies_goes(served: Served) -> None:
    applied(served, "one", {"k": "1", "l": "1"}, labels={"x": "y"})
    _, answer = applied(served, "one", {"k": "1"})
    assert answer["data"] == {"k": "1"}
    assert not answer["metadata"].get("labels")


def test_what_others_own_stays(served: Served) -> None:
    applied(served, "one", {"k": "1"})
    _, answer = applied(served, "two", {"l": "2"})
    assert answer["data"] == {"k": "1", "l": "2"}
    _, answer = applied(served, "two", {})
    assert answer["data"] == {"k": "1"}


def test_the_same_value_is_shared(served: Served) -> None:
    applied(served, "one", {"k": "1"})
    assert applied(served, "two", {"k": "1"})[0] == 200
    _, answer = applied(served, "one", {})
    assert answer["data"] == {"k": "1"}


def test_another_value_is_a_conflict_that_names_manager_and_field(served: Served) -> None:
    applied(served, "one", {"k": "1"})
    code, answer = applied(served, "two", {"k": "2"})
    assert (code, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    assert answer["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.k"}
    ]


def test_force_takes_the_field_over(served: Served) -> None:
    applied(served, "one", {"k": "1"})
    code, answer = applied(served, "two", {"k": "2"}, force="true")
    assert (code, answer["data"]) == (200, {"k": "2"})
    assert applied(served, "one", {"k": "1"})[0] == 409


def test_fields_set_by_ordinary_writes_are_owned_too(served: Served) -> None:
    applied(served, "one", {"k": "1"})
    served.ok("PATCH", f"{MAPS}/a", {"data": {"k": "2"}}, media=MERGE, params={"fieldManager": "hand"})
    code, answer = applied(served, "one", {"k": "1"})
    assert code == 409
    assert 'conflict with "hand"' in answer["message"]


def test_an_unchanged_apply_keeps_the_revision(served: Served) -> None:
    _, first = applied(served, "one", {"k": "1"})
    _, second = applied(served, "one", {"k": "1"})
    assert first == second


def test_the_manager_must_be_named(served: Served) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert served.call("PATCH", f"{MAPS}/a", body, media=APPLY)[0] == 400


def test_ownership_cannot_be_written_by_clients(served: Served) -> None:
    applied(served, "one", {"k": "1"})
    forged = [{"manager": "two", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:k": {}}}}]
    answer = served.ok("PATCH", f"{MAPS}/a", {"metadata": {"managedFields": forged}}, media=MERGE)
    assert [entry["manager"] for entry in answer["metadata"]["managedFields"]] == ["one"]


ME = Manager("me", "Apply", "v1")
OTHER = Manager("other", "Apply", "v1")


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": list(items)}}


def test_items_of_keyed_lists_are_owned_apart() -> None:
    live = apply(None, containers({"name": "a", "image": "1"}), ME, built_in_keys, force=False)
    live = apply(live, containers({"name": "b", "image": "2"}), OTHER, built_in_keys, force=False)
    assert [c["name"] for c in live["spec"]["containers"]] == ["a", "b"]
    live = apply(live, containers({"name": "b", "env": [{"name": "E", "value": "x"}]}), ME, built_in_keys, force=False)
    assert live["spec"]["containers"] == [{"name": "b", "image": "2", "env": [{"name": "E", "value": "x"}]}]


def test_lists_without_keys_are_one_field() -> None:
    live = apply(None, containers({"name": "a", "args": ["1"]}), ME, built_in_keys, force=False)
    with pytest.raises(StatusError, match=r"\.spec\.containers\[name=\"a\"\]\.args"):
        apply(live, containers({"name": "a", "args": ["2"]}), OTHER, built_in_keys, force=False)


def test_a_custom_resources_schema_says_how_its_lists_are_keyed() -> None:
    schema = {
        "properties": {
            "spec": {
                "properties": {
                    "flavors": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {}},
                    "tags": {"x-kubernetes-list-type": "set"},
                    "plain": {"type": "array"},
                }
            }
        }
    }
    found = leaves({"spec": {"flavors": [{"name": "x", "n": 1}], "tags": ["t"], "plain": [1]}}, schema_keys(schema))
    assert set(found) == {
        ("f:spec", "f:flavors", 'k:{"name":"x"}'),
        ("f:spec", "f:flavors", 'k:{"name":"x"}', "f:name"),
        ("f:spec", "f:flavors", 'k:{"name":"x"}', "f:n"),
        ("f:spec", "f:tags", 'v:"t"'),
        ("f:spec", "f:plain"),
    }


def test_paths_read_well() -> None:
    assert dotted(("f:spec", "f:containers", 'k:{"name":"main"}', "f:image")) == '.spec.containers[name="main"].image'


words = st.text("abc", min_size=1, max_size=2)
values = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
configs = st.dictionaries(words, values, max_size=4).map(lambda fields: {"metadata": {}, "spec": fields})


def owned_paths(obj: dict[str, Any]) -> set[Path]:
    return set().union(*owned_fields(obj).values())


@given(configs)
def test_field_sets_survive_being_written(config: dict[str, Any]) -> None:
    paths = frozenset(leaves(config, built_in_keys))
    assert from_fields_v1(to_fields_v1(paths)) == paths


@given(configs, configs)
def test_a_sole_manager_gets_exactly_what_it_applies_last(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = apply(None, first, ME, built_in_keys, force=False)
    live = apply(live, second, ME, built_in_keys, force=False)
    assert live["spec"] == second["spec"] or not second["spec"]


@given(configs, configs)
def test_a_forced_apply_gets_all_it_wants_and_owns_it(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = apply(None, first, OTHER, built_in_keys, force=False)
    live = apply(live, second, ME, built_in_keys, force=True)
    found = leaves(live, built_in_keys)
    for path, value in leaves(second, built_in_keys).items():
        if value != {}:
            assert found[path] == value


@given(configs, configs)
def test_an_update_owns_what_it_changed(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = apply(None, old, OTHER, built_in_keys, force=False)
    after = {"metadata": dict(before["metadata"]), "spec": new["spec"]}
    hand = Manager("hand", "Update", "v1")
    record_update(before, after, hand, built_in_keys)
    had, has = leaves(before, built_in_keys), leaves(after, built_in_keys)
    changed = {path for path, value in has.items() if had.get(path, ...) != value}
    assert owned_fields(after).get(hand, frozenset()) == changed
    assert owned_paths(after) <= set(has)
