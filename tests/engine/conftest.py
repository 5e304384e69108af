"""One open lab for the tests of a module; each test leaves it as it found it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.site import Json, Nursery, Site
from tests.lab.conftest import running_lab

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the stand-in for the driver's libraries; returns the directory with libcuda.so.1 and libnvidia-ml.so.1."""
    if COMPILER is None:
        pytest.skip("no C compiler to build the stand-in for libcuda with")
    directory = tmp_path_factory.mktemp("driver")
    source, library = Path(__file__).with_name("standin_libcuda.c"), directory / "libcuda.so.1"
    subprocess.run([COMPILER, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    (directory / "libnvidia-ml.so.1").symlink_to(library.name)
    return directory


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with Nursery() as running:
        yield running


@pytest.fixture(scope="session")
def open_lab(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_lab(tmp_path_factory.mktemp("open") / "lab", env={"CHAOS_GPU_CORDON_S": "2"}) as lab:
        site = Site(lab, nursery, tmp_path_factory.mktemp("runs"))
        code, text = site.cli("install")
        assert code == 0, text
        yield site


@pytest.fixture
def site(open_lab: Site) -> Iterator[Site]:
    """The shared lab; afterwards its nodes must be as before, and past runs are forgotten."""
    before = _nodes(open_lab)
    yield open_lab
    open_lab.forget()
    after = _nodes(open_lab)
    assert [after[name] for name in before if after[name] != before[name]] == []


def _nodes(site: Site) -> Json:
    return {name: found for name, found in site.objects().items() if "/nodes " in name}
