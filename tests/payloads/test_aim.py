"""When a strike is due: at the look after which a later one would hit worse."""

import pytest

from chaos_gpu.payloads.aim import Aim
from chaos_gpu.payloads.store_watch import Learned, Rung

SECOND = 1_000_000_000
RUNGS = tuple(Rung(number * 100, number * SECOND // 10) for number in range(1, 65))
STEADY = Learned(frozenset({"step-#.pt"}), 6400, 6.4, RUNGS, points=False, data=6300)
"""64 writes of 100 bytes, ten a second."""


@pytest.mark.parametrize(
    ("spec", "wanted", "record"),
    [
        ({"fraction": 0.5}, 3200, 100),
        ({"fraction": 0.5, "bytes": 1000}, 1000, 100),
        ({"fraction": 0.5, "bytes": 0, "record": 0}, 3200, 100),
        ({"fraction": 0.5, "record": 7}, 3200, 7),
        ({"fraction": 0.5, "phase": "sync"}, 6300, 100),
    ],
)
def test_where_and_how_near(spec: dict[str, float], wanted: float, record: int) -> None:
    aim = Aim({"phase": "data", **spec}, STEADY)
    assert (aim.wanted, aim.record) == (wanted, record)


@pytest.mark.parametrize(
    ("ahead_s", "first"),
    [(0.0, 3125), (0.1, 3025), (0.2, 2925), (0.3, 2925)],
)
def test_the_longer_it_takes_the_earlier_it_is_due(ahead_s: float, first: int) -> None:
    """Three quarters of a write before the place, and what is written meanwhile."""
    aim = Aim({"phase": "data", "fraction": 0.5}, STEADY)
    assert [aim.due(written, 0.0, ahead_s) for written in (first - 1, first)] == [False, True]


@pytest.mark.parametrize(("pace", "first"), [(0.0, 3025), (999.0, 3025), (2000.0, 2925)])
def test_the_faster_of_two_paces_counts(pace: float, first: int) -> None:
    aim = Aim({"phase": "data", "fraction": 0.5}, STEADY)
    assert [aim.due(written, pace, 0.1) for written in (first - 1, first)] == [False, True]


@pytest.mark.parametrize(("written", "missed"), [(3099, "-101"), (3100, ""), (3300, ""), (3301, "+101")])
def test_one_write_off_is_near_enough(written: int, missed: str) -> None:
    said = Aim({"phase": "data", "fraction": 0.5}, STEADY).missed(written)
    assert said == (f"{missed} bytes from the place asked for, one write is 100" if missed else "")


def test_how_late_it_was_and_how_long_it_takes_yet() -> None:
    aim = Aim({"phase": "data", "fraction": 0.5}, STEADY)
    assert aim.late_s(3400) == pytest.approx(0.1)
    assert aim.late_s(3000) == pytest.approx(-0.1)
    assert aim.left_s(2200) == pytest.approx(1.0)
    assert aim.left_s(3300) == 0


def test_when_a_number_of_files_is_there_is_not_foreseen() -> None:
    assert Aim({"phase": "data", "fraction": 0.5, "files": 3}, STEADY).left_s(0) == float("inf")


def test_of_a_save_without_pace_nothing_is_foreseen() -> None:
    aim = Aim({"phase": "data", "fraction": 0.5, "record": 100}, STEADY._replace(ladder=()))
    assert aim.due(3124, 0.0, 100.0) is False
    assert aim.due(3125, 0.0, 0.0) is True
    assert (aim.late_s(5000), aim.left_s(0)) == (0.0, float("inf"))
