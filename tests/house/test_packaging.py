"""The wheel holds all of the house, and nothing beside it."""

import ast
import json
import re
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from importlib.metadata import PathDistribution, packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.smoke

INSTALLED_AS = {
    "chaos_gpu": "chaos_gpu",
    "actions": "chaos_gpu/actions",
    "probes": "chaos_gpu/probes",
    "experiments": "chaos_gpu/experiments",
}

IMPORT_ALL = """
import importlib, json, pkgutil, sys, chaos_gpu
heavy = sorted({"chaoslib", "kubernetes", "pydantic", "aiohttp"} & set(sys.modules))
names = [m.name for m in pkgutil.walk_packages(chaos_gpu.__path__, "chaos_gpu.") if not m.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(json.dumps({"file": chaos_gpu.__file__, "heavy": heavy, "names": names}))
"""

FIND_EXPERIMENTS = """
from importlib.resources import files
root = files("chaos_gpu") / "experiments"
print(*sorted(f"{area.name}/{file.name}" for area in root.iterdir() if area.is_dir() for file in area.iterdir()))
"""


def files_of_checkout(repo: Path) -> set[str]:
    """What must be in the wheel, by its place there."""
    found = set()
    for top, place in INSTALLED_AS.items():
        for path in (repo / top).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"{place}/{path.relative_to(repo / top).as_posix()}")
    return found


def test_the_wheel_holds_every_file_of_the_packages_and_no_other(repo: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == files_of_checkout(repo)


def test_every_package_of_the_checkout_is_named(repo: Path) -> None:
    named = set(tomllib.loads((repo / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    found = {
        ".".join(Path(place, path.parent.relative_to(repo / top)).parts)
        for top, place in INSTALLED_AS.items()
        for path in (repo / top).rglob("__init__.py")
    }
    assert named == found | {"chaos_gpu.experiments"}


def test_the_metadata_say_who_we_are(site: Path) -> None:
    (info,) = site.glob("*.dist-info")
    distribution = PathDistribution(info)
    assert distribution.metadata["Name"] == "chaostoolkit-gpu"
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    assert (info / "licenses" / "LICENSE").is_file()
    assert [(script.name, script.value) for script in distribution.entry_points] == [
        ("chaos-gpu", "chaos_gpu.cli.main:main")
    ]


def test_every_module_imports_from_the_wheel_and_the_package_itself_is_cheap(
    run: Callable[..., str], site: Path
) -> None:
    seen = json.loads(run("python", "-W", "error::SyntaxWarning", "-c", IMPORT_ALL))
    assert Path(seen["file"]).is_relative_to(site)
    assert seen["heavy"] == []
    assert {"chaos_gpu.cli.main", "chaos_gpu.actions", "chaos_gpu.probes"} < set(seen["names"])


def test_experiments_are_found_in_the_installed_package(run: Callable[..., str], repo: Path) -> None:
    found = run("python", "-c", FIND_EXPERIMENTS).split()
    assert found == sorted(str(path.relative_to(repo / "experiments")) for path in repo.glob("experiments/*/*.yaml"))


def bare_imports(path: Path) -> list[str]:
    """Imports of `actions` or `probes` as if they stood on their own: they work in the checkout only."""
    bare = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        bare += [f"{path}:{node.lineno}" for name in names if name.split(".")[0] in {"actions", "probes"}]
    return bare


def test_nothing_imports_actions_or_probes_without_the_package(repo: Path, modules: list[Path]) -> None:
    scripts = [*(repo / "tests").rglob("*.py"), *(repo / "benchmarks").rglob("*.py")]
    assert [line for path in [*modules, *scripts] for line in bare_imports(path)] == []


def test_a_bare_import_would_be_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("import actions.xid\nfrom probes import device\nfrom chaos_gpu.actions import xid\n")
    assert len(bare_imports(module)) == 2


def requirements(repo: Path, *extras: str) -> set[str]:
    """The distributions that an installation with these extras asks for by name."""
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    return {re.split(r"[<>=\[; ]", line, maxsplit=1)[0].lower() for line in lines}


def imported(paths: Iterable[Path]) -> set[str]:
    """The distributions of what these files import, other than Python's own and ours."""
    found = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            found |= {name.split(".")[0] for name in names}
    owners = packages_distributions()
    return {owners[name][0].lower() for name in found - {"chaos_gpu", "tests"} if name in owners}


def test_what_the_package_imports_is_asked_for(repo: Path, modules: list[Path]) -> None:
    assert imported(modules) <= requirements(repo)


def test_what_the_tests_import_is_asked_for(repo: Path) -> None:
    scripts = [*(repo / "tests").rglob("*.py"), *(repo / "benchmarks").rglob("*.py")]
    assert imported(scripts) <= requirements(repo, "test", "kubectl")
