"""`chaos-gpu explain checkpoint`: for people and for programs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos_gpu.cli import main as entry
from tests.support import checkpoint_layouts as lay
from tests.support.checkpoint_writers import noise, torch_zip, train_state

Explain = Callable[..., tuple[int, str, str]]
KEYS = {"format", "step", "complete", "torn_reason", "components", "fraction", "state_crcs", "differs"}


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Explain:
    """Run the command; return exit code, output, errors."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main() replaces it; put back afterwards

    def run(*args: object) -> tuple[int, str, str]:
        code = entry.main(["explain", "checkpoint", *map(str, args)])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def test_json_of_one(explain: Explain, tmp_path: Path) -> None:
    path = lay.hf_trainer(tmp_path, 10)
    code, out, err = explain(path, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document.keys() >= KEYS
    assert (document["format"], document["step"], document["complete"]) == ("hf-trainer", 10, "yes")


def test_json_of_a_store(explain: Explain, tmp_path: Path) -> None:
    lay.hf_trainer(tmp_path / "runs", 5)
    (lay.hf_trainer(tmp_path / "runs", 10) / "trainer_state.json").unlink()
    code, out, _ = explain(tmp_path / "runs", "--json")
    document = json.loads(out)
    assert (code, document["newest_complete"], document["latest"]) == (0, "checkpoint-5", "checkpoint-10")
    assert [member["name"] for member in document["members"]] == ["checkpoint-5", "checkpoint-10"]


def test_a_person_sees_why(explain: Explain, tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "a.pt", {"model": {"w": noise(5000)}, "step": 3}, share=0.5)
    code, out, err = explain(path)
    assert (code, err) == (0, "")
    assert out.startswith(f"torn: {path}, torch-zip, step 3, ")
    assert "why      it has no zip directory at its end: cut off" in out
    assert "holds    model; no optimizer, scheduler, rng, data, scaler" in out
    assert "there    51.0% of its bytes" in out


def test_a_person_sees_a_store(explain: Explain, tmp_path: Path) -> None:
    lay.hf_trainer(tmp_path / "runs", 5)
    (lay.hf_trainer(tmp_path / "runs", 10) / "trainer_state.json").unlink()
    _, out, _ = explain(tmp_path / "runs")
    assert out.startswith("newest complete: checkpoint-5, of 2 checkpoints, ")
    assert "latest   checkpoint-10 is what the framework's rule takes" in out
    assert out.index("torn: checkpoint-10") < out.index("complete: checkpoint-5, hf-trainer")


@pytest.mark.parametrize(
    ("change", "harm", "code"),
    [
        ({}, "", 0),
        ({"scaler": {"scale": 1.0}}, "", 1),
        ({}, "cut", 1),
        ({"scaler": None}, "", 1),
    ],
)
def test_exit_codes_when_asked(
    explain: Explain, tmp_path: Path, change: dict[str, object], harm: str, code: int
) -> None:
    reference = torch_zip(tmp_path / "a.pt", train_state(3))
    path = torch_zip(tmp_path / "b.pt", train_state(3, **change), share=0.5 if harm else 1.0)
    assert explain(path, "--against", reference, "--exit-code")[0] == code
    assert explain(path, "--against", reference)[0] == 0


def test_what_is_not_certain_exits_2(explain: Explain, tmp_path: Path) -> None:
    one, two = lay.orbax(tmp_path / "a", 5), lay.orbax(tmp_path / "b", 5)
    assert explain(one, "--against", two, "--exit-code")[0] == 2
    assert explain(one, "--exit-code")[0] == 0


def test_what_cannot_be_judged_is_told_in_both_forms(explain: Explain, tmp_path: Path) -> None:
    code, out, err = explain(tmp_path / "nothing", "--json")
    document = json.loads(out)
    assert (code, document["complete"], document["format"]) == (4, "suspect", None)
    assert document["torn_reason"] in err
    assert document.keys() >= KEYS


def test_names_reach_the_terminal_without_control_characters(explain: Explain, tmp_path: Path) -> None:
    path = torch_zip(tmp_path / "a\x1b[31m.pt", train_state(1))
    _, out, _ = explain(path)
    assert "\x1b" not in out
