"""`chaos-gpu explain dcgm`: from files and pipes, for people and for programs."""

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos_gpu.cli import main as entry
from tests.criteria.dcgm.corpus import DATA, as_bytes, diag4, error, gpu, sample

Explain = Callable[..., tuple[int, str, str]]
KEYS = ["schema", "version", "level", "results", "verdict", "action"]


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Explain:
    """Run the command on the given input; return exit code, output, errors."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main() replaces it; put back afterwards

    def run(*args: str, given: bytes = b"") -> tuple[int, str, str]:
        (tmp_path / "given").write_bytes(given)
        with (tmp_path / "given").open("rb") as file:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            code = entry.main(["explain", "dcgm", *args])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


def test_json_is_one_document(explain: Explain) -> None:
    code, out, err = explain(str(DATA / "diag-3.3.json"), "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert list(found) == KEYS
    assert (found["schema"], found["level"], found["verdict"], found["action"]) == ("3.3", "r2", "fail", "isolate")


@pytest.mark.parametrize("args", [["--json"], ["-", "--json"], ["--json", "-"]])
def test_json_of_standard_input(explain: Explain, args: list[str]) -> None:
    assert json.loads(explain(*args, given=sample("diag-4.x.json"))[1])["action"] == "reset"


def test_a_person_sees_verdict_action_and_the_gravest_first(explain: Explain) -> None:
    code, out, err = explain(str(DATA / "diag-3.3.json"))
    assert (code, err) == (0, "")
    assert out.startswith(
        "fail: diagnostic r2 of 2 GPUs, DCGM 3.3.9\n    action   isolate: take the node out of service\n"
    )
    assert "tests    6 results of 5 tests: 3 Pass, 1 Warn, 1 Fail, 1 Skip" in out
    assert "why      PCIe: no result in place 0" in out
    assert "node, or a GPU that this version does not name  Page Retirement/Row Remap: Fail" in out
    assert "error    80, memory, isolate: GPU 1 had" in out
    assert out.index("\nnode, or") < out.index("\nGPU 1  GPU Memory: Warn")


def test_a_pass_and_a_health_check(explain: Explain) -> None:
    good = as_bytes(diag4(("software", [gpu(0)]), gpus=1))
    assert explain(given=good)[1].splitlines()[:2] == [
        "pass: diagnostic r1 of 1 GPU, DCGM 4.6.0",
        "    action   none: nothing to do",
    ]
    assert explain(given=sample("health-4.x.json"))[1].startswith("fail: health check of 1 GPU\n")


def test_what_stood_before_the_json_is_told(explain: Explain) -> None:
    out = explain(str(DATA / "diag-4.x-runtime-error.txt"))[1]
    assert out.startswith("inconclusive: diagnostic of 0 GPUs, DCGM 4.6.0\n    action   none: run it again\n")
    assert "also     Error: unable to establish a connection" in out


def test_the_exit_status_of_dcgmi_counts(explain: Explain) -> None:
    good = as_bytes(diag4(("software", [gpu(0)]), gpus=1))
    verdicts = [
        json.loads(explain("--json", *args, given=good)[1])["verdict"] for args in ([], ["--exit-status", "226"])
    ]
    assert verdicts == ["pass", "inconclusive"]
    assert explain("--exit-status", "256", given=good)[0] == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (sample("diag-4.x.json")[:500], "cut off at its end"),
        (b"", "the output is empty"),
        (b"Error: Health watches not enabled. Please enable watches. \n", "dcgmi health -g 0 -s a"),
        (b" " * (5 << 20), "longer than 4 MiB"),
        (b'{"a": 1}', "none of DCGM's"),
    ],
    ids=range(5),
)
def test_what_cannot_be_read_is_refused_and_inconclusive(explain: Explain, given: bytes, said: str) -> None:
    code, out, err = explain(given=given)
    assert (code, out) == (4, "")
    assert said in err
    code, out, err = explain("--json", given=given)
    assert code == 4
    assert list(json.loads(out)) == KEYS
    assert json.loads(out)["verdict"] == "inconclusive"
    assert said in err


def test_what_is_no_text_is_no_output(explain: Explain, tmp_path: Path) -> None:
    for given in (gzip.compress(sample("diag-4.x.json")), bytes(range(256)) * 20):
        assert explain(given=given)[:2] == (4, "")
    assert explain(str(tmp_path / "none"))[0] == 4


def test_control_characters_do_not_reach_the_terminal(explain: Explain) -> None:
    bad = error(4, 2, text="a\x1b[2J\x07b\nc")
    out = explain(given=b"\x1b[31mnoise\n" + as_bytes(diag4(("soft\x1bware", [gpu(0, "Fail", bad)]))))[1]
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "a [2J b c" in out


def test_no_more_is_shown_than_a_person_reads(explain: Explain) -> None:
    out = explain(given=as_bytes(diag4(("software", [gpu(number, "Fail", error(4, 2)) for number in range(53)]))))[1]
    assert out.count("error    4,") == 50
    assert "3 more results not shown" in out


def test_help_shows_how(explain: Explain) -> None:
    code, out, _ = explain("--help")
    assert code == 0
    assert "dcgmi diag -r 2 -j | chaos-gpu explain dcgm" in out
    assert "--json" in out
