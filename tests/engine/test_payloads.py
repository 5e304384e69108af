"""The payloads as they are sent: one file each, old Pythons, the standard library alone; and the kernel log's traps."""

import ast
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.faults.pods import payload_source

READER = [
    *(f"checkpoint_{part}" for part in ("files", "pickle", "reading", "parts", "opcodes", "zip", "torch", "dcp")),
    *(f"checkpoint_{part}" for part in ("safetensors", "frameworks", "kinds", "document")),
]
PAYLOADS = ["kmsg", "reverter", "application_xid", "gpu_job", "dcgm", "checkpoint", "save_killer"]
OLD_PYTHONS = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python"))
MARKER = "cgpu-0a1b2c3d"
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize("name", PAYLOADS)
def test_one_file_of_python_3_8_and_its_standard_library(name: str) -> None:
    tree = ast.parse(payload_source(name), feature_version=(3, 8))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in imports if isinstance(node, ast.ImportFrom)}
    assert {each.split(".")[0] for each in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_one_file_is_what_its_modules_are(name: str) -> None:
    """Every function and constant of the modules is in the file, word for word, once."""
    sent = ast.parse(payload_source(name)).body
    before = {
        "kmsg": ["events", "node"],
        "reverter": ["endings", "reactions", "undo", "wire"],
        "application_xid": ["events", "node"],
        "gpu_job": ["events", "node"],
    }
    before["dcgm"] = ["events", "node"]
    before["checkpoint"] = [*READER, "events"]
    before["save_killer"] = ["store_watch", "aim", "events", "eviction", *READER, "freezer", "followed", "phases"]
    modules = [*before[name], name]
    source = Path(__import__("chaos_gpu.payloads", fromlist=["_"]).__file__).parent
    own = [node for module in modules for node in ast.parse((source / f"{module}.py").read_text()).body]
    kept = [node for node in own if not (isinstance(node, ast.ImportFrom) and "chaos_gpu" in str(node.module))]
    assert [ast.dump(node) for node in sent] == [ast.dump(node) for node in kept]


@pytest.mark.skipif(not OLD_PYTHONS, reason="no Python 3.8 on this machine")
@pytest.mark.parametrize("name", PAYLOADS)
def test_it_compiles_and_starts_on_python_3_8(name: str, tmp_path: Path) -> None:
    file = tmp_path / "payload.py"
    file.write_text(payload_source(name))
    done = subprocess.run([OLD_PYTHONS[0], "-I", str(file)], capture_output=True, text=True, timeout=30, check=False)
    assert "'--spec' is not in list" in done.stderr, "it got as far as to read its arguments"


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_pod_can_carry_it(name: str) -> None:
    assert len(payload_source(name).encode()) < 200_000, "all annotations together may have 256 KiB"


# --- the kernel log --------------------------------------------------------------------------------------------------


class Log:
    """A kernel log in a directory: `kmsg` to read, a FIFO to write; tests decide what becomes of a write."""

    def __init__(self, root: Path) -> None:
        self.root, self.seq, self.kmsg, self.fifo = root, 100, root / "kmsg", root / "kmsg.in"
        self.written: list[bytes] = []
        self.on_write: Callable[[bytes], None] = lambda data: self.append(
            *[line.partition(b">")[2] for line in data.splitlines()]  # writes may wait together
        )
        self.kmsg.touch()
        os.mkfifo(self.fifo)
        self._reader = os.open(self.fifo, os.O_RDONLY | os.O_NONBLOCK)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        info = root / "driver" / "gpus" / "0000:3b:00.0" / "information"
        info.parent.mkdir(parents=True)
        info.write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {UUID}\nBus Location: \t 0000:3B:00.0\n")

    def _serve(self) -> None:
        while not self._stop.wait(0.002):
            try:
                data = os.read(self._reader, 65536)
            except BlockingIOError:
                continue
            if data:
                self.written.append(data)
                self.on_write(data)

    def append(self, *texts: bytes) -> None:
        with self.kmsg.open("ab", buffering=0) as file:
            for text in texts:
                self.seq += 1
                file.write(b"3,%d,%d,-;%s\n" % (self.seq, time.monotonic_ns() // 1000, text))

    def start(self, **spec: Any) -> subprocess.Popen[str]:
        full = {
            "mode": "inject",
            "gpu": {"index": "0"},
            "records": [f"<3>NVRM: Xid (PCI:{{pci}}): 48, pid=1, name={MARKER}, text\n"],
            "marker": MARKER,
            "refuse": {},
            "deadline_s": 30,
            "landing_s": 2,
            **spec,
        }
        (self.root / "spec.json").write_text(json.dumps(full))
        (self.root / "payload.py").write_text(payload_source("kmsg"))
        env = {
            "KMSG_FILE_PATH": str(self.kmsg),
            "KMSG_WRITE_PATH": str(self.fifo),
            "NVIDIA_PROC_PATH": str(self.root / "driver"),
            "PATH": os.environ["PATH"],
        }
        argv = [sys.executable, "-I", str(self.root / "payload.py"), "--spec", str(self.root / "spec.json")]
        return subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)

    def run(self, **spec: Any) -> tuple[int, list[dict[str, Any]]]:
        """Run it; once the record has landed it is told to go."""
        process, events = self.start(**spec), []
        with process:
            assert process.stdout
            for line in process.stdout:
                events.append(json.loads(line))
                if events[-1]["event"] == "holding":
                    process.terminate()
        return process.returncode, events

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._reader)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.close()


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def test_lands_holds_and_goes_when_told(log: Log) -> None:
    log.append(b"something before", b"NVRM: Xid (PCI:0000:3b:00): 48, name=%s, of yesterday" % MARKER.encode())
    code, events = log.run()
    assert (code, kinds(events)) == (0, ["started", "landed", "holding", "reverted"])
    assert log.written == [f"<3>NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name={MARKER}, text\n".encode()]
    evidence = events[1]["evidence"]
    assert evidence["seq"] == 103, "the record from before the start is not taken for ours"
    assert evidence["gpu"] == {"index": 0, "pci": "0000:3b:00", "uuid": UUID, "model": "NVIDIA H100"}
    first, last = evidence["between_ns"]
    assert first - 1000 <= evidence["kernel_us"] * 1000 <= last
    assert "no" in events[3]["undo"]
    assert events[3]["why"] == "told to"


def test_no_moment_is_wrong_to_tell_it_to_go(log: Log) -> None:
    """Also between its last look and the moment in which it falls asleep."""
    for _ in range(8):
        begun = time.monotonic()
        assert log.run(deadline_s=20)[1][3]["why"] == "told to"
        assert time.monotonic() - begun < 15


def test_ends_at_its_deadline(log: Log) -> None:
    process = log.start(deadline_s=0.2)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["why"] == "deadline"


def test_a_record_that_the_rate_limit_drops_did_not_land(log: Log) -> None:
    log.on_write = lambda _: None
    code, events = log.run(landing_s=0.3)
    assert (code, kinds(events)) == (3, ["started", "failed"])
    assert "rate limit" in events[1]["reason"]
    assert events[1]["written"] is True, "it may have been seen all the same"


def test_finds_its_record_in_a_flood(log: Log) -> None:
    def flood(data: bytes) -> None:
        log.append(*[b"noise %d" % number for number in range(3000)])
        log.append(data.rstrip(b"\n").partition(b">")[2])
        log.append(*[b"more noise %d" % number for number in range(3000)])

    log.on_write = flood
    code, events = log.run(landing_s=10)
    assert (code, events[1]["evidence"]["seq"]) == (0, 100 + 3001)


def test_a_flood_without_end_does_not_hold_it(log: Log) -> None:
    stop = threading.Event()

    def flood() -> None:
        while not stop.is_set():
            log.append(*[b"noise"] * 50)

    log.on_write = lambda _: None
    flooding = threading.Thread(target=flood)
    flooding.start()
    begun = time.monotonic()
    try:
        code, events = log.run(landing_s=0.5)
    finally:
        stop.set()
        flooding.join()
    assert (code, events[-1]["event"]) == (3, "failed")
    assert time.monotonic() - begun < 10


def test_continuation_lines_and_escapes_are_left_as_they_are(log: Log) -> None:
    def append(data: bytes) -> None:
        with log.kmsg.open("ab", buffering=0) as file:
            text = data.rstrip(b"\n").partition(b">")[2]
            file.write(b"garbage\n SUBSYSTEM=pci\n3,7,%d,-;" % (time.monotonic_ns() // 1000))
            file.write(rb"\x1b[31m" + text + rb"\x0a\x5c" + b"\n DEVICE=+pci:0000:3b:00.0\n")

    log.on_write = append
    code, events = log.run()
    assert code == 0
    assert events[1]["evidence"]["text"].startswith(r"\x1b[31mNVRM: Xid (PCI:0000:3b:00): 48,")
    assert events[1]["evidence"]["text"].endswith(r"text\x0a\x5c")


# --- faults of several records ---------------------------------------------------------------------------------------

BURST = [f"<4>NVRM: Xid (PCI:{{pci}}): 13, record {number} {MARKER}\n" for number in range(3)]
SWITCH = [f"<3>nvidia-nvswitch0: SXid (PCI:{{switch}}): 24007, record {number} {MARKER}\n" for number in range(2)]


def add_switches(log: Log, *names: str) -> None:
    for name in names:
        (log.root / "driver-nvswitch" / "devices" / name).mkdir(parents=True)


def test_a_burst_lands_whole_and_in_order(log: Log) -> None:
    code, events = log.run(records=BURST)
    evidence = events[1]["evidence"]
    texts = [f"NVRM: Xid (PCI:0000:3b:00): 13, record {number} {MARKER}" for number in range(3)]
    assert code == 0
    assert [record["text"] for record in evidence["records"]] == texts
    assert [record["seq"] for record in evidence["records"]] == [101, 102, 103]
    assert (evidence["seq"], evidence["text"]) == (101, texts[0]), "the first one's time is the fault's"
    assert evidence["kernel_us"] == evidence["records"][0]["kernel_us"]
    first, last = evidence["between_ns"]
    assert first - 1000 <= evidence["kernel_us"] * 1000 <= last


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_burst_of_which_records_were_dropped_did_not_land(log: Log, kept: int) -> None:
    lines: list[bytes] = []

    def drop(data: bytes) -> None:
        fresh = data.splitlines()
        log.append(*[line[3:] for line in fresh[: max(0, kept - len(lines))]])
        lines.extend(fresh)

    log.on_write = drop
    code, events = log.run(records=BURST, landing_s=0.4)
    assert (code, kinds(events), events[1]["written"]) == (3, ["started", "failed"], True)
    assert f"{kept} of 3 records" in events[1]["reason"]


def test_a_burst_in_a_flood(log: Log) -> None:
    def flood(data: bytes) -> None:
        for line in data.splitlines():
            log.append(*[b"noise %d" % number for number in range(2000)])
            log.append(line[3:])

    log.on_write = flood
    code, events = log.run(records=BURST, landing_s=10)
    assert code == 0
    assert [record["seq"] - 100 for record in events[1]["evidence"]["records"]] == [2001, 4002, 6003]


@pytest.mark.parametrize("flag", ["-", "c", "+", "-,caller=T1", "c,caller=C4"])
def test_a_record_with_any_flag_is_ours_if_it_has_our_marker(log: Log, flag: str) -> None:
    def append(data: bytes) -> None:
        with log.kmsg.open("ab", buffering=0) as file:
            file.write(b"4,7,%d,%s;%s\n" % (time.monotonic_ns() // 1000, flag.encode(), data[3:].rstrip(b"\n")))

    log.on_write = append
    code, events = log.run()
    assert (code, events[1]["evidence"]["flag"]) == (0, flag[0])


def test_the_address_as_the_form_wants_it(log: Log) -> None:
    texts = [f"<4>NVRM: Xid (PCI:{place}): 48, x {MARKER}\n" for place in ("{PCI}", "0000{pci}.0")]
    _, events = log.run(records=texts)
    places = [record["text"].split("(")[1].split(")")[0] for record in events[1]["evidence"]["records"]]
    assert places == ["PCI:0000:3B:00", "PCI:00000000:3b:00.0"]
    assert "switch" not in events[1]["evidence"]


def test_the_error_of_an_nvswitch_names_the_nodes_first(log: Log) -> None:
    add_switches(log, "0000:C4:00.0", "0000:c3:00.0")
    code, events = log.run(records=SWITCH)
    evidence = events[1]["evidence"]
    assert (code, evidence["switch"]) == (0, "0000:c3:00.0")
    assert evidence["text"].startswith("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, ")


def test_without_an_nvswitch_nothing_is_written(log: Log) -> None:
    code, events = log.run(records=SWITCH)
    assert (code, kinds(events), log.written) == (3, ["started", "failed"], [])
    assert events[1]["reason"] == "this node has no NVSwitch"
    assert "written" not in events[1]


@pytest.mark.parametrize(
    "gpu", [{"index": "1"}, {"uuid": UUID[:-1] + "0"}, {"pci": "0000:3c:00"}], ids=lambda gpu: next(iter(gpu))
)
def test_a_gpu_that_the_node_has_not(log: Log, gpu: dict[str, str]) -> None:
    code, events = log.run(gpu=gpu)
    assert (code, kinds(events), log.written) == (3, ["started", "failed"], [])
    assert "0 0000:3b:00 GPU-" in events[1]["reason"], "it says which there are"
    assert "written" not in events[1]


@pytest.mark.parametrize("gpu", [{"index": "0"}, {"uuid": UUID.lower()}, {"pci": "0000:3b:00"}])
def test_a_gpu_by_each_of_its_names(log: Log, gpu: dict[str, str]) -> None:
    assert log.run(gpu=gpu)[1][1]["evidence"]["gpu"]["index"] == 0


def test_a_gpu_without_budget_is_refused(log: Log) -> None:
    code, events = log.run(refuse={UUID: "it had its injections"})
    assert (code, events[1]["reason"], log.written) == (3, "it had its injections", [])


def test_a_log_that_cannot_be_written_changes_nothing(log: Log) -> None:
    log.kmsg.unlink()
    code, events = log.run()
    assert (code, kinds(events), log.written) == (3, ["started", "failed"], [])
    assert "cannot write the kernel log" in events[1]["reason"]


# --- real records since ours -----------------------------------------------------------------------------------------

OURS = f"NVRM: Xid (PCI:0000:3b:00): 48, name={MARKER}, x".encode()
REAL = b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
SCANS: list[tuple[str, list[bytes], dict[str, Any], list[bytes]]] = [
    ("nothing since", [REAL, OURS, b"usb 1-1: new device"], {"after_seq": 102}, []),
    ("a real one since", [OURS, REAL], {"after_seq": 101}, [REAL]),
    ("ours twice", [OURS, OURS], {"after_seq": 101}, []),
    ("where ours stands is not known", [REAL, OURS], {"after_seq": 0}, []),
    ("where ours stands is not known, one since", [REAL, OURS, REAL], {"after_seq": 0}, [REAL]),
    ("ours is not there any more", [REAL], {"after_seq": 100}, [REAL]),
    ("the node was booted since", [REAL], {"after_seq": 5000, "boot_id": "another"}, [REAL]),
    ("an SXid", [OURS, b"nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028"], {"after_seq": 101}, [b"nvidia-nvswitch0"]),
]


@pytest.mark.parametrize(("records", "spec", "found"), [row[1:] for row in SCANS], ids=[row[0] for row in SCANS])
def test_which_records_are_not_ours(log: Log, records: list[bytes], spec: dict[str, Any], found: list[bytes]) -> None:
    log.append(*records)
    code, events = log.run(mode="scan", markers=[MARKER], **spec)
    foreign = events[-1]["foreign"]
    assert code == 0
    assert len(foreign) == len(found)
    assert all(said.encode().startswith(wanted) for said, wanted in zip(foreign, found, strict=True))


def test_a_log_that_was_overwritten_since_ours_says_nothing(log: Log) -> None:
    log.append(b"usb 1-1: new device")
    code, events = log.run(mode="scan", markers=[MARKER], after_seq=50)
    assert (code, events[-1]["event"]) == (3, "failed")
    assert "overwritten" in events[-1]["reason"]
