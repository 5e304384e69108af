"""The report's forms: what a terminal, a CI system and a browser are given."""

from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.report.chart import MARGIN, WIDTH, charts
from chaos_gpu.report.fold import Result, fold
from chaos_gpu.report.html import as_html
from chaos_gpu.report.junit import as_junit
from chaos_gpu.report.text import as_text, one_line
from chaos_gpu.verdict import Verdict
from tests.report.journals import journal, verdict

EVIDENCE: dict[str, Any] = {
    "record": {"marker": "cgpu-0a1b2c3d", "code": 48, "node": "gpu-1", "pci": "0000:3b:00"},
    "events": [
        {"what": "record", "node": "gpu-1", "after_s": 0.0},
        {"what": "condition", "node": "gpu-1", "after_s": 0.5, "condition": "GpuXidError", "status": "True"},
        {"what": "cordon", "node": "gpu-1", "after_s": 2.5},
    ],
    "limit_s": 3.0,
}
PASSED = fold(journal())
FAILED = fold(
    journal(
        planned={"DEV-02": 2, "DEV-07": 1},
        verdicts=[verdict(evidence=EVIDENCE), verdict("DEV-07", "fail", "late", remedy="look")],
    )
)
REFUSED = fold(journal(refused={"reason": "not opted in", "remedy": "chaos-gpu install"}, planned={}, verdicts=[]))
LEFT = fold(journal(recovery={"restored": [], "open": ["node gpu-1 is still cordoned"]}))


class TestText:
    """For a terminal."""

    def test_one_line(self) -> None:
        assert one_line(PASSED, "device/x", "r.html") == "pass  device/x  12.3 s  report: r.html"
        assert one_line(PASSED, "device/x") == "pass  device/x  12.3 s"

    def test_everything(self) -> None:
        assert as_text([("device/x", FAILED)]).splitlines() == [
            "fail  device/x  12.3 s",
            "      A fatal Xid takes its node out of service",
            "      run 1129-120000-abcdef, started 2026-11-29T12:00:00",
            "      DEV-02 inconclusive, 1 of 2 verdicts",
            "        pass: seen after 1.000 s",
            "      DEV-07 fail, 1 of 1 verdicts",
            "        fail: late",
            "      why fail:",
            "        DEV-02 inconclusive: 1 of 2 verdicts were given",
            "          see the run's log for the activity that failed",
            "        DEV-07 fail: late",
            "          look",
            "      restored: injector pod ended",
        ]

    def test_what_two_probes_say_alike_is_said_once(self) -> None:
        result = fold(journal(planned={"DEV-02": 3}, verdicts=[verdict(), verdict(reason="other"), verdict()]))
        said = [line.strip() for line in as_text([("x", result)]).splitlines() if "pass: " in line]
        assert said == ["pass: seen after 1.000 s (2 times)", "pass: other"]
        page = _Page(as_html([("x", result)]))
        assert len([tag for tag, _ in page.tags if tag == "details"]) == 2
        assert len([tag for tag, _ in page.tags if tag == "pre"]) == 3, "each with its own evidence"


class TestJunit:
    """For CI systems."""

    def test_one_case_a_criterion_and_inconclusive_is_an_error(self) -> None:
        root = ET.fromstring(as_junit([("device/x", FAILED)]))
        assert root.attrib == {"name": "chaos-gpu", "tests": "2", "failures": "1", "errors": "1", "time": "12.340"}
        suite = root[0]
        assert suite.get("name") == "device/x"
        assert [case.get("name") for case in suite.iter("testcase")] == ["DEV-02", "DEV-07"]
        error, failure = suite.find(".//error"), suite.find(".//failure")
        assert error is not None
        assert failure is not None
        assert (error.get("type"), failure.get("type")) == ("inconclusive", "fail")
        assert failure.get("message") == "DEV-07 fail: late"
        assert failure.text == "DEV-07 fail: late\nlook"

    def test_a_pass_has_neither(self) -> None:
        root = ET.fromstring(as_junit([("device/x", PASSED)]))
        assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("1", "0", "0")

    @pytest.mark.parametrize(("result", "kind"), [(REFUSED, "refused"), (LEFT, "not recovered")])
    def test_what_no_criterion_says_is_a_case_of_its_own(self, result: Result, kind: str) -> None:
        root = ET.fromstring(as_junit([("device/x", result)]))
        error = root.find(".//testcase[@name='run']/error")
        assert error is not None
        assert error.get("type") == kind
        assert int(root.get("errors", "0")) >= 1

    def test_a_failed_platform_beside_passing_criteria_is_a_failure(self) -> None:
        sick = fold(journal(platform_ready={"before": True, "after": False}))
        assert ET.fromstring(as_junit([("x", sick)])).find(".//testcase[@name='run']/failure") is not None

    def test_several_runs_are_several_suites(self) -> None:
        root = ET.fromstring(as_junit([("a", PASSED), ("b", FAILED)]))
        assert [suite.get("name") for suite in root] == ["a", "b"]
        assert root.get("tests") == "3"

    @given(st.text(), st.text())
    def test_any_text_makes_valid_xml(self, name: str, reason: str) -> None:
        result = fold(journal(verdicts=[verdict(outcome="fail", reason=reason)]))
        ET.fromstring(as_junit([(name, result)]).encode())


class _Page(HTMLParser):
    """Collects tags and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


class TestHtml:
    """For a browser."""

    def test_outcome_reasons_and_line_of_time(self) -> None:
        page = _Page(as_html([("device/x", FAILED)]))
        assert "Xid 48 on gpu-1, 0000:3b:00 (cgpu-0a1b2c3d)" in page.text
        assert "DEV-07 fail: late" in page.text
        assert "limit 3 s" in page.text
        kinds = [attributes["class"] for tag, attributes in page.tags if tag == "circle"]
        assert kinds == ["record", "condition", "cordon"]

    def test_it_fetches_nothing_and_runs_nothing(self) -> None:
        page = _Page(as_html([("device/x", FAILED)]))
        assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe"}
        assert not [attributes for _, attributes in page.tags if {"src", "href"} & set(attributes)]

    def test_nothing_in_a_journal_becomes_markup(self) -> None:
        bad = "<script>alert(1)</script>\"'&{{ 7*7 }}"
        record = {**EVIDENCE["record"], "node": bad}
        result = fold(
            journal(verdicts=[verdict(outcome="fail", reason=bad, evidence={**EVIDENCE, "record": record, bad: bad})])
        )
        page = _Page(as_html([(bad, result)]))
        assert "script" not in {tag for tag, _ in page.tags}
        assert bad in page.text

    @pytest.mark.parametrize("result", [PASSED, REFUSED, LEFT])
    def test_any_outcome_makes_a_page(self, result: Result) -> None:
        assert result.outcome in _Page(as_html([("x", result)])).text


class TestChart:
    """The line of time."""

    def test_dots_lie_where_their_time_is(self) -> None:
        (chart,) = charts([Verdict.model_validate(verdict(evidence=EVIDENCE))])
        span = WIDTH - 2 * MARGIN
        assert [round(dot.x - MARGIN, 3) for dot in chart.dots] == [
            0,
            round(span * 0.5 / 3, 3),
            round(span * 2.5 / 3, 3),
        ]
        assert chart.limit_x == MARGIN + span
        assert [dot.label for dot in chart.dots] == [
            "Xid 48 on gpu-1 0.000 s",
            "GpuXidError=True on gpu-1 0.500 s",
            "cordon gpu-1 2.500 s",
        ]

    @pytest.mark.parametrize(
        ("record", "title"),
        [
            ({"called": "double-bit-ecc (DCGM field 311)"}, "double-bit-ecc (DCGM field 311) on gpu-1, 0000:3b:00"),
            ({"called": "Xid 79 (fallen gpu)"}, "Xid 79 (fallen gpu) on gpu-1, 0000:3b:00"),
            ({"called": "r2-none", "code": 0, "pci": ""}, "r2-none on gpu-1"),
            ({}, "Xid 48 on gpu-1, 0000:3b:00"),
        ],
        ids=["DCGM", "a form", "no GPU", "an old journal"],
    )
    def test_a_chart_is_headed_by_what_was_injected(self, record: dict[str, Any], title: str) -> None:
        evidence = {**EVIDENCE, "record": {**EVIDENCE["record"], **record}}
        (chart,) = charts([Verdict.model_validate(verdict(evidence=evidence))])
        assert chart.title == f"{title} (cgpu-0a1b2c3d)"
        assert chart.dots[0].label == f"{title.partition(' on ')[0]} on gpu-1 0.000 s"

    @given(st.floats(0.001, 1e8, allow_nan=False))
    def test_a_ticks_label_is_its_time(self, limit_s: float) -> None:
        (chart,) = charts([Verdict.model_validate(verdict(evidence={**EVIDENCE, "limit_s": limit_s}))])
        longest_s = max(2.5, limit_s)
        assert 3 <= len(chart.ticks) <= 6
        for x, label in chart.ticks:
            assert x == pytest.approx(MARGIN + float(label.removesuffix(" s")) / longest_s * (WIDTH - 2 * MARGIN))

    def test_one_chart_a_record_each_event_once(self) -> None:
        other = {**EVIDENCE, "record": {**EVIDENCE["record"], "marker": "cgpu-99999999"}}
        verdicts = [Verdict.model_validate(verdict(evidence=each)) for each in (EVIDENCE, EVIDENCE, other)]
        found = charts(verdicts)
        assert [len(chart.dots) for chart in found] == [3, 3]

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.fixed_dictionaries(
                    {}, optional={"what": inner, "after_s": inner, "marker": inner, "limit_s": inner}
                )
            ),
            max_leaves=8,
        ),
        st.sampled_from(["record", "events", "limit_s"]),
    )
    def test_any_evidence_makes_a_page(self, value: Any, key: str) -> None:
        result = fold(journal(verdicts=[verdict(evidence={**EVIDENCE, key: value})]))
        as_html([("x", result)])
        as_junit([("x", result)])
        as_text([("x", result)])
