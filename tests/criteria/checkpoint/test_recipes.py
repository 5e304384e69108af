"""Reported failures, each with its right answer."""

from pathlib import Path

import pytest

from chaos_gpu.payloads.checkpoint_document import inspect
from tests.criteria.checkpoint.recipes import RECIPES


@pytest.mark.parametrize("name", RECIPES)
def test_the_reader_gives_the_right_answer(name: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    right = RECIPES[name](root)
    answer = inspect(str(root))
    members = {each["name"]: each for each in answer["members"]}
    states = {name: each["complete"] for name, each in members.items() if not name.startswith("tmp-")}
    expected = dict.fromkeys(states, "yes")
    expected |= dict.fromkeys(right.get("torn", {}), "no") | dict.fromkeys(right.get("suspect", {}), "suspect")
    assert states == expected
    assert answer["newest_complete"] == right["newest"]
    assert answer["latest"] == right.get("latest", answer["latest"])
    for member, reason in {**right.get("torn", {}), **right.get("suspect", {})}.items():
        assert reason in members[member]["torn_reason"]
    for member, note in right.get("member_note", {}).items():
        assert note in " ".join(members[member]["notes"])
    for member, component in right.get("lacks", {}).items():
        assert component not in members[member]["components"]
    assert right.get("note", "") in " ".join(answer["notes"])
    assert answer["garbage"] == right.get("garbage", answer["garbage"])
