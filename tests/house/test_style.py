"""House rules that no linter of ours knows."""

import ast
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
MODULES = sorted(path for top in ("chaos_gpu", "actions", "probes") for path in (REPO / top).rglob("*.py"))
PAYLOADS = [path for path in MODULES if path.parent.name == "payloads"]
EDGE = [path for path in MODULES if path.parent.name in {"actions", "probes"}]
BROAD = {"Exception", "BaseException"}


def name_of(path: Path) -> str:
    return str(path.relative_to(REPO))


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def too_long(source: str) -> list[str]:
    """Modules over 400 lines, functions over 40."""
    found = ["module"] if source.count("\n") > 400 else []
    for each in functions(ast.parse(source)):
        lines = (each.end_lineno or each.lineno) - each.lineno + 1
        if lines > 40:
            found.append(f"{each.name}: {lines} lines")
    return found


def broad_excepts(source: str) -> list[int]:
    """Lines of handlers that would swallow an interrupt, which is an ordinary Exception to Chaos Toolkit."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            if ast.unparse(node.body[-1]) == "raise":
                continue  # cleans up and lets it pass
            caught = {ast.unparse(each) for each in getattr(node.type, "elts", [node.type])} if node.type else BROAD
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            caught = {ast.unparse(each) for each in node.args}
        else:
            continue
        if caught & BROAD:
            found.append(node.lineno)
    return found


def hidden_from_discovery(source: str) -> list[str]:
    """What Chaos Toolkit's discovery would not show with its type, or not at all."""
    found = ["future annotations"] if "from __future__ import annotations" in source else []
    for each in functions(ast.parse(source)):
        if each.name.startswith("_"):
            continue
        if each.args.kwonlyargs or each.args.kwarg:
            found.append(f"{each.name}: keyword-only parameters")
        notes = [ast.unparse(arg.annotation) for arg in each.args.args if arg.annotation]
        found += [f"{each.name}: {note}" for note in notes if "Optional" in note or "|" in note]
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_are_small(path: Path) -> None:
    assert too_long(path.read_text()) == []


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_handler_swallows_an_interrupt(path: Path) -> None:
    assert broad_excepts(path.read_text()) == []


@pytest.mark.parametrize("path", EDGE, ids=name_of)
def test_activities_are_written_so_that_discovery_sees_them(path: Path) -> None:
    assert hidden_from_discovery(path.read_text()) == []


@pytest.mark.parametrize("path", PAYLOADS, ids=name_of)
def test_payloads_need_nothing_but_an_old_python(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports do not survive being sent as one file"
            names = [node.module or ""]
        ours = {name for name in names if name.startswith("chaos_gpu.payloads.")}  # sent together, as one file
        assert {name.split(".")[0] for name in set(names) - ours} <= sys.stdlib_module_names


def test_the_rules_find_what_they_are_for() -> None:
    assert broad_excepts("try:\n  1\nexcept (OSError, Exception):\n  2") == [3]
    assert broad_excepts("try:\n  1\nexcept:\n  2") == [3]
    assert broad_excepts("with contextlib.suppress(Exception):\n  1") == [1]
    assert broad_excepts("try:\n  1\nexcept OSError:\n  2") == []
    assert broad_excepts("try:\n  1\nexcept BaseException:\n  2\n  raise") == []
    assert too_long("def f():\n" + "    x = 1\n" * 40) == ["f: 41 lines"]
    assert too_long("x = 1\n" * 401) == ["module"]
    assert hidden_from_discovery("def f(a: int, *, b: int): ...") == ["f: keyword-only parameters"]
    assert hidden_from_discovery("def f(a: int | None): ...") == ["f: int | None"]
