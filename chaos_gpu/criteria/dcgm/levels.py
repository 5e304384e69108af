"""Which level a diagnostic ran at, from the tests that it names: the engine says it nowhere.

Source: DCGM's `NvidiaValidationSuite.cpp`, 3.3.9 and 4.6.0; NVIDIA's page on diagnostics.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from chaos_gpu.criteria.dcgm.report import RAN, Result

_TESTS = {
    1: "software denylist nvmllibrary cudamainlibrary cudatoolkitlibrary permissionsandosblocks persistencemode "
    "environmentvariables pageretirement/rowremap graphicsprocesses inforom fabricmanager",
    2: "memory gpumemory pcie",
    3: "diagnostic eud eudtest cpueud cpueudtest memorybandwidth targetedstress targetedpower nvbandwidth nccltests "
    "rist",
    4: "memtest pulsetest",
}
_LEVEL: Mapping[str, int] = MappingProxyType({name: level for level, names in _TESTS.items() for name in names.split()})


def level_of_test(name: str, category: str = "") -> int | None:
    """Return 1 to 4; None for a test that no level runs. Whatever stands under Deployment is of level 1.

    Args:
        name: as any version prints it: `GPU Memory`, `memory_bandwidth`.
        category: the one that it stands under.
    """
    plain = "".join(name.split()).replace("_", "").replace("-", "").casefold()
    return _LEVEL.get(plain, 1 if category.strip().casefold() == "deployment" else None)


def level_of(levels: Iterable[int | None]) -> str | None:
    """Return the highest level that the tests reach without a gap, from the lowest on; None if none is of a level.

    Each level contains the lower ones. A test chosen by name, such as memtest, runs beside those of level 1; that is
    no r4.
    """
    named = sorted({level for level in levels if level})
    if not named:
        return None
    reached = named[0]
    while reached + 1 in named:
        reached += 1
    return f"r{reached}"


def skipped_levels(results: Iterable[tuple[int | None, Result]]) -> tuple[str, ...]:
    """Return the levels of which tests are named, but none ran."""
    named: set[int] = set()
    ran: set[int] = set()
    for level, result in results:
        if level:
            named.add(level)
            if result.status in RAN:
                ran.add(level)
    return tuple(f"r{level}" for level in sorted(named - ran))
