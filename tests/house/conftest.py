"""The house as it is installed: one wheel a session, built from a copy of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
SOURCES = ("chaos_gpu", "actions", "probes", "experiments")
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="session")
def repo() -> Path:
    return REPO


@pytest.fixture(scope="session")
def modules() -> list[Path]:
    """Every module that is installed, where it stands in the checkout."""
    return [path for top in SOURCES for path in sorted((REPO / top).rglob("*.py"))]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, work)
    for name in SOURCES:
        shutil.copytree(REPO / name, work / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(work), str(work)], check=True, timeout=120)
    (built,) = work.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def site(wheel: Path) -> Path:
    """A directory that a Python with PYTHONPATH set to it takes for an installation."""
    site = wheel.with_name("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a program of this environment on the wheel, in an empty directory, and return what it printed."""

    def run(program: str, *args: str, code: int = 0) -> str:
        environ = os.environ | {"PYTHONPATH": str(site), "HOME": str(tmp_path)}
        done = subprocess.run(
            [str(PROGRAMS / program), *args], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run
