"""Every output of DCGM comes to the right verdict; nothing passes on missing evidence, and any bytes are answered."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.dcgm.document import MAX_BYTES, find_documents
from chaos_gpu.criteria.dcgm.reader import read_output
from chaos_gpu.criteria.dcgm.report import Action, Report, Says
from chaos_gpu.criteria.dcgm.returns import MEANINGS, meaning_of
from chaos_gpu.criteria.dcgm.weigh import worst
from chaos_gpu.errors import UsageError
from tests.criteria.dcgm.corpus import (
    RUNS,
    SAMPLES,
    Run,
    as_bytes,
    diag3,
    diag4,
    error,
    gpu,
    sample,
)


def read(value: Any, exit_status: int | None = None) -> Report:
    return read_output(as_bytes(value), exit_status)


def facts(report: Report) -> tuple[str, str]:
    return str(report.verdict), str(report.action)


SHOULD = {
    "diag-3.1.json": ("3.1", "3.1.8", "r2", "fail", "triage"),
    "diag-3.3.json": ("3.3", "3.3.9", "r2", "fail", "isolate"),
    "diag-4.x.json": ("4.x", "4.6.0", "r2", "fail", "reset"),
    "diag-4.x-runtime-error.txt": ("4.x", "4.6.0", None, "inconclusive", "none"),
    "diag-iterations.json": ("4.x", "4.6.0", "r1", "fail", "triage"),
    "health-4.x.json": ("health", None, None, "fail", "triage"),
}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_the_samples(path: Any) -> None:
    found = read_output(path.read_bytes()).as_json()
    assert tuple(found[key] for key in ("schema", "version", "level", "verdict", "action")) == SHOULD[path.name]
    assert list(found) == ["schema", "version", "level", "results", "verdict", "action"]
    for result in found["results"]:
        assert list(result) == ["test", "entity", "uuid", "status", "errors"]
        assert all(list(each) == ["id", "category", "severity", "text"] for each in result["errors"])


def test_whole_results_of_three_schemas() -> None:
    """One line for each: what is printed, and what it means."""
    old, newer, new = (read_output(sample(f"diag-{name}.json")).reading.results for name in ("3.1", "3.3", "4.x"))
    assert [(each.test, each.entity, str(each.status)) for each in old] == [
        ("Denylist", None, "Pass"),
        ("Persistence Mode", None, "Warn"),
        ("PCIe", "GPU 0", "Pass"),
        ("PCIe", "GPU 1", "Skip"),
        ("GPU Memory", "GPU 0", "Fail"),
    ]
    assert old[4].errors[0]._asdict() == {
        "id": None,
        "category": None,
        "severity": None,
        "text": "Found 1 faulty memory elements on GPU 0 (synthetic)",
    }
    assert [(each.test, each.entity, str(each.status)) for each in newer] == [
        ("Denylist", None, "Pass"),
        ("Page Retirement/Row Remap", None, "Fail"),  # says gpu_id 0, means GPU 1
        ("Inforom", None, "Skip"),
        ("PCIe", "GPU 1", "Pass"),
        ("GPU Memory", "GPU 0", "Pass"),
        ("GPU Memory", "GPU 1", "Warn"),
    ]
    assert newer[1].errors[0][:3] == (80, "memory", "isolate")
    assert newer[1].errors[0].text.startswith("GPU 1 had")
    assert [(each.test, each.entity, str(each.status)) for each in new] == [
        ("software", "GPU 0", "Pass"),
        ("software", "GPU 1", "Fail"),
        ("pcie", "GPU 0", "Pass"),
        ("pcie", "GPU 1", "Skip"),
    ]
    assert new[1].errors[0][:3] == (80, "memory", "reset")


def outcome(run: Run) -> str:
    try:
        report = read_output(run.stdout.encode(), run.rc)
    except UsageError:
        return "error"
    return f"{report.reading.level or report.reading.schema} {report.verdict}"


def test_the_transcripts() -> None:
    judged = [run for run in RUNS if run.argv[1] in ("health", "diag") and "-s" not in run.argv and "-j" in run.argv]
    assert [(run.version, run.argv[1], run.rc, outcome(run)) for run in judged] == [
        ("4.6.0", "health", 253, "error"),
        ("4.6.0", "health", 0, "health fail"),
        ("4.6.0", "health", 0, "health fail"),
        ("4.6.0", "health", 0, "health fail"),
        ("4.6.0", "health", 0, "health inconclusive"),  # paused
        ("4.6.0", "diag", 202, "4.x inconclusive"),
        ("4.6.0", "diag", 0, "r1 pass"),
        ("4.6.0", "diag", 254, "error"),
        ("3.3.9", "health", 253, "error"),
        ("3.3.9", "health", 0, "health inconclusive"),
        ("3.3.9", "health", 0, "health fail"),
    ]


@pytest.mark.parametrize("run", [run for run in RUNS if "-j" not in run.argv], ids=lambda run: " ".join(run.argv[1:4]))
def test_what_is_no_json_is_an_error_that_says_what_it_is(run: Run) -> None:
    with pytest.raises(UsageError, match="no JSON in it; it says|is empty") as caught:
        read_output(run.stdout.encode(), run.rc)
    assert meaning_of(run.rc) in caught.value.reason


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Error: Health watches not enabled. Please enable watches. \n", "-s a"),
        ("+--+\n| Health Monitor Report |\n", "health -g 0 -c -j"),
        ("Successfully ran diagnostic for group.\n", "diag -r 2 -j"),
        ("Error: unable to establish a connection to the specified host: x\n", "nvidia-dcgm"),
        ("command terminated with exit code 127\n", "has dcgmi"),
        ("hello", "whole"),
    ],
)
def test_the_remedy_fits(text: str, remedy: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_output(text.encode())
    assert remedy in caught.value.remedy


# --- Pass, Warn, Fail, Skip ------------------------------------------------------------------------------------------

SEVERITY = [
    # severity, printed, status as meant, verdict, action
    (0, "Pass", "Warn", "warn", "none"),
    (0, "Fail", "Fail", "fail", "triage"),
    (1, "Pass", "Warn", "warn", "monitor"),
    (1, "Fail", "Warn", "warn", "monitor"),
    (1, "Warn", "Warn", "warn", "monitor"),
    (2, "Pass", "Fail", "fail", "isolate"),
    (2, "Fail", "Fail", "fail", "isolate"),
    (2, "Warn", "Fail", "fail", "isolate"),
    (2, "Skip", "Fail", "fail", "isolate"),
    (3, "Fail", "Fail", "fail", "triage"),
    (4, "Pass", "Fail", "fail", "triage"),
    (5, "Fail", "Warn", "warn", "config"),
    (6, "Fail", "Fail", "fail", "reset"),
    (7, "Fail", "Fail", "fail", "triage"),
    (99, "Pass", "Fail", "fail", "triage"),
    (None, "Fail", "Fail", "fail", "triage"),
    (None, "Pass", "Warn", "warn", "triage"),
    (5, "fail", "Warn", "warn", "config"),
]


@pytest.mark.parametrize(("severity", "printed", "status", "verdict", "action"), SEVERITY)
def test_severity_decides(severity: int | None, printed: str, status: str, verdict: str, action: str) -> None:
    for whole in (
        diag4(("software", [gpu(0, printed, error(9, severity))])),
        diag3(("PCIe", [{"gpu_id": "0", "status": printed, "warnings": [error(9, severity)]}])),
        diag3(("Inforom", [{"gpu_id": 0, "status": printed, "warnings": [error(9, severity, key="warnings")]}])),
    ):
        report = read(whole)
        assert [str(result.status) for result in report.reading.results] == [status]
        assert facts(report) == (verdict, action)
        assert report.reading.results[0].errors[0].text == "words"


@pytest.mark.parametrize(
    ("status", "verdict", "action"),
    [
        ("Pass", "pass", "none"),
        ("Warn", "warn", "triage"),
        ("Fail", "fail", "triage"),
        ("Skip", "inconclusive", "none"),
        ("Not Run", "inconclusive", "none"),
        ("", "inconclusive", "none"),
        ("Great", "inconclusive", "none"),
        (None, "inconclusive", "none"),
        (1, "inconclusive", "none"),
    ],
)
def test_status_without_errors(status: Any, verdict: str, action: str) -> None:
    assert facts(read(diag4(("software", [gpu(0, status)])))) == (verdict, action)


def test_the_gravest_action_of_several() -> None:
    order = {2: "isolate", 6: "reset", 4: "triage", 5: "config", 1: "monitor", 0: "none"}
    for graver, action in order.items():
        for lesser in list(order)[list(order).index(graver) :]:
            report = read(diag4(("software", [gpu(0, "Pass", error(1, lesser), error(2, graver))])))
            assert report.action == action


@pytest.mark.parametrize(
    ("number", "word"),
    [(3, "configuration"), (4, "driver"), (5, "driver"), (6, "cuda"), (9, "thermal"), (10, "memory"), (11, "nvlink")]
    + [(13, "pcie"), (14, "power"), (15, "hardware"), (16, "internal"), (0, "none"), (17, "unknown"), (None, None)],
)
def test_categories_are_the_documents_words(number: int | None, word: str | None) -> None:
    report = read(diag4(("software", [gpu(0, "Fail", error(1, 2, category=number))])))  # type: ignore[arg-type]
    assert report.reading.results[0].errors[0].category == word


def test_an_old_check_that_can_only_warn_is_a_warning() -> None:
    for name, verdict in (("Persistence Mode", "warn"), ("Denylist", "fail")):
        report = read(diag3((name, [{"status": "Fail", "warnings": "off"}]), version="3.1.8"))
        assert facts(report) == (verdict, "triage")


def test_errors_that_no_entity_has_stand_in_the_summary_and_repeated_ones_once() -> None:
    own, whole_node = error(80, 6), error(28, 5, text="Environment Variables: set")
    summary = {"status": "Fail", "warnings": [own, whole_node]}
    results = read(diag4(("software", [gpu(0, "Fail", own), gpu(1)]), test_summary=summary)).reading.results
    assert [(each.entity, str(each.status), [e.id for e in each.errors]) for each in results] == [
        ("GPU 0", "Fail", [80]),
        ("GPU 1", "Pass", []),
        (None, "Warn", [28]),
    ]


def test_a_failure_that_only_the_summary_explains_is_as_grave_as_that() -> None:
    for severity, verdict, action in ((5, "warn", "config"), (2, "fail", "isolate")):
        summary = {"status": "Fail", "warnings": [error(28, severity)]}
        report = read(diag4(("software", [gpu(0, "Fail"), gpu(1, "Pass")]), test_summary=summary))
        assert facts(report) == (verdict, action)
        assert report.reading.results[1].status == "Pass"


@pytest.mark.parametrize(
    ("summary", "verdict"), [("Fail", "fail"), ("Warn", "warn"), ("Skip", "pass"), ("?", "inconclusive")]
)
def test_a_summary_worse_than_its_results_counts(summary: str, verdict: str) -> None:
    assert read(diag4(("software", [gpu(0)]), test_summary={"status": summary})).verdict == verdict


# --- missing evidence ------------------------------------------------------------------------------------------------

SOFTWARE = ("software", [gpu(0), gpu(1)])


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (diag4(), "names no GPU"),
        (diag4(gpus=2), "no test ran"),
        (diag4(("software", [])), "software: no result"),
        (diag4(("software", [{"status": "Pass"}])), "names no GPU"),
        (diag4(("software", [{"entity_group": "CPU", "entity_id": 0, "status": "Pass"}])), "names no GPU"),
        (diag4(("software", [{"status": "Pass"}]), gpus=0), "names no GPU"),
        (diag4(("software", [gpu(0)]), gpus=2), "ran on 1 GPU, not on GPU 1"),
        (diag4(SOFTWARE, ("pcie", [gpu(0), gpu(1, "Skip")])), "pcie ran on 1 GPU, not on GPU 1"),
        (diag4(SOFTWARE, ("pcie", [gpu(0)])), "pcie ran on 1 GPU, not on GPU 1"),
        (diag4(SOFTWARE, ("pcie", [gpu(0, "Skip"), gpu(1, "Skip")])), "every test of r2 was skipped"),
        (diag4(("software", [gpu(0), None])), "no result in place 1"),
        (diag4(("software", [gpu(0, "Not Run")])), "no test ran"),
        (diag3(("PCIe", [{"gpu_id": "0", "status": "Pass"}]), gpus=2), "PCIe ran on 1 GPU of 2"),
        (diag3(("PCIe", [None, {"gpu_id": "1", "status": "Pass"}]), gpus=2), "PCIe: no result in place 0"),
        (diag3(("Denylist", [{"status": "Pass"}]), gpus=0), "names no GPU"),
        ({"iterations": []}, "no iteration"),
        ({"iterations": [None]}, "no iteration"),
        ({"iterations": [diag4(SOFTWARE), None], "Overall Result": "Pass"}, "1 of 2 iterations are empty"),
        ({"iterations": [diag4(SOFTWARE)], "Overall Result": None}, "neither Pass nor Fail"),
        ({"DCGM Diagnostic": {"runtime_error": "paused", "version": "4.6.0"}}, "could not run it: paused"),
        ({"DCGM Diagnostic": {"runtime_error": "", "version": "4.6.0"}}, "could not run it"),
        ({"DCGM GPU Diagnostic": {"runtime_error": "x", "version": "3.3.9"}}, "could not run it: x"),
        ({"DCGM Diagnostic": None}, "names no GPU"),
    ],
)
def test_nothing_passes_on_missing_evidence(whole: Any, why: str) -> None:
    report = read(whole)
    assert report.verdict == "inconclusive"
    assert any(why in reason for reason in report.reasons), report.reasons


def test_what_is_complete_passes() -> None:
    for whole in (
        diag4(SOFTWARE, ("memory", [gpu(0), gpu(1)]), ("pcie", [gpu(0), gpu(1)]), gpus=2),
        diag4(SOFTWARE, ("memory", [gpu(0), gpu(1)]), ("eud", [gpu(0, "Skip")]), ("diagnostic", [gpu(0), gpu(1)])),
        diag3(("Denylist", [{"status": "Pass"}]), ("Inforom", [{"status": "Skip"}])),
        diag3(("Denylist", [{"status": "Pass"}]), ("PCIe", [{"gpu_ids": "0,1", "status": "Pass"}]), version="3.1.8"),
        {"iterations": [diag4(SOFTWARE), diag4(SOFTWARE)], "Overall Result": "Pass"},
    ):
        assert facts(read(whole)) == ("pass", "none")
        assert read(whole).reasons == ()


def test_a_failure_is_one_whatever_else_is_missing_and_a_warning_is_not_a_pass() -> None:
    assert read(diag4(("software", [gpu(0, "Fail", error(80, 2)), None]), gpus=3)).verdict == "fail"
    missing = read(diag4(("software", [gpu(0, "Fail", error(29, 5))]), gpus=2))
    assert facts(missing) == ("inconclusive", "config")


def test_iterations_stand_for_themselves_and_the_worst_counts() -> None:
    bad = diag4(("software", [gpu(0), gpu(1, "Fail", error(4, 2))]))
    report = read({"iterations": [diag4(SOFTWARE), bad], "Overall Result": "Fail"})
    assert facts(report) == ("fail", "isolate")
    assert len(report.reading.results) == 4
    soft = diag4(("software", [gpu(0, "Fail", error(29, 5))]))
    assert facts(read({"iterations": [soft], "Overall Result": "Fail"})) == ("warn", "config")
    assert facts(read({"iterations": [diag4(SOFTWARE)], "Overall Result": "Fail"})) == ("fail", "triage")


def test_iterations_come_to_the_lowest_level_and_to_all_gpus() -> None:
    def ran(gpus: int, *tests: str) -> Any:
        return diag4(*((name, [gpu(number) for number in range(gpus)]) for name in tests))

    quick, whole = ran(2, "software"), ran(2, "software", "memory", "pcie")
    strange = ran(2, "sm stress")
    assert read({"iterations": [whole, quick]}).reading.level == "r1"
    assert read({"iterations": [quick, whole]}).reading.level == "r1"
    assert read({"iterations": [whole, strange]}).reading.level is None
    for order in ([ran(1, "software"), quick], [quick, ran(1, "software")]):
        assert read({"iterations": order}).reading.gpu_count == 2
    assert read({"iterations": [quick, None]}).reading.schema == "4.x"
    old = {"iterations": [diag3(("PCIe", [{"gpu_id": 0, "status": "Pass"}]))]}
    assert (read(old).reading.schema, read(old).reading.version) == ("3.3", "3.3.9")


def test_a_diagnosis_without_a_version_is_known_by_what_it_is_built_of() -> None:
    def schema(*results: Any, **more: Any) -> str:
        document = diag3(("PCIe", list(results)))
        del document["version"]
        return read({**document, **more}).reading.schema

    assert schema({"gpu_ids": "0", "status": "Pass"}) == "3.1"
    assert schema({"gpu_ids": "0", "status": "Pass"}, **{"GPU Device Serials": {"0": "1"}}) == "3.3"
    assert schema({"gpu_ids": "0", "status": "Pass"}, {"gpu_id": 0, "status": "Pass"}) == "3.3"
    assert schema({"status": "Pass", "warnings": []}, {"status": "Pass"}) == "3.3"
    assert schema(None, {"gpu_ids": "0", "status": "Pass"}) == "3.1"


def test_a_skipped_test_with_an_error_stays_skipped_and_is_a_warning() -> None:
    report = read(diag4(("software", [gpu(0)]), ("permissions and os blocks", [gpu(0, "Skip", error(1, 1))])))
    assert [str(result.status) for result in report.reading.results] == ["Pass", "Skip"]
    assert facts(report) == ("warn", "monitor")


def test_an_exit_status_that_is_no_results_own_makes_a_warning_inconclusive() -> None:
    warned = diag4(("software", [gpu(0, "Fail", error(1, 1))]))
    assert [read(warned, rc).verdict for rc in (0, 226, 217)] == ["warn", "warn", "inconclusive"]


def test_the_worst_of_nothing_is_not_known() -> None:
    assert worst([]) is Says.INCONCLUSIVE


def test_only_gpus_are_counted_among_the_entities() -> None:
    document = diag4(("software", [gpu(0)]), gpus=1)
    document["entity_groups"].append({"entity_group": "CPU", "entities": [{"entity_id": 1}]})
    document["entity_groups"][0]["entities"].append({"entity_id": None})
    assert read(document).reading.gpus == {"GPU 0"}


def test_a_status_that_nobody_knows_is_not_one_that_did_not_run() -> None:
    odd, none = (read(diag4(("software", [gpu(0, status)]))).reading.results[0].status for status in ("Odd", ""))
    assert (str(odd), str(none)) == ("Unknown", "Not Run")
    named = read(diag4(("software", [gpu(0, "Unknown")]))).reading.results[0]
    assert str(named.status) == "Unknown"


def test_a_graver_severity_than_a_configuration_checks_own_stays() -> None:
    document = diag4(("Persistence Mode", [gpu(0, "Fail", error(1, 2))]))
    assert read(document).reading.results[0].errors[0].severity == "isolate"


def test_a_skus_id_is_no_gpu() -> None:
    whole = diag3(("GPU Memory", [{"gpu_id": "0", "status": "Fail", "warnings": [error(52, 2)]}]), gpus=2)
    assert read(whole).reading.gpus == {"GPU 0"}
    assert "2330" not in json.dumps(read(whole).as_json())


@pytest.mark.parametrize(
    ("whole", "schema"),
    [
        (diag3(version="3.2.6"), "3.1"),
        (diag3(version="3.3.0"), "3.3"),
        (diag3(version="4.0.0"), "3.3"),
        (diag3(("PCIe", [{"gpu_id": "0", "status": "Pass"}]), version=""), "3.3"),
        (diag3(("PCIe", [{"gpu_ids": "0", "status": "Pass"}]), version=""), "3.1"),
        (diag3(("Inforom", [{"status": "Fail", "warnings": [error(9, 4)]}]), version="?"), "3.3"),
        (diag4(), "4.x"),
    ],
)
def test_schemas(whole: Any, schema: str) -> None:
    assert read(whole).reading.schema == schema


@pytest.mark.parametrize(
    ("ids", "entity"),
    [
        ({"gpu_id": "3"}, "GPU 3"),
        ({"gpu_id": 3}, "GPU 3"),
        ({"gpu_id": True}, None),
        ({"gpu_id": "x"}, None),
        ({"gpu_ids": " 3 "}, "GPU 3"),
        ({"entity_id": 3}, "GPU 3"),
        ({"entity_group": "CPU", "entity_id": 3}, "CPU 3"),
        ({"entity_group": "GPU", "gpu_id": "3"}, None),
        ({}, None),
    ],
)
def test_entities(ids: dict[str, Any], entity: str | None) -> None:
    (result,) = read(diag3(("PCIe", [{"status": "Pass"} | ids]))).reading.results
    assert result.entity == entity


def test_serials_name_gpus_and_only_gpus() -> None:
    whole = diag3(("Denylist", [{"status": "Pass"}])) | {
        "GPU Device Serials": {"0": "1", "4": "2", "x": "3", "5,6": "4"}
    }
    assert read(whole).reading.gpus == {"GPU 0", "GPU 4"}


# --- exit status -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("results", "exit_status", "verdict", "action"),
    [
        ([gpu(0)], 0, "pass", "none"),
        ([gpu(0)], 226, "inconclusive", "none"),
        ([gpu(0)], 205, "fail", "isolate"),
        ([gpu(0)], 202, "inconclusive", "none"),
        ([gpu(0)], 1, "inconclusive", "none"),
        ([gpu(0)], 77, "inconclusive", "none"),
        ([gpu(0, "Fail", error(29, 5))], 226, "warn", "config"),
        ([gpu(0, "Fail", error(29, 5))], 0, "warn", "config"),
        ([gpu(0, "Fail", error(80, 6))], 226, "fail", "reset"),
        ([gpu(0, "Pass", error(56, 4))], 226, "fail", "triage"),
        ([gpu(0, "Fail", error(80, 6))], 205, "fail", "isolate"),
    ],
)
def test_the_exit_status_counts(results: list[Any], exit_status: int, verdict: str, action: str) -> None:
    assert facts(read(diag4(("software", results)), exit_status)) == (verdict, action)


def test_every_exit_status_of_the_transcripts_is_in_the_table() -> None:
    assert {run.rc for run in RUNS} <= set(MEANINGS)
    assert "not a status" in meaning_of(77)


# --- noise, truncation, strange bytes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "noise",
    [
        "Error: unable to establish a connection to the specified host: x\n",
        "\ufeff",
        "a { b } {c\n",
        '{"level": 3}\n',
        "2026 ",
    ],
)
def test_noise_around_the_json(noise: str) -> None:
    clean = read_output(sample("diag-4.x.json"))
    noisy = read_output(noise.encode() + sample("diag-4.x.json") + b"\n\ncommand terminated with exit code 226\n")
    assert noisy.as_json() == clean.as_json()


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_every_truncation_is_an_error(path: Any) -> None:
    data = path.read_bytes().rstrip()
    for end in range(len(data)):
        with pytest.raises(UsageError):
            read_output(data[:end], 0)


def test_what_is_cut_off_says_so() -> None:
    with pytest.raises(UsageError, match="cut off at its end"):
        read_output(sample("diag-4.x.json")[:700], 0)


def test_a_whole_document_inside_one_that_is_cut_off_is_not_believed() -> None:
    good = json.dumps({"iterations": [diag4(SOFTWARE), diag4(SOFTWARE)]})
    with pytest.raises(UsageError, match="cut off"):
        read_output(good[: len(good) // 2 + 20].encode())


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (b"", "empty"),
        (b" \n\0\n", "no JSON|empty"),
        (b"{}", "no JSON"),
        (b'{"a": 1}', "none of DCGM's"),
        (b'{"DCGM Diagnostic": {}, "DCGM Diagnostic": {}}', "stands twice"),
        (b'{"DCGM Diagnostic": {"x": NaN}}', "NaN"),
        (b'{"DCGM Diagnostic": {"x": ' + b"9" * 5000 + b"}}", "broken"),
        (b'{"DCGM Diagnostic": {"x": 1,}}', "broken at line 1"),
        (b'{"a":' * 100_000, "nested too deeply|cut off"),
        (b'{"DCGM Diagnostic": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"DCGM Diagnostic": []}', "no object"),
        (b'{"DCGM Diagnostic": {"test_categories": {}}}', "no list"),
        (b'{"DCGM Diagnostic": {"test_categories": [1]}}', "no object"),
        (as_bytes(diag4()) * 2, "2 documents"),
        (b" " * (MAX_BYTES + 1), "longer than 4 MiB"),
    ],
    ids=lambda value: value[:30].decode() if isinstance(value, bytes) else value,
)
def test_what_is_broken_is_an_error(output: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_output(output)


def test_huge_numbers_and_wrong_types_are_unknown_not_believed() -> None:
    for number in (10**4000, -1, 1.5, True, "80", [80]):
        strange = {"error_id": number, "error_category": number, "error_severity": number, "warning": [number]}
        report = read(diag4(("software", [gpu(0, "Fail", strange)])))
        assert facts(report) == ("fail", "triage")
        assert report.reading.results[0].errors[0] == (None, "unknown", "unknown", "")


def test_halves_of_surrogate_pairs_do_not_reach_the_output() -> None:
    report = read(diag4(("\ud800", [gpu(0, "Fail", error(1, 2, text="\udfff"))])))
    assert json.dumps(report.as_json(), ensure_ascii=False).encode()


@pytest.mark.parametrize("unit", [b"[],", b'{"a":1},', b'"",', b"1,"])
def test_memory_is_bounded(unit: bytes) -> None:
    size = 1 << 18
    output = b'{"a":[' + unit * (size // len(unit)) + b"0]}"
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="none of DCGM's"):
            read_output(output)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 64 * len(output)


def answers(output: bytes) -> Report | None:
    try:
        return read_output(output)
    except UsageError:
        return None


@given(st.binary(max_size=400))
def test_any_bytes_raise_only_the_declared_error(output: bytes) -> None:
    answers(output)
    answers(b'{"DCGM Diagnostic": ' + output)
    answers(b"DCGM_FI_DEV_GPU_TEMP" + output)


@given(st.sampled_from(SAMPLES), st.integers(0, 1400), st.integers(0, 40), st.binary(max_size=8))
def test_damaged_samples_raise_only_the_declared_error(path: Any, at: int, length: int, other: bytes) -> None:
    data = path.read_bytes()
    answers(data[:at] + other + data[at + length :])


KEYS = ["test_categories", "tests", "results", "status", "warnings", "error_id", "error_severity", "entity_id", "name"]
KEYS += ["entity_group", "gpu_id", "gpu_ids", "test_summary", "category", "entity_groups", "entities", "children"]
KEYS += [
    "DCGM Diagnostic",
    "DCGM GPU Diagnostic",
    "iterations",
    "body",
    "Overall Health",
    "Errors",
    "value",
    "overflow",
]
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["Pass", "Fail", "Healthy", "0", ""])
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(
    st.sampled_from(["DCGM Diagnostic", "DCGM GPU Diagnostic", "iterations", "body", "GPU Device Serials"]),
    ANYTHING,
    ANYTHING,
)
def test_any_structure_raises_only_the_declared_error(key: str, value: Any, other: Any) -> None:
    whole = {key: value} | (other if isinstance(other, dict) else {})
    report = answers(as_bytes(whole))
    assert report is None or json.dumps(report.as_json(), ensure_ascii=False).encode()


STATUSES = st.sampled_from(["Pass", "Fail", "Skip", "Warn", "Not Run", ""])
RESULTS = st.lists(
    st.builds(
        lambda number, status, severities: gpu(number, status, *[error(1, each) for each in severities]),
        st.integers(0, 3),
        STATUSES,
        st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6]), max_size=2),
    ),
    max_size=5,
)


@given(st.lists(st.tuples(st.sampled_from(["software", "pcie", "memtest"]), RESULTS), max_size=4))
def test_only_passes_pass_and_the_gravest_error_decides(tests: list[tuple[str, list[Any]]]) -> None:
    report = read(diag4(*tests))
    results = [result for _, of_test in tests for result in of_test]
    severities = {each["error_severity"] for result in results for each in result.get("warnings", [])}
    if report.verdict is Says.PASS:
        assert not severities
        assert {result["status"] for result in results} <= {"Pass", "Skip"}
        assert "Pass" in {result["status"] for result in results}
    if severities & {2, 3, 4, 6}:
        assert report.verdict is Says.FAIL
    if 2 in severities:
        assert report.action is Action.ISOLATE


def test_documents_are_found_in_order() -> None:
    found = find_documents(b'x {"a": 1} y\n{"b": {"c": 2}} z')
    assert [(each.document, each.noise) for each in found] == [({"a": 1}, "x"), ({"b": {"c": 2}}, "y")]
