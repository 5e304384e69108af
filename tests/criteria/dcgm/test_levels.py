"""Which level a diagnostic ran at."""

import pytest

from chaos_gpu.criteria.dcgm.levels import level_of, level_of_test, skipped_levels
from chaos_gpu.criteria.dcgm.report import Result, Status


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("software", 1),
        ("Denylist", 1),
        ("Page Retirement/Row Remap", 1),
        ("Permissions and OS Blocks", 1),
        ("GPU Memory", 2),
        ("memory", 2),
        ("PCIe", 2),
        ("pcie", 2),
        ("Diagnostic", 3),
        ("EUD Test", 3),
        ("nccl_tests", 3),
        ("Memory Bandwidth", 3),
        ("memory_bandwidth", 3),
        ("Targeted Power", 3),
        ("targeted_stress", 3),
        ("Memtest", 4),
        ("pulse_test", 4),
        ("PULSE-TEST", 4),
        ("SM Stress", None),
        ("context_create", None),
        ("", None),
    ],
)
def test_level_of_a_test(name: str, level: int | None) -> None:
    assert level_of_test(name) == level


def test_whatever_stands_under_deployment_is_level_1() -> None:
    assert level_of_test("SRAM", " Deployment") == 1
    assert level_of_test("SRAM", "Hardware") is None
    assert level_of_test("PCIe", "Deployment") == 2


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        ([], None),
        ([None], None),
        ([1], "r1"),
        ([1, 2, None], "r2"),
        ([3, 2, 1], "r3"),
        ([1, 2, 3, 4], "r4"),
        ([1, 4], "r1"),  # memtest chosen by name
        ([1, 2, 4], "r2"),
        ([2], "r2"),
        ([3, 4], "r4"),
    ],
)
def test_levels_without_a_gap(levels: list[int | None], found: str | None) -> None:
    assert level_of(levels) == found


def test_a_level_of_which_nothing_ran() -> None:
    def result(status: Status) -> Result:
        return Result("x", "GPU 0", status)

    every = [
        (1, result(Status.PASS)),
        (2, result(Status.SKIP)),
        (3, result(Status.SKIP)),
        (3, result(Status.FAIL)),
        (4, result(Status.WARN)),
        (None, result(Status.SKIP)),
    ]
    assert skipped_levels(every) == ("r2",)
