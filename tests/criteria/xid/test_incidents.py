"""Incidents: one fault is one, however many records tell of it, and two are two."""

import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.xid.event import Event
from chaos_gpu.criteria.xid.guide import GUIDE, advice_for, gravity
from chaos_gpu.criteria.xid.incidents import (
    BURST_S,
    MAX_CODES,
    MAX_INCIDENTS,
    MAX_REMEMBERED,
    REPEAT_S,
    Incident,
    Incidents,
    incidents_of,
)
from chaos_gpu.criteria.xid.moment import Moment, gap_s, moment_of
from chaos_gpu.criteria.xid.reader import read_line
from chaos_gpu.criteria.xid.stream import read_log
from tests.criteria.xid.corpus import LINES, REAL


def xid(rest: str, at_s: float | None = None, pci: str = "0000:3b:00") -> str:
    stamp = "" if at_s is None else f"[{at_s:13.6f}] "
    return f"{stamp}NVRM: Xid (PCI:{pci}): {rest}"


def fold(*lines: str) -> list[Incident]:
    return incidents_of(read_log(["\n".join(lines).encode()]))


def codes(*lines: str) -> list[dict[int, int]]:
    return [incident.counts for incident in fold(*lines)]


def test_a_burst_of_an_h200_is_one_incident() -> None:
    found = fold(*(row["record"] for row in REAL))
    assert [incident.counts for incident in found] == [{31: 1}, {13: 3}, {43: 1}]
    assert [incident.faults for incident in found] == [1, 1, 1]
    assert [incident.culprit.pid for incident in found if incident.culprit] == [469, 488, 495]
    assert (found[1].first.seq, found[1].last.seq) == (362, 364)


def test_an_endless_recursion_is_one_incident_of_two_codes() -> None:
    (incident,) = fold(xid("13, a", 1.0), xid("13, b", 1.001), xid("43, pid=7, name=x, c", 1.002))
    assert incident.counts == {13: 2, 43: 1}
    assert incident.action == "RESTART_APP"


def test_a_million_duplicates_are_one_incident() -> None:
    line = (xid("95, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No", 1.0) + "\n").encode()
    incidents = Incidents()
    for event in read_log([line * 10_000]):
        for _ in range(100):
            incidents.add(event)
    (incident,) = incidents
    assert (incident.records, incident.faults, incidents.records) == (1_000_000, 1, 1_000_000)


@pytest.mark.parametrize("pace_s", [0.001, 1.0, 100.0])
def test_repetitions_are_one_incident_at_any_pace_up_to_the_limit(pace_s: float) -> None:
    lines = [xid(f"45, pid={number}, name=x, Ch {number:08x}", 10 + number * pace_s) for number in range(50)]
    (incident,) = fold(*lines)
    assert incident.records == 50
    assert incident.faults == (1 if pace_s <= BURST_S else 50)


def test_the_limits() -> None:
    assert BURST_S == 0.05
    assert REPEAT_S == 180.0
    assert len(fold(xid("13, a", 100.0), xid("43, a", 100.049))) == 1
    assert len(fold(xid("13, a", 100.0), xid("43, a", 100.0511))) == 2
    assert len(fold(xid("13, a", 100.0), xid("13, a", 279.9))) == 1
    assert len(fold(xid("13, a", 100.0), xid("13, a", 280.1))) == 2


def test_another_gpu_is_another_incident() -> None:
    assert codes(xid("13, a", 1.0), xid("13, a", 1.0, pci="0000:3c:00")) == [{13: 1}, {13: 1}]


def test_what_comes_between_does_not_split_a_repetition() -> None:
    assert codes(xid("31, a", 1.0), xid("79, a", 60.0), xid("31, a", 100.0)) == [{31: 2}, {79: 1}]


def test_without_times_a_code_that_comes_again_is_a_repetition() -> None:
    assert codes(xid("31, a"), xid("79, a"), xid("31, b")) == [{31: 2}, {79: 1}]
    assert codes(xid("31, a", 1.0), xid("31, b")) == [{31: 2}]
    assert codes(xid("31, a", 1.0), xid("79, b")) == [{31: 1}, {79: 1}]


def test_syslog_is_as_exact_as_a_second() -> None:
    head = "Nov 22 18:29:{:02} host kernel: "
    assert codes(head.format(1) + xid("13, a"), head.format(2) + xid("43, a")) == [{13: 1, 43: 1}]
    assert codes(head.format(1) + xid("13, a"), head.format(3) + xid("43, a")) == [{13: 1}, {43: 1}]


def kmsg(seq: int, usec: int, rest: str = "79, GPU has fallen off the bus.") -> str:
    return f"4,{seq},{usec},c;{xid(rest)}"


def test_a_replay_is_counted_once() -> None:
    once = [kmsg(360, 1_000_000), kmsg(361, 300_000_000, "13, x"), kmsg(362, 900_000_000, "13, x")]
    incidents = Incidents()
    for event in read_log(["\n".join([*once, *once, kmsg(363, 900_100_000, "13, x")]).encode()]):
        incidents.add(event)
    assert [incident.counts for incident in incidents] == [{79: 1}, {13: 1}, {13: 2}]
    assert (incidents.records, incidents.replayed) == (4, 3)


def test_another_boot_is_no_replay() -> None:
    assert len(fold(kmsg(360, 1_000_000), kmsg(360, 900_000_000))) == 2
    assert codes(kmsg(360, 1_000_000), kmsg(360, 1_000_001)) == [{79: 2}]
    assert codes(kmsg(360, 1_000_000), kmsg(360, 1_000_000, "79, x")) == [{79: 2}]
    assert codes(kmsg(360, 1_000_000), kmsg(360, 1_000_000, "13, x")) == [{79: 1, 13: 1}]


@pytest.mark.parametrize(
    ("texts", "action", "gravest"),
    [
        (["48, x"], "RESET_GPU", 48),
        (["48, x", "63, y"], "DRAIN_AND_RESET", 48),
        (["64, y", "48, x"], "DRAIN_AND_RESET", 48),
        (["45, x"], "RESTART_APP", 45),
        (["45, x", "79, y"], "RESTART_BM", 79),
        (["43, y", "45, x"], "IGNORE", 43),
        (["45, x", "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"], "RESET_GPU", 154),
        (
            ["13, x", "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"],
            "RESTART_BM",
            154,
        ),
        (["79, x", "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"], "RESTART_BM", 79),
        (["145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000001)"], "XID_154_EVAL", 145),
        (
            [
                "145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000001)",
                "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
                "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x4 (Drain and Reset)",
            ],
            "DRAIN_AND_RESET",
            145,
        ),
        (["999, x", "13, y"], "CONTACT_SUPPORT", 999),
    ],
)
def test_the_action_sees_all_records_together(texts: list[str], action: str, gravest: int) -> None:
    (incident,) = fold(*(xid(text, 1 + number / 1000) for number, text in enumerate(texts)))
    assert (incident.action, incident.gravest.code) == (action, gravest)


def test_a_fall_and_its_xid_are_one_incident() -> None:
    fall = "[     1.001000] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."
    (incident,) = fold(xid("79, GPU has fallen off the bus.", 1.0), fall)
    assert (incident.counts, incident.action, incident.gravest.kind) == ({79: 2}, "RESTART_BM", "xid")


def test_what_is_made_on_purpose_is_counted() -> None:
    (incident,) = fold(xid("79, x cgpu-0a1b2c3d", 1.0), xid("79, x", 2.0))
    assert (incident.injected, incident.records) == (1, 2)


def test_every_action_that_a_record_can_ask_for_has_words() -> None:
    asked = {event.action for row in LINES if (event := read_line(row["line"].encode()))}
    asked |= {event.action for code in range(1, 177) if (event := read_line(xid(f"{code}, x").encode()))}
    assert asked <= set(GUIDE)
    assert advice_for("SOMETHING_NEW") == GUIDE["CONTACT_SUPPORT"]
    assert gravity("SOMETHING_NEW") > max(gravity(action) for action in GUIDE)
    assert gravity("IGNORE") < gravity("RESTART_APP") < gravity("CONTACT_SUPPORT") < gravity("RESET_GPU")


def distinct(number: int) -> Iterator[Event]:
    for each in range(number):
        line = kmsg(each, each * 1_000_000_000, f"{each % 99 + 1}, x").replace("0000:3b", f"{each % 65536:04x}:3b")
        event = read_line(line.encode())
        assert event is not None
        yield event


def test_memory_does_not_grow_with_incidents() -> None:
    incidents = Incidents()
    for event in distinct(MAX_INCIDENTS + 10):
        incidents.add(event)
    assert (len(incidents), incidents.forgotten) == (MAX_INCIDENTS, 10)
    assert next(iter(incidents)).first.seq == 10
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for event in distinct(2 * MAX_INCIDENTS):
        incidents.add(event)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(incidents) == len(incidents._latest) == len(incidents._by_code) == MAX_INCIDENTS
    assert grown < MAX_INCIDENTS * 4000
    assert MAX_REMEMBERED == 65_536


def test_a_burst_of_very_many_codes_is_split() -> None:
    found = fold(*(xid(f"{code}, x", 1.0) for code in range(1, MAX_CODES + 11)))
    assert [len(incident.counts) for incident in found] == [MAX_CODES, 10]


@pytest.mark.parametrize(
    ("stamp", "moment"),
    [
        ("12.5", Moment("uptime", 12.5, 1e-6)),
        ("966.503025 <    0.000012>", Moment("uptime", 966.503025, 1e-6)),
        ("1748319536.5", Moment("unix", 1748319536.5, 1e-6)),
        ("2025-05-27T04:18:56,500000+00:00", Moment("unix", 1748319536.5, 1e-3)),
        ("2025-05-27T05:18:56+0100", Moment("unix", 1748319536.0, 1.0)),
        ("Nov 22 18:29:55", Moment("wall", 739212 * 86400 + 66595, 1.0)),
        ("Nov  2 18:29:55.25", Moment("wall", 739192 * 86400 + 66595.25, 1e-3)),
        ("Fri Oct 14 14:56:49 2022", Moment("wall", 738442 * 86400 + 53809, 1.0)),
        ("Oct14 14:56", Moment("wall", 739173 * 86400 + 53760, 60.0)),
        ("Tue 2025-05-27 04:18:56 UTC", Moment("wall", 739398 * 86400 + 15536, 1.0)),
        ("+0.000012", None),
        ("Feb 30 18:29:55", None),
        ("Foo 30 18:29:55", None),
        ("2025-02-30T04:18:56Z", None),
        ("", None),
    ],
)
def test_times(stamp: str, moment: Moment | None) -> None:
    event = read_line(xid("79, x").encode())
    assert event is not None
    assert moment_of(event._replace(stamp=stamp)) == moment
    assert moment_of(event._replace(stamp=stamp, usec=2_500_000)) == Moment("uptime", 2.5, 1e-6)


def test_gaps() -> None:
    assert gap_s(Moment("uptime", 1.0, 0.0), Moment("uptime", 3.0, 0.0)) == 2.0
    assert gap_s(Moment("uptime", 3.0, 0.0), Moment("uptime", 1.0, 0.5)) == 1.5
    assert gap_s(Moment("uptime", 3.0, 5.0), Moment("uptime", 1.0, 0.5)) == 0.0
    assert gap_s(Moment("uptime", 1.0, 0.0), Moment("wall", 1.0, 0.0)) is None


@given(st.lists(st.tuples(st.sampled_from(LINES), st.floats(0, 1e6) | st.none(), st.booleans())))
def test_no_record_is_lost(rows: list[tuple[dict[str, str], float | None, bool]]) -> None:
    lines = [row["line"] if at_s is None else f"[{at_s:13.6f}] {row['line']}" for row, at_s, _ in rows]
    events = [event for line in lines if (event := read_line(line.encode()))]
    found = incidents_of(events)
    assert sum(incident.records for incident in found) == len(events)
    for incident in found:
        assert incident.records == sum(incident.counts.values())
        assert incident.counts.keys() == incident.examples.keys()
        assert 1 <= incident.faults <= incident.records
        assert incident.gravest in incident.examples.values()
