"""A run as JUnit XML: one test suite per experiment, one test case per criterion.

Inconclusive is an `error`, not `skipped`: CI systems count skipped tests as fine, and a promise that was not shown is
not. What has no criterion (refused, not recovered, a signal) is a test case of its own, named `run`.
"""

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from chaos_gpu.report.fold import CriterionResult, Ending, Result
from chaos_gpu.verdict import Outcome

# What XML 1.0 cannot carry, escaped or not.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(results: Sequence[tuple[str, Result]]) -> str:
    """Return one XML document for several runs, each with its name."""
    root = ET.Element("testsuites", name="chaos-gpu")
    for name, result in results:
        root.append(_suite(name, result))
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    root.set("time", f"{sum(result.seconds for _, result in results):.3f}")
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(name: str, result: Result) -> ET.Element:
    cases = [_criterion_case(name, criterion, result) for criterion in result.criteria]
    explained = {criterion.outcome.value for criterion in result.criteria}
    if result.outcome not in explained:
        cases.append(_run_case(name, result))
    suite = ET.Element("testsuite", name=_clean(name), time=f"{result.seconds:.3f}", tests=str(len(cases)))
    if result.started:
        suite.set("timestamp", _clean(result.started))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
    properties = ET.SubElement(suite, "properties")
    for key, value in (("outcome", result.outcome), ("run", result.record.run if result.record else "")):
        ET.SubElement(properties, "property", name=key, value=_clean(value))
    suite.extend(cases)
    return suite


def _criterion_case(name: str, criterion: CriterionResult, result: Result) -> ET.Element:
    case = ET.Element("testcase", classname=_clean(name), name=_clean(criterion.id), time="0")
    if criterion.outcome is not Outcome.PASS:
        lines = [line for reason in criterion.reasons for line in (reason.reason, reason.remedy) if line]
        _trouble(case, criterion.outcome.value, lines)
    told = "\n".join(f"{verdict.outcome}: {verdict.reason}" for verdict in criterion.verdicts)
    ET.SubElement(case, "system-out").text = _clean(told)
    return case


def _run_case(name: str, result: Result) -> ET.Element:
    case = ET.Element("testcase", classname=_clean(name), name="run", time=f"{result.seconds:.3f}")
    if result.ending is not Ending.PASS:
        lines = [line for reason in result.reasons for line in (reason.reason, reason.remedy) if line]
        _trouble(case, result.outcome, lines)
    return case


def _trouble(case: ET.Element, outcome: str, lines: list[str]) -> None:
    tag = "failure" if outcome == Outcome.FAIL else "error"
    message = lines[0] if lines else outcome
    ET.SubElement(case, tag, type=outcome, message=_clean(message)).text = _clean("\n".join(lines))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
