"""Real trainers need torch, in this Python or in that which CHAOS_GPU_TORCH_PYTHON names; else all are skipped."""

import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.trainers.chain import PYTHON, SLOW, Chain, Reference, Trainer

MakeChain = Callable[..., Chain]
FindReference = Callable[..., Reference]


@cache
def installed(library: str) -> bool:
    look = (
        f"import importlib.util as u, sys; sys.exit(any(u.find_spec(each) is None for each in ('torch', {library!r})))"
    )
    return subprocess.run([PYTHON, "-c", look], check=False).returncode == 0


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[MakeChain]:
    """Make the chain of a program; all that it started ends with the test."""
    made: list[Chain] = []

    def make(program: str, library: str = "torch", **settings: str) -> Chain:
        if not installed(library):
            pytest.skip(f"no {library} here; CHAOS_GPU_TORCH_PYTHON may name a Python that has it")
        made.append(Chain(Trainer(program, tmp_path / program, **{**SLOW, **settings})))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FindReference]:
    """The uninterrupted run of a program, shared by all that compare with it."""
    root = tmp_path_factory.mktemp("references")
    known: dict[tuple[str, ...], Reference] = {}

    def find(program: str, **settings: str) -> Reference:
        key = (program, *sorted(settings.values()))
        return known.setdefault(key, Reference(program, root, **settings))

    yield find
    for each in known.values():
        each.remove()


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A directory that a rename from the store's does not reach. What a killed Lightning leaves there is removed."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no file system other than that of the tests' directory")
    with TemporaryDirectory(dir=shared) as directory:
        yield Path(directory)
