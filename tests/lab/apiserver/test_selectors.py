"""Selectors against a model of what they mean."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.lab.apiserver.selectors import (
    match_fields,
    match_labels,
    parse_fields,
    parse_labels,
    selector_of,
)
from tests.lab.apiserver.conftest import code_of

keys = st.sampled_from(["a", "b", "c", "x.io/a", "A-1_b.c"])
values = st.sampled_from(["", "1", "2", "v-1.x_y", "Z"])
labels = st.dictionaries(keys, values, max_size=4)


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, Any]:
    """Draw the text of one term, and what it means."""
    key, value, some = draw(keys), draw(values), draw(st.lists(values, min_size=1, max_size=3))
    space = draw(st.sampled_from(["", " "]))
    listed = f"({space}{f'{space},{space}'.join(some)}{space})"
    choices = [
        (f"{key}{space}={space}{value}", lambda have: have.get(key) == value),
        (f"{key}=={value}", lambda have: have.get(key) == value),
        (f"{key}!={value}", lambda have: have.get(key) != value),
        (f"{key} in {listed}", lambda have: have.get(key) in some),
        (f"{key} notin {listed}", lambda have: have.get(key) not in some),
        (f"{space}{key}{space}", lambda have: key in have),
        (f"!{space}{key}", lambda have: key not in have),
    ]
    return draw(st.sampled_from(choices))


@given(st.lists(terms(), min_size=1, max_size=4), labels)
def test_label_selectors_mean_what_they_say(chosen: list[tuple[str, Any]], have: dict[str, str]) -> None:
    matches = match_labels(parse_labels(",".join(text for text, _ in chosen)))
    assert matches({"metadata": {"labels": have}}) == all(meaning(have) for _, meaning in chosen)


@given(st.text(max_size=30) | st.text("ab=!,() innot", max_size=20))
def test_any_text_is_a_label_selector_or_400(text: str) -> None:
    assert code_of(lambda: match_labels(parse_labels(text))({"metadata": {}})) in (0, 400)


@pytest.mark.parametrize(
    ("have", "more", "less"), [("5", True, False), ("1", False, True), ("3", False, False), ("x", False, False)]
)
def test_numbers_compare(have: str, more: bool, less: bool) -> None:
    obj = {"metadata": {"labels": {"n": have}}}
    assert match_labels(parse_labels("n>3"))(obj) == more
    assert match_labels(parse_labels("n<3"))(obj) == less


def test_an_empty_selector_matches_everything() -> None:
    assert match_labels(parse_labels(""))({"metadata": {}})
    assert match_labels(selector_of(None))({"metadata": {}})


def test_selector_objects() -> None:
    selector = {
        "matchLabels": {"a": "1"},
        "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["2", "3"]},
            {"key": "c", "operator": "DoesNotExist"},
        ],
    }
    matches = match_labels(selector_of(selector))
    assert matches({"metadata": {"labels": {"a": "1", "b": "3"}}})
    assert not matches({"metadata": {"labels": {"a": "1", "b": "3", "c": ""}}})
    assert not matches({"metadata": {"labels": {"a": "1"}}})


SUPPORTED = {"f": "spec.f", "g": "spec.g"}
raw = st.text(st.characters(exclude_categories=["C"]), max_size=8)


@given(raw, raw)
def test_field_values_may_be_escaped(wanted: str, have: str) -> None:
    text = wanted.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    matches = match_fields(parse_fields(f"f={text}", SUPPORTED))
    assert matches({"spec": {"f": wanted}})
    assert matches({"spec": {"f": have}}) == (wanted == have)


@given(st.text(max_size=20) | st.text("fg=!,\\", max_size=12))
def test_any_text_is_a_field_selector_or_400(text: str) -> None:
    assert code_of(lambda: match_fields(parse_fields(text, SUPPORTED))({})) in (0, 400)


@pytest.mark.parametrize(
    ("text", "obj", "found"),
    [
        ("f=1,g!=2", {"spec": {"f": "1", "g": "3"}}, True),
        ("f=1,g!=2", {"spec": {"f": "1", "g": "2"}}, False),
        ("f=", {"spec": {}}, True),
        ("f=true", {"spec": {"f": True}}, True),
        ("f==1", {"spec": {"f": 1}}, True),
        ("f=1", {"spec": "text"}, False),
    ],
)
def test_field_selectors(text: str, obj: Any, found: bool) -> None:
    assert match_fields(parse_fields(text, SUPPORTED))(obj) == found
