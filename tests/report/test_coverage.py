"""The table of detection coverage: from a journal's activities to text, JSON and page."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.report.coverage import Cell, Table, coverage_in
from chaos_gpu.report.fold import fold
from chaos_gpu.report.html import as_html
from chaos_gpu.report.text import as_text
from tests.report.journals import journal

Json = dict[str, Any]


def cell(detector: str, seen: bool | None, seconds: float | None = None, why: str = "") -> Json:
    by = "condition X" if seen else ""
    return {"detector": detector, "seen": seen, "by": by, "seconds": seconds, "error_s": seconds and 0.01, "why": why}


def row(fault: str, *cells: Json, **more: Any) -> Json:
    facts = {"code": 48, "form": "plain", "variant": "", "transport": "both", "node": "n", "limit_s": 3.0}
    return {"fault": fault, **facts, **more, "detectors": list(cells)}


def activity(coverage: Any, func: str = "detectors_see", module: str = "chaos_gpu.probes.device") -> Json:
    provider = {"type": "python", "module": module, "func": func}
    return {"activity": {"name": "x", "provider": provider}, "status": "succeeded", "output": {"coverage": coverage}}


ROWS = [
    row("a", cell("agent", True, 0.25), cell("journal", False)),
    row("b", cell("agent", True, 0.5), cell("journal", True, 0.125), code=95, form="mig", variant="1/0"),
    row("c", cell("agent", False), cell("gpud", None, why="tells nothing"), code=24007, form="sxid"),
]
JOURNAL = {**journal(), "run": [activity(each) for each in ROWS]}


def test_the_table_in_words() -> None:
    assert coverage_in(JOURNAL).lines() == [
        "detection coverage  transport  agent                              journal                            gpud",
        "Xid 48 plain        both       0.250 s ± 0.010 s                  not seen                           "
        "cannot be told",
        "Xid 95 mig 1/0      both       0.500 s ± 0.010 s                  0.125 s ± 0.010 s                  "
        "cannot be told",
        "SXid 24007 sxid     both       not seen                           cannot be told                     "
        "cannot be told",
        "seen                           2 of 3, slowest 0.500 s ± 0.010 s  1 of 2, slowest 0.125 s ± 0.010 s  "
        "cannot be told",
    ]


def test_the_report_has_it_in_all_forms() -> None:
    result = fold(JOURNAL)
    text, page = as_text([("device/x", result)]), as_html([("device/x", result)])
    assert "      Xid 95 mig 1/0      both       0.500 s" in text
    assert result.as_json()["coverage"] == ROWS
    assert page.count('<td class="seen"') == 3
    assert page.count('<td class="not-seen"') == 2
    assert page.count('<td class="cannot-be-told"') == 4
    assert 'title="tells nothing"' in page
    assert 'title="condition X"' in page
    assert ">2 of 3, slowest 0.500 s ± 0.010 s</th>" in page
    widths = [part.partition('"')[0] for part in page.split('class="bar" style="width: ')[1:]]
    assert widths == ["3.00rem", "6.00rem", "1.50rem"], "one scale for all columns"
    assert page.index("Detection coverage") < page.index("<th>criterion</th>"), "ahead of what it is made of"


def test_without_coverage_the_report_does_not_speak_of_it() -> None:
    result = fold(journal())
    assert result.coverage == Table()
    assert result.as_json()["coverage"] == []
    assert "coverage" not in as_text([("x", result)])
    assert "Detection coverage" not in as_html([("x", result)])


def test_a_refused_run_shows_what_was_found_before() -> None:
    result = fold({**JOURNAL, "chaos_gpu": None})
    assert len(result.coverage.rows) == 3


@pytest.mark.parametrize(
    "broken",
    [
        {},
        None,
        {**ROWS[0], "detectors": [{**ROWS[0]["detectors"][0], "seconds": float("nan")}]},
        {**ROWS[0], "limit_s": "soon"},
        {**ROWS[0], "detectors": 3},
    ],
)
def test_what_is_not_as_expected_is_left_out(broken: Any) -> None:
    table = coverage_in({"run": [activity(broken), activity(ROWS[1]), "x", {"activity": 3}]})
    assert [each.fault for each in table.rows] == ["b"]


@pytest.mark.parametrize("called", [("other", "chaos_gpu.probes.device"), ("detectors_see", "theirs")])
def test_other_activities_do_not_count(called: tuple[str, str]) -> None:
    assert coverage_in({"run": [activity(ROWS[0], *called)]}) == Table()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ROWS[0], "x"]), inner, max_size=5),
    max_leaves=10,
)


@given(st.lists(ANYTHING.map(activity) | ANYTHING, max_size=3) | ANYTHING)
def test_nothing_in_a_journal_can_raise(run: Any) -> None:
    table = coverage_in({"run": run})
    assert isinstance(table.lines(), list)
    as_html([("x", fold({**journal(), "run": run}))])


def test_a_time_of_nothing_is_drawn_too() -> None:
    table = coverage_in({"run": [activity(row("a", cell("agent", True, 0.0)))]})
    assert table.longest_s > 0
    assert table.rows[0].cell("agent").text == "0.000 s ± 0.000 s"
    assert table.rows[0].cell("nobody") == Cell(detector="nobody", seen=None, why="not there")


@pytest.mark.parametrize(
    ("seen", "seconds", "text"),
    [(True, None, "seen"), (True, 1.0, "1.000 s"), (False, 1.0, "not seen"), (False, None, "not seen")],
)
def test_a_cell_in_words(seen: bool, seconds: float | None, text: str) -> None:
    assert Cell(detector="x", seen=seen, seconds=seconds).text == text


@pytest.mark.parametrize(
    ("seconds", "error_s", "text"),
    [
        (0.5, 0.1, "0.500 s ± 0.100 s"),
        (0.104, 0.111, "at most 0.215 s"),
        (0.1, 0.1, "at most 0.200 s"),
        (-0.01, 0.1, "at most 0.100 s"),
    ],
)
def test_a_time_below_its_own_error_is_no_time(seconds: float, error_s: float, text: str) -> None:
    told = Cell(detector="x", seen=True, seconds=seconds, error_s=error_s)
    assert told.text == text
    assert told.drawn_s == pytest.approx(float(text.removeprefix("at most ").split()[0])), "the bar says the same"


def test_a_share_counts_what_can_be_told_and_times_what_was_seen() -> None:
    cells = [cell("agent", True), cell("agent", False, 9.0), cell("agent", None, 8.0), cell("agent", True, 0.5)]
    table = coverage_in({"run": [activity(row(str(number), each)) for number, each in enumerate(cells)]})
    assert [share.text for share in table.shares] == ["2 of 3, slowest 0.500 s ± 0.010 s"]
