"""Coverage: a detector saw a fault only if something of its own names the record, in time; else it is said why not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.xid.coverage import Sighting, Told, Watcher, sightings
from tests.criteria.scenes import MARKER, SICK, TEXT, UUID, ZERO_S, at, landed, timeline

AGENT = Watcher("agent", ("GpuXidError",), reads=True)
LIMIT_S = 3.0


def look(*states: object, watcher: Watcher = AGENT, events: tuple[Told, ...] = (), **facts: object) -> Sighting:
    seen = timeline(*states, **facts)  # type: ignore[arg-type]
    (found,) = sightings(landed(error_s=0.01), seen, [watcher], events, LIMIT_S)
    return found


def event(after_s: float, at_s: float, component: str = "agent") -> Told:
    return Told(component, ZERO_S + after_s, ZERO_S + at_s)


def test_a_condition_that_names_the_record_is_a_sighting_with_its_time() -> None:
    found = look(at(0.5, sick=True), watch_delay_s=0.02)
    assert found == Sighting(detector="agent", seen=True, by="condition GpuXidError", seconds=0.5, error_s=0.03)


def test_times_are_told_to_the_microsecond() -> None:
    found = look(at(0.12345678, sick=True), watch_delay_s=0.01234567)
    assert (found.seconds, found.error_s) == (0.123457, 0.022346)


def test_an_event_is_timed_by_two_looks() -> None:
    found = look(events=(event(0.4, 0.6),))
    assert (found.seen, found.by) == (True, "Event")
    assert found.seconds == pytest.approx(0.5)
    assert found.error_s == pytest.approx(0.11)


def test_the_first_sign_counts() -> None:
    assert look(at(0.9, sick=True), events=(event(0.4, 0.6),)).by == "Event"
    assert look(at(0.2, sick=True), events=(event(0.4, 0.6),)).by == "condition GpuXidError"


@pytest.mark.parametrize(
    "told",
    [
        ("True", "Xid48", "NVRM: Xid (PCI:0000:3b:00): 48, of yesterday cgpu-99999999"),
        ("True", "Xid79", f"Xid 79 on {UUID}"),
        ("True", "Sick", "something is wrong"),
        ("False", "Xid48", TEXT),
        ("Unknown", "Xid48", TEXT),
    ],
)
def test_a_condition_that_does_not_name_it_is_none(told: tuple[str, str, str]) -> None:
    assert look(at(0.5, conditions={"GpuXidError": told})).seen is False


def test_a_condition_before_the_record_is_none() -> None:
    assert look(at(-0.5, sick=True)).seen is False


def test_another_detectors_condition_or_event_is_not_its_own() -> None:
    other = {"Theirs": SICK["GpuXidError"]}
    assert look(at(0.5, conditions=other)).seen is False
    assert look(events=(event(0.4, 0.6, "agent-two"),)).seen is False
    assert look(at(0.5, "n1", sick=True)).seen is False


def test_a_condition_that_is_unhealthy_at_false() -> None:
    watcher = Watcher("agent", ("Ready=False",), reads=True)
    assert look(at(0.5, conditions={"Ready": ("False", "Xid48", TEXT)}), watcher=watcher).seen is True
    assert look(at(0.5, conditions={"Ready": ("True", "Xid48", TEXT)}), watcher=watcher).seen is False


def test_what_was_seen_counts_though_it_was_not_expected() -> None:
    assert look(at(0.5, sick=True), watcher=AGENT.__class__("agent", ("GpuXidError",), reads=False)).seen is True


@pytest.mark.parametrize(
    ("watcher", "why"),
    [
        (Watcher("agent", ("GpuXidError",), reads=False), "does not read what was written"),
        (Watcher("agent", (), reads=True), "no condition of it is known, and no Event came"),
    ],
)
def test_of_who_says_nothing_nothing_is_told(watcher: Watcher, why: str) -> None:
    assert look(watcher=watcher) == Sighting(detector="agent", seen=None, why=why)


@pytest.mark.parametrize(
    ("until", "gaps", "seen"),
    [(10.0, (), False), (2.9, (), None), (10.0, ((1.0, 1.5),), None), (10.0, ((4.0, 4.5),), False)],
)
def test_not_seen_is_said_only_of_a_time_that_was_watched(
    until: float, gaps: tuple[tuple[float, float], ...], seen: bool | None
) -> None:
    found = look(until=until, gaps=gaps)
    assert found.seen is seen
    assert found.why == ("" if seen is False else "not watched all of 3 s")


def test_without_clocks_nothing_is_told() -> None:
    seen = timeline(at(0.5, sick=True))
    (found,) = sightings(landed(error_s=math.inf), seen, [AGENT], (event(0.4, 0.6),), LIMIT_S)
    assert found.seen is None


@given(st.booleans(), st.booleans(), st.floats(0.02, 5), st.booleans())
def test_nobody_is_said_to_see_without_a_sign(reads: bool, tells: bool, after_s: float, marked: bool) -> None:
    watcher = Watcher("agent", ("GpuXidError",) if tells else (), reads)
    text = f"x {MARKER}" if marked else "x"
    found = look(at(after_s, conditions={"GpuXidError": ("True", "Xid", text)}), watcher=watcher)
    assert (found.seen is True) == (marked and tells)
