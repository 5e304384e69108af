"""The reader as a pod gets it, in one file, answers as the package does."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from chaos_gpu.faults.pods import payload_source
from chaos_gpu.payloads.checkpoint import Progress
from chaos_gpu.payloads.checkpoint_document import inspect
from tests.criteria.checkpoint.recipes import RECIPES
from tests.support import checkpoint_layouts as lay

PAYLOADS = Path(__file__).parents[3] / "chaos_gpu" / "payloads"


def test_one_file_and_the_package_agree(tmp_path: Path) -> None:
    (tmp_path / "payload.py").write_text(payload_source("checkpoint"))
    stores = []
    for number, build in enumerate(RECIPES.values()):
        stores.append(tmp_path / "stores" / str(number) / "store")
        stores[-1].mkdir(parents=True)
        build(stores[-1])
    stores.append(lay.megatron(tmp_path / "one", 100))
    for store in stores[::4] + stores[-1:]:
        (tmp_path / "spec.json").write_text(json.dumps({"path": str(store)}))
        command = [sys.executable, "-I", "-S", str(tmp_path / "payload.py"), "--spec", str(tmp_path / "spec.json")]
        lines = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.splitlines()
        assert json.loads(lines[-1])["document"] == inspect(str(store))


def test_names_are_unique_where_modules_are_sent_as_one_file() -> None:
    for payload in ("checkpoint", "save_killer"):
        if (PAYLOADS / f"{payload}.py").exists():
            assert _twice(payload_source(payload)) == set()


def _twice(source: str) -> set[str]:
    """Names that two of the modules define: the later would silently stand for both."""
    seen: set[str] = set()
    twice: set[str] = set()
    for node in ast.parse(source).body:
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        twice |= seen & set(names)
        seen |= set(names)
    return twice


def test_twice_finds_what_it_is_for() -> None:
    assert _twice("def a(): ...\nb = 1\nclass a: ...\nb: int = 2") == {"a", "b"}


def test_the_reader_limits_itself() -> None:
    script = (
        "import resource; from chaos_gpu.payloads.checkpoint import limit_this_process; limit_this_process(2 << 30); "
        "print(resource.getrlimit(resource.RLIMIT_AS)[1], resource.getrlimit(resource.RLIMIT_CPU)[0])"
    )
    limits = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, check=True, text=True).stdout
    assert limits.split() == [str(2 << 30), "21"]


def test_progress_is_told_but_not_too_often(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(100)
    progress.tick(10)
    progress.told_at -= 1  # as if a second had passed
    progress.tick(20)
    progress.tick(30)
    (line,) = capsys.readouterr().out.splitlines()
    event = json.loads(line)
    assert (event["event"], event["bytes"], event["total"]) == ("reading", 30, 100)
