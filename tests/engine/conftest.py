"""One open lab for the tests of a module; each test leaves it as it found it."""

from collections.abc import Iterator

import pytest

from tests.engine.site import Json, Nursery, Site
from tests.lab.conftest import running_lab


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
