"""`chaos-gpu explain xid`: from files and pipes, for people and for programs."""

import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos_gpu.cli import main as entry
from chaos_gpu.cli.textfile import PIECE_BYTES
from tests.criteria.xid.corpus import LINES, REAL, XID

Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Explain:
    """Run the command on the given input; return exit code, output, errors."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # main() replaces it; put back afterwards

    def run(*args: str, given: bytes = b"") -> tuple[int, str, str]:
        (tmp_path / "given").write_bytes(given)
        with (tmp_path / "given").open("rb") as file:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            code = entry.main(["explain", "xid", *args])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


def test_json_has_one_line_per_record_and_merges_nothing(explain: Explain, tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text(f"noise\n{XID}\n{XID}\n")
    code, out, err = explain(str(log), "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert [event["line"] for event in events] == [2, 3]
    assert {(event["kind"], event["code"], event["pci"], event["action"]) for event in events} == {
        ("xid", 79, "0000:3b:00", "RESTART_BM")
    }


@pytest.mark.parametrize("args", [["--json"], ["-", "--json"], ["--json", "-"]])
def test_json_of_standard_input(explain: Explain, args: list[str]) -> None:
    lines = "\n".join(row["line"] for row in LINES)
    code, out, _ = explain(*args, given=lines.encode())
    found = {(event["line"], str(event["code"]), event["pci"]) for event in map(json.loads, out.splitlines())}
    assert code == 0
    assert found == {(number, row["code"], row["pci"]) for number, row in enumerate(LINES, 1) if row["code"]}


def test_a_person_sees_incidents(explain: Explain) -> None:
    code, out, err = explain(given="\n".join(row["record"] for row in REAL).encode())
    assert (code, err) == (0, "")
    assert out.startswith("3 incidents on 1 device, told by 5 records in 6 lines\n")
    assert out.count("GPU 0000:00:06") == 3
    assert "Xid 13: Graphics Engine Exception" in out
    assert "told by  3 records: 13 ×3" in out
    assert "process  x, pid 488" in out
    assert "action   RESTART_APP: restart the application" in out
    assert "31.657135 s after boot to 31.660122 s after boot (lines 3 to 5)" in out


def test_the_gravest_comes_first_and_duplicates_count(explain: Explain) -> None:
    app = "[   10.000000] NVRM: Xid (PCI:0000:01:00): 13, Graphics Exception"
    fatal = "[   90.000000] " + XID
    _, out, _ = explain(given="\n".join([app, *[fatal] * 1000, "x"]).encode())
    assert out.splitlines()[0] == "2 incidents on 2 devices, told by 1,001 records in 1,002 lines"
    assert out.index("Xid 79") < out.index("Xid 13")
    assert "told by  1,000 records: 79 ×1,000" in out
    assert "90.000000 (lines 2 to 1,001)" in out


def test_what_was_made_on_purpose_and_what_is_unknown_is_said(explain: Explain) -> None:
    given = b"12,1,2,-;NVRM: Xid (PCI:0000:01:00): 999, what\n"
    _, out, _ = explain(given=given)
    assert "Xid 999: not in NVIDIA's catalogue" in out
    assert "CONTACT_SUPPORT" in out
    assert "all of it made on purpose" in out


def test_exercises_come_last_whatever_they_tell(explain: Explain) -> None:
    made = b"12,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    real = b"4,2,900000000,-;NVRM: Xid (PCI:0000:02:00): 13, Graphics Exception\n"
    _, out, _ = explain(given=made + real)
    assert out.splitlines()[0].endswith("told by 2 records in 2 lines; 1 of the incidents made on purpose")
    assert out.index("GPU 0000:02:00  Xid 13") < out.index("made on purpose  GPU 0000:01:00  Xid 79")


def test_replays_are_told(explain: Explain) -> None:
    record = f"4,360,30750792,c;{XID}\n".encode()
    _, out, _ = explain(given=record * 2)
    assert "told by 1 record in 2 lines" in out
    assert "1 record read twice" in out


def test_control_characters_of_a_log_do_not_reach_the_terminal(explain: Explain) -> None:
    _, out, _ = explain(given=rb"4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=\x1b[2J, \x07x" + b"\n")
    assert "\x1b" not in out
    assert "\x07" not in out


def test_no_more_incidents_are_shown_than_a_person_reads(explain: Explain) -> None:
    lines = [f"NVRM: Xid (PCI:{number:04x}:01:00): 79, x" for number in range(53)]
    _, out, _ = explain(given="\n".join(lines).encode())
    assert out.count("Xid 79") == 50
    assert "3 lesser incidents not shown" in out


def test_a_log_without_faults_says_so(explain: Explain) -> None:
    assert explain(given=b"noise\n\nnoise") == (0, "no GPU fault in 3 lines\n", "")
    assert explain("--json", given=b"noise\n") == (0, "", "")


def test_an_empty_input_says_so(explain: Explain) -> None:
    assert explain() == (0, "the input is empty\n", "")
    assert explain("--json") == (0, "", "the input is empty\n")


def test_what_cannot_be_read(explain: Explain, tmp_path: Path) -> None:
    code, out, err = explain(str(tmp_path / "none"))
    assert (code, out) == (4, "")
    assert "there is no file" in err
    code, out, err = explain(str(tmp_path))
    assert (code, out) == (4, "")
    assert "is a directory" in err
    locked = tmp_path / "locked"
    locked.symlink_to(locked)
    assert explain(str(locked), "--json")[:2] == (4, "")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(XID.encode(), mtime=0), "zcat"),
        (b"LPKSHHRH" + bytes(100), "journalctl --file"),
        (b"\xff\xfeN\0V\0", "UTF-16"),
        (b"\x7fELF\x02", "a program"),
        (bytes(range(256)) * 20, "is no text"),
        (bytes(1000), "is no text"),
        (os.urandom(5000).replace(b"\0", b"\xff"), "is no text"),
    ],
)
def test_what_is_no_text(explain: Explain, tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    for args, given in (([str(path)], b""), ([], data)):
        code, out, err = explain(*args, given=given)
        assert (code, out) == (4, "")
        assert said in err


@pytest.mark.parametrize("before", [bytes(9000), b"\xc3\xa9\xff\n", b"\x1b[32m\n", b"x" * PIECE_BYTES + b"\n"])
def test_what_is_text_all_the_same(explain: Explain, before: bytes) -> None:
    code, out, _ = explain("--json", given=b"noise\n" + before + XID.encode())
    assert code == 0
    assert [json.loads(line)["code"] for line in out.splitlines()] == [79]


def test_help_shows_how(explain: Explain) -> None:
    code, out, _ = explain("--help")
    assert code == 0
    assert "journalctl -k -b | chaos-gpu explain xid" in out
    assert "--json" in out


def test_a_wrong_option_is_usage(explain: Explain) -> None:
    assert explain("--jsno")[0] == 4
