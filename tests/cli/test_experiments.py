"""Experiments by name: found, listed, shown, copied."""

import json
from pathlib import Path

import pytest
import yaml

from chaos_gpu.cli.experiments import load_experiment, name_of, resolve, shipped
from chaos_gpu.cli.main import main
from chaos_gpu.errors import UsageError

NAME = "device/xid-fatal-cordons-node"


@pytest.mark.parametrize("given", [NAME, f"{NAME}.yaml", f"experiments/{NAME}.yaml", f"experiments/{NAME}"])
def test_found_by_any_of_its_names_from_anywhere(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve(given) == shipped()[NAME]
    assert name_of(resolve(given)) == NAME
    assert load_experiment(given)["title"]


def test_a_file_goes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / f"{NAME}.yaml"
    own.parent.mkdir()
    own.write_text("title: mine")
    assert load_experiment(f"{NAME}.yaml") == {"title": "mine"}
    assert name_of(resolve(f"{NAME}.yaml")) == f"{NAME}.yaml"


def test_an_unknown_name_is_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match=f"one of: {NAME}$"):
        resolve("xid-fatal")
    with pytest.raises(UsageError, match="device/xid-application-error-keeps-node.*device/xid-fatal"):
        resolve("")


@pytest.mark.parametrize("text", ["- a", "a: [", "x", "", "\x00"])
def test_a_file_that_is_no_experiment_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="is not"):
        load_experiment(str(path))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == set(shipped())
    assert next(row for row in rows if row["name"] == NAME)["criteria"] == ["DEV-02", "DEV-06", "DEV-07"]
    assert main(["experiments", "list"]) == 0
    text = capsys.readouterr().out
    assert f"{NAME}\n    A fatal Xid takes its node out of service (DEV-02, DEV-06, DEV-07)" in text
    assert text.count("for real GPUs only, not proven on the lab: ") == sum(bool(row["real_gpus"]) for row in rows) == 1


def test_what_is_for_real_gpus_only_cannot_be_proven(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", "device/application-xid-keeps-node"]) == 4
    assert "is for real GPUs only" in capsys.readouterr().err


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "show", NAME]) == 0
    assert capsys.readouterr().out == shipped()[NAME].read_text()


def test_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiments", "copy", NAME, str(tmp_path)]) == 0
    copied = tmp_path / "xid-fatal-cordons-node.yaml"
    assert yaml.safe_load(copied.read_text()) == load_experiment(NAME)
    copied.write_text("mine")
    assert main(["experiments", "copy", NAME, str(copied)]) == 4
    assert copied.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["experiments", "copy", NAME, str(copied), "--force"]) == 0
    assert copied.read_text() == shipped()[NAME].read_text()
    assert main(["experiments", "copy", NAME, str(tmp_path / "no" / "where.yaml")]) == 4


@pytest.mark.parametrize("name", ["mine.json", "mine", "mine.txt"])
def test_a_copy_that_chaos_toolkit_would_read_as_something_else_is_not_made(name: str, tmp_path: Path) -> None:
    assert main(["experiments", "copy", NAME, str(tmp_path / name)]) == 4
    assert not (tmp_path / name).exists()
