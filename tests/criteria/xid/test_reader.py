"""One line in, one event out: every form of record, every prefix, and nothing out of what only looks like one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.xid.catalog import CONTACT_SUPPORT, catalogue
from chaos_gpu.criteria.xid.event import JSON_KEYS, Event
from chaos_gpu.criteria.xid.reader import MAX_LINE_BYTES, read_line
from chaos_gpu.criteria.xid.record import Form, as_written, compose
from tests.criteria.xid.corpus import LINES, REAL, XID


def read(line: str) -> Event | None:
    return read_line(line.encode())


def facts(line: str, *names: str) -> tuple[Any, ...]:
    event = read(line)
    assert event is not None
    return tuple(getattr(event, name) for name in names)


def xid(rest: str, where: str = "PCI:0000:3b:00") -> str:
    return f"NVRM: Xid ({where}): {rest}"


@pytest.mark.parametrize("row", LINES, ids=lambda row: row["id"])
def test_the_corpus(row: dict[str, str]) -> None:
    for line in (row["line"], row["line"].replace("\\n", "\n")):
        event = read(line)
        found = (str(event.code), event.pci) if event else ("", "")
        assert found == (row["code"], row["pci"])
        kind = "sxid" if "SXid" in line else "fallen_off_bus" if row["id"].startswith("fallen") else "xid"
        assert event is None or event.kind == kind


@pytest.mark.parametrize("row", REAL, ids=lambda row: row["record"][:6])
def test_what_an_h200_wrote(row: dict[str, str]) -> None:
    event = read(row["record"])
    if row["note"] == "map line, no Xid":
        assert event is None
        return
    assert event is not None
    assert (str(event.code), event.pci, event.injected) == (row["code"], row["pci"], False)
    assert f"{event.seq},{event.usec}," in row["record"]
    assert (event.pid is None) == ("pid=" not in row["record"])
    assert event.process == (None if event.pid is None else "x")
    assert row["record"].endswith(event.text)


PREFIXES = {
    "": (None, ""),
    "   \t": (None, ""),
    "\ufeff": (None, ""),
    "[    0.000001] ": (None, "0.000001"),
    "[6085126.134786] ": (None, "6085126.134786"),
    "[12345.678901][ T1234] ": (None, "12345.678901"),
    "[12345.678901] [C3] ": (None, "12345.678901"),
    "[  966.503025 <    0.000012>] ": (None, "966.503025 <    0.000012>"),
    "[  +0.000012] ": (None, "+0.000012"),
    "[Oct14 14:56] ": (None, "Oct14 14:56"),
    "[Fri Oct 14 14:56:49 2022] ": (None, "Fri Oct 14 14:56:49 2022"),
    "[Fri Oct  4 14:56:49 2022] [6085126.134786] ": (None, "Fri Oct  4 14:56:49 2022"),
    "[  100.000000] [6085126.134786] ": (None, "100.000000"),
    "2025-05-27T04:18:56,089671+00:00 ": (None, "2025-05-27T04:18:56,089671+00:00"),
    "2025-05-27T04:18:56Z ": (None, "2025-05-27T04:18:56Z"),
    "kern  :warn  : [   12.345678] ": (False, "12.345678"),
    "kern  :warn  : 2025-05-27T04:18:56,089671+00:00 ": (False, "2025-05-27T04:18:56,089671+00:00"),
    "kern  :err   : ": (False, ""),
    "user  :warn  : [   12.345678] ": (True, "12.345678"),
    "Nov 22 18:29:55 host kernel: [ 966.503025] ": (None, "Nov 22 18:29:55"),
    "Nov  2 18:29:55 gpu-7.example.com kernel: ": (None, "Nov  2 18:29:55"),
    "Nov 22 18:29:55.123456 host kernel: ": (None, "Nov 22 18:29:55.123456"),
    "Nov 22 18:29:55 kernel: ": (None, "Nov 22 18:29:55"),
    "Nov 22 18:29:55 10.0.0.7 kernel[1]: ": (None, "Nov 22 18:29:55"),
    "Nov 22 18:29:55 fe80::1 kernel: ": (None, "Nov 22 18:29:55"),
    "Nov 22 18:29:55 host ": (None, "Nov 22 18:29:55"),
    "Nov 22 18:29:55 host kern.warn kernel: ": (False, "Nov 22 18:29:55"),
    "Nov 22 18:29:55 host user.warn kernel: ": (True, "Nov 22 18:29:55"),
    "<4>Nov 22 18:29:55 host kernel: ": (False, "Nov 22 18:29:55"),
    "<7>": (False, ""),
    "<8>": (True, ""),
    "<12>Nov 22 18:29:55 host kernel: ": (True, "Nov 22 18:29:55"),
    "2025-05-27T04:18:56.089671+00:00 host kernel: [ 966.503025] ": (None, "2025-05-27T04:18:56.089671+00:00"),
    "2025-05-27T04:18:56+0000 host kernel: ": (None, "2025-05-27T04:18:56+0000"),
    "Tue 2025-05-27 04:18:56 UTC host kernel: ": (None, "Tue 2025-05-27 04:18:56 UTC"),
    "1748319536.089671 host kernel: ": (None, "1748319536.089671"),
    "[  966.503025] host kernel: ": (None, "966.503025"),
    "<4>1 2025-05-27T04:18:56.089671+00:00 host kernel - - - ": (False, "2025-05-27T04:18:56.089671+00:00"),
    "<12>1 2025-05-27T04:18:56Z host kernel - - - [   9.123456] ": (True, "2025-05-27T04:18:56Z"),
    '<4>1 2025-05-27T04:18:56Z host kernel 1 ID [a b="c"][d e="f"] \ufeff': (False, "2025-05-27T04:18:56Z"),
    "1 - host kernel - - - ": (None, ""),
    "kernel: ": (None, ""),
    "\x1b[32m[   12.345678] \x1b[0m\x1b[33m": (None, "12.345678"),
    "4,360,30750792,c;": (False, ""),
    "4,360,30750792,-;": (False, ""),
    "6,360,30750792,+;": (False, ""),
    "7,360,30750792,-,caller=T12;": (False, ""),
    "8,360,30750792,-;": (True, ""),
    "12,360,30750792,-;": (True, ""),
    "44,360,30750792,-;[6085126.134786] ": (True, ""),
}


@pytest.mark.parametrize("prefix", PREFIXES, ids=repr)
def test_every_prefix(prefix: str) -> None:
    injected, stamp = PREFIXES[prefix]
    expected = (79, "0000:3b:00", "GPU has fallen off the bus.", injected, stamp)
    for line in (prefix + XID, prefix + XID + "\n", prefix + XID + "\r\n"):
        assert facts(line, "code", "pci", "text", "injected", "stamp") == expected


@pytest.mark.parametrize(
    "prefix", ["Nov 22 18:29:55 host ", "", "[  966.503025] ", "<4>", "kern  :err  : [ 1.000000] "]
)
def test_a_switch_behind_prefixes(prefix: str) -> None:
    line = prefix + "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)"
    assert facts(line, "kind", "code", "pci", "severity", "link") == ("sxid", 24007, "0000:c3:00.0", "Fatal", 28)


@pytest.mark.parametrize(
    "line",
    [
        "",
        ";",
        "4,1,2,-;",
        f"myapp[12]: {XID}",
        f"myapp: {XID}",
        f'saw "{XID}"',
        f"'{XID}",
        f"Nov 22 18:29:55 host myapp[12]: {XID}",
        f"Nov 22 18:29:55 host myapp: {XID}",
        f"Nov 22 18:29:55 myapp[12]: {XID}",
        f"Nov 22 18:29:55 myapp: {XID}",
        f"Nov 22 18:29:55 host myapp[12]: [ 966.503025] {XID}",
        f"Nov 22 18:29:55 host kernel: audit: {XID}",
        f"Nov 22 18:29:55 host kernel: saw {XID}",
        f"Nov 22 18:29:55 host python3[7]: kernel: {XID}",
        f"2025-05-27T04:18:56Z ERROR {XID}",
        f"2025-05-27T04:18:56Z warning {XID}",
        f"2025-05-27 04:18:56,089 {XID}",
        f"2025-05-27T04:18:56Z stdout F {XID}",
        f"<4>1 2025-05-27T04:18:56Z host myapp 7 - - {XID}",
        f"[myapp] {XID}",
        f"[  12.345678] saw {XID}",
        f"[  12.345678] myapp: {XID}",
        f"12,1,2,-;myapp[7]: {XID}",
        f"12,1,2,-;myapp: \\x0a{XID}",
        f"12,1,2,-;say\n {XID}",
        f"4,1,2,z;{XID}",
        f"-- {XID}",
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid (43, pid: 5678): ...",
        "NVRM: Xid (PCI:0000:3b:00) 79, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00: 79, GPU has fallen off the bus.",
        "NVRM: Xid 79, GPU has fallen off the bus.",
        "NVRM: xid (PCI:0000:3b:00): 79, x",
        "NVRM: API mismatch: Xid (PCI:0000:3b:00): 79, x",
        xid("0, nothing"),
        xid("00000, nothing"),
        xid("-1, nothing"),
        xid(", nothing"),
        xid("79.5, nothing"),
        xid("79x, nothing"),
        xid("123456, nothing"),
        xid("79, x", where="PCI:3b:00"),
        xid("79, x", where="PCI:000:3b:00"),
        xid("79, x", where="PCI:000000000:3b:00"),
        xid("79, x", where="PCI:0000:3b:20"),
        xid("79, x", where="PCI:0000:3b:00.8"),
        xid("79, x", where="PCI:000g:3b:00"),
        xid("79, x", where="PCI:0000:3b:00 GPU-X:01"),
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 00000, Fatal, Link 1 x",
        "nvidia-nvswitch0: SXid error",
        "NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b",
        "NVRM: GPU Board Serial Number: 123",
        "NVRM: GPU 0000:18:00.0: is lost",
        'myapp: "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."',
        "NVRM: The NVIDIA GPU 0000:b3:00.0",
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)",
        "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    ],
)
def test_what_is_no_fault(line: str) -> None:
    assert read(line) is None


@pytest.mark.parametrize(
    ("where", "pci"),
    [
        ("PCI:0000:3b:00", "0000:3b:00"),
        ("0000:3b:00", "0000:3b:00"),
        ("PCI:0000:3B:1F", "0000:3b:1f"),
        ("PCI:000D:00:00", "000d:00:00"),
        ("PCI:00000008:06:00.0", "0008:06:00"),
        ("PCI:00010000:06:00", "10000:06:00"),
        ("PCI:10000:06:00", "10000:06:00"),
        ("PCI:0000:3b:00.0", "0000:3b:00"),
        ("PCI:0000:3b:00.7", "0000:3b:00"),
    ],
)
def test_every_way_to_write_an_address(where: str, pci: str) -> None:
    assert facts(xid("79, x", where), "pci", "gpu_instance", "compute_instance") == (pci, None, None)


@pytest.mark.parametrize(
    ("where", "instances"),
    [
        ("PCI:0000:01:00 GPU-I:05 GPU-CI:00", (5, 0)),
        ("PCI:0000:01:00 GPU-I:13", (13, None)),
        ("0000:01:00 GPU-I:00 GPU-CI:07", (0, 7)),
        ("PCI:00000000:01:00.0 GPU-I:01", (1, None)),
    ],
)
def test_mig_stands_inside_the_parentheses(where: str, instances: tuple[int, int | None]) -> None:
    assert facts(xid("43, x", where), "pci", "gpu_instance", "compute_instance") == ("0000:01:00", *instances)


@pytest.mark.parametrize(
    ("rest", "process"),
    [
        ("31, pid=1234, name=python3, Ch 00000008", (1234, "python3", "Ch 00000008")),
        ("31, pid='1234', name=python3, Ch 00000008", (1234, "python3", "Ch 00000008")),
        ("31, pid='<unknown>', name=<unknown>, Ch 00000008", (None, None, "Ch 00000008")),
        ("31, pid=<unknown>, name='<unknown>', Ch 00000008", (None, None, "Ch 00000008")),
        ("31, pid='<unknown>', name=python3, Ch 00000008", (None, "python3", "Ch 00000008")),
        ("31, pid=77, name=a, b, Ch 00000008, intr 0", (77, "a, b", "Ch 00000008, intr 0")),
        ("31, pid=77, name=a, b, channel 0x0000000a", (77, "a, b", "channel 0x0000000a")),
        ("13, pid=77, name=, , x, Graphics Exception: ESR", (77, ", , x", "Graphics Exception: ESR")),
        ("31, pid=77, name=x, Ch 0000000b, Ch 0000000c", (77, "x", "Ch 0000000b, Ch 0000000c")),
        ("69, pid=7, name=exactly 15, x y, Class Error: x", (7, "exactly 15, x y", "Class Error: x")),
        ("69, pid=7, name=sixteen, bytes a, Class Error: x", (7, "sixteen", "bytes a, Class Error: x")),
        ("62, pid=7, name=a, b, 203c(3090) 85020c09", (7, "a", "b, 203c(3090) 85020c09")),
        ("145, pid=1, name=a, b, RLW_RXPIPE Fatal XC0", (1, "a, b", "RLW_RXPIPE Fatal XC0")),
        ("63, pid=1896, Row Remapper: New row", (1896, None, "Row Remapper: New row")),
        ("79, pid=1582259, name=nvc:[driver], GPU has", (1582259, "nvc:[driver]", "GPU has")),
        ("79, pid=1, name=a longer name than any process, x", (1, "a longer name than any process", "x")),
        ("79, pid=1234, name=nv-hostengine", (1234, "nv-hostengine", "")),
        ("79, name=x, GPU has", (None, "x", "GPU has")),
        ("79, pid=12", (12, None, "")),
        ("79, pid=12345678901, name=x, y", (None, None, "pid=12345678901, name=x, y")),
        ("79, pid=x, name=x, y", (None, None, "pid=x, name=x, y")),
        ("79,GPU", (None, None, ",GPU")),
        ("79 (", (None, None, "(")),
        ("79,", (None, None, ",")),
        ("79", (None, None, "")),
    ],
)
def test_process_and_text(rest: str, process: tuple[int | None, str | None, str]) -> None:
    assert facts(xid(rest), "pid", "process", "text") == process


def test_escapes_become_what_they_stand_for() -> None:
    assert facts(xid(r"79, pid=1, name=caf\xc3\xa9\x5c, a\x09b \xzz \xff"), "process", "text") == (
        "café\\",
        "a\tb \\xzz \ufffd",
    )
    record = "4,1,2,-;" + xid(r"79, pid=1, name=caf\xc3\xa9, a\x09b")
    assert facts(record, "process", "text") == ("café", "a\tb")


@pytest.mark.parametrize("code", [999, 177, 99999, 162, 172, 173, 176])
def test_what_nvidia_says_nothing_about_means_contact_support(code: int) -> None:
    assert facts(xid(f"{code}, x"), "bucket", "action") == (None, CONTACT_SUPPORT)


@pytest.mark.parametrize(
    ("rest", "bucket", "action"),
    [
        ("13, x", "RESTART_APP", "RESTART_APP"),
        ("43, x", "IGNORE", "IGNORE"),
        ("48, x", "WORKFLOW_XID_48", "RESET_GPU"),
        ("74, x", "WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK_ERR"),
        ("79, x", "RESTART_BM", "RESTART_BM"),
        ("45, pid=1, name=x, Ch 00000001", "WORKFLOW_XID_45", "RESTART_APP"),
        ("45, pid=1, name=x, Ch 00000001 caused by previous Xid 149", "WORKFLOW_XID_45", "IGNORE"),
        ("45, Ch 00000001 caused by previous Xid 0", "WORKFLOW_XID_45", "RESTART_APP"),
        ("145, x", "WORKFLOW_NVLINK5_ERR", CONTACT_SUPPORT),
    ],
)
def test_bucket_and_action(rest: str, bucket: str, action: str) -> None:
    assert facts(xid(rest), "bucket", "action") == (bucket, action)


@pytest.mark.parametrize(
    ("change", "action"),
    [
        ("0x0 (None) to 0x1 (GPU Reset Required)", "RESET_GPU"),
        ("0x0 (None) to 0x2 (Node Reboot Required)", "RESTART_BM"),
        ("0x0 (None) to 0x3 (Drain P2P)", "DRAIN_P2P"),
        ("0x0 (None) to 0x4 (Drain and Reset)", "DRAIN_AND_RESET"),
        ("0x0 (None) to 0x5 (Recover IMEX Domain)", "RECOVER_IMEX_DOMAIN"),
        ("0x1 (GPU Reset Required) to 0x0 (None)", "NONE"),
        ("0x0 (None) to 0x1 (GPU Reset Requ", "RESET_GPU"),
        ("0x0 (None) to 0x1", "RESET_GPU"),
        ("0x0 (None) to 0x6 (Unknown)", CONTACT_SUPPORT),
        ("0x0 (None) to 0x1 (None)", CONTACT_SUPPORT),
        ("0x0 (None) to 0x10 (GPU Reset Required)", CONTACT_SUPPORT),
        ("0x0 (None) to", CONTACT_SUPPORT),
        ("", CONTACT_SUPPORT),
    ],
)
def test_xid_154_is_judged_by_the_new_action(change: str, action: str) -> None:
    assert facts(xid(f"154, GPU recovery action changed from {change}"), "bucket", "action") == ("XID_154", action)


def test_xid_154_without_words() -> None:
    assert facts("NVRM: Xid (PCI:0000:01:00): 154 (", "code", "action") == (154, CONTACT_SUPPORT)


FALL = "The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus"


@pytest.mark.parametrize("between", ["\nNVRM: ", "\n       NVRM: ", "\\x0aNVRM: ", "#012NVRM: ", "\\nNVRM: ", " "])
@pytest.mark.parametrize("prefix", ["", "4,1,2,-;", "[   12.345678] ", "Nov 22 18:29:55 host kernel: "])
def test_a_fall_at_probe_time_in_one_record(prefix: str, between: str) -> None:
    if prefix[:1] == "4" and between[:1] == "\n":
        between = between.replace("\n", "\\x0a")
    parts = ("The NVIDIA GPU 0000:b3:00.0", "(PCI ID: 10de:26b5) installed in this system has", "fallen off the bus")
    line = f"{prefix}NVRM: {between.join(parts)} and is not responding to commands."
    expected = ("fallen_off_bus", 79, "0000:b3:00", "RESTART_BM", "RESTART_BM")
    assert facts(line, "kind", "code", "pci", "bucket", "action") == expected
    assert facts(line, "text") == (f"{FALL} and is not responding to commands.",)


@pytest.mark.parametrize("prefix", ["NVRM: ", "", "[   12.345678] NVRM: ", "4,1,2,c;NVRM: "])
def test_a_fall_in_one_line(prefix: str) -> None:
    line = f"{prefix}GPU 0000:18:00.0: GPU has fallen off the bus."
    assert facts(line, "kind", "code", "pci", "action") == ("fallen_off_bus", 79, "0000:18:00", "RESTART_BM")
    assert facts(line, "text") == ("GPU 0000:18:00.0: GPU has fallen off the bus.",)


@pytest.mark.parametrize(
    ("text", "severity", "link", "continuation"),
    [
        ("Fatal, Link 28 sourcetrack timeout error (First)", "Fatal", 28, False),
        ("Non-fatal, Link 00 MC TS crumbstore MCTO (First)", "Non-fatal", 0, False),
        ("Non-fatal, Li", "Non-fatal", None, False),
        ("Non-fa", None, None, False),
        ("SOE HALTED", None, None, False),
        ("", None, None, False),
        ("Severity 1 Engine instance 62 Sub-engine instance 00", "1", None, True),
        ("Severity", None, None, True),
        ("Data {0x000001c0, 0x00bd5c8a}", None, None, True),
        ("Data", None, None, True),
        ("Datapath error", None, None, False),
    ],
)
def test_switch_errors(text: str, severity: str | None, link: int | None, continuation: bool) -> None:
    line = f"nvidia-nvswitch3: SXid (PCI:0000:C1:00.1): 00012, {text}"
    names = ("code", "pci", "text", "severity", "link", "continuation", "bucket", "action")
    expected = (12, "0000:c1:00.1", text, severity, link, continuation, None, CONTACT_SUPPORT)
    assert facts(line, *names) == expected


@pytest.mark.parametrize(
    ("line", "injected"),
    [
        (xid("145, RLW_CTRL Fatal XC0 i1 Link 01 (0x00000003 0x80000000)"), True),
        (xid("145, RLW_CTRL Fatal XC0 i0 Link 01 (0x00000003 0x80000000)"), False),
        ("12,1,2,-;" + xid("145, RLW_CTRL Fatal XC0 i0 Link 01 (0x00000003 0x80000000)"), True),
        ("4,1,2,-;" + xid("145, RLW_CTRL Fatal XC0 i1 Link 01 (0x00000003 0x80000000)"), True),
        (xid("79, GPU has fallen off the bus. cgpu-0a1b2c3d"), True),
        (xid("79, pid=1, name=cgpu-0a1b2c3d, x"), True),
        (xid("79, pid=1, name=cgpu-host, x"), None),
        ("4,1,2,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal", False),
        ("12,1,2,-;nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal", True),
        ("12,1,2,-;NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", True),
    ],
)
def test_who_made_it(line: str, injected: bool | None) -> None:
    assert facts(line, "injected") == (injected,)


@given(
    st.sampled_from(sorted(catalogue())),
    st.sampled_from([Form.PLAIN, Form.PROCESS]),
    st.from_regex(r"cgpu-[0-9a-z]{8}", fullmatch=True),
    st.sampled_from(["kmsg", "bracket"]),
    st.integers(1, 2**22),
)
def test_what_we_write_is_what_we_read(code: int, form: Form, marker: str, transport: str, pid: int) -> None:
    record = compose(code, "0000:3b:00", form=form, marker=marker, pid=pid)
    written = as_written(record.text, transport, 12.5)
    event = read_line(b"12,1,2,-;" + written.removeprefix(b"<4>"))
    assert event is not None
    assert (event.kind, event.code, event.pci, event.injected) == ("xid", code, "0000:3b:00", True)
    assert (event.pid, event.process) == ((pid, marker) if form is Form.PROCESS else (None, None))
    assert record.text.endswith(event.text)
    assert event == read_line(written)._replace(seq=1, usec=2, stamp="") if transport == "kmsg" else True


JUNK = st.binary(max_size=300)
ALMOST = st.lists(
    st.sampled_from([*(row["line"].encode() for row in LINES), b"NVRM: Xid (PCI:", b"0000:3b:00", b"): ", b"79", b", "])
    | st.binary(max_size=8),
    max_size=6,
).map(b"".join)


@given(JUNK | ALMOST)
def test_any_bytes_give_an_event_or_none(line: bytes) -> None:
    event = read_line(line)
    if event is not None:
        assert event.code > 0
        assert event.action
        assert event.pci is None or event.pci == event.pci.lower()
        assert json.loads(event.as_json_line()) == event.as_json()


@pytest.mark.parametrize("row", LINES, ids=lambda row: row["id"])
def test_the_line_of_json_is_the_json(row: dict[str, str]) -> None:
    event = read(row["line"])
    if event is None:
        return
    assert json.loads(event.as_json_line()) == event.as_json()
    continuation = ["continuation"] if row["id"] == "sxid-sev" else []
    assert list(event.as_json()) == [*JSON_KEYS, *continuation]
    assert event.as_json_line().count("\n") == 1
    assert event.as_json_line().isascii()


HOSTILE = [
    b"a" * 1_000_000,
    b" " * 1_000_000,
    b"[" * 1_000_000,
    b"<4>1 " + b"a " * 500_000,
    b"<4>1 - h kernel - - " + b"[a]" * 300_000,
    b"Nov 22 18:29:55 " + b"a." * 500_000,
    b"4,1,2,-;" + b"\\x41" * 250_000,
    b"NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=" + b"a, " * 333_000,
    b"NVRM: Xid (PCI:0000:3b:00): 145, " + b"A_" * 500_000,
    b"NVRM: Xid (PCI:0000:3b:00): 145, A_B" + b" " * 1_000_000 + b"Fatal",
    b"NVRM: Xid (PCI:0000:3b:00): 145, A_B Fatal XC0 i0 Link 1 (" + b"0x00000000 " * 90_000,
    b"NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (" + b"a" * 1_000_000,
    b"NVRM: The NVIDIA GPU 0000:3b:00.0" + b" \\n" * 300_000,
    b"nvidia-nvswitch0: SXid (PCI:0000:3b:00.0): 1, " + b"Fatal, Link " * 80_000,
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: line[:40].decode())
def test_a_line_of_a_megabyte_is_read_at_once(line: bytes) -> None:
    event = read_line(line)
    if event is not None:
        assert len(event.text) <= MAX_LINE_BYTES


def test_only_the_beginning_of_a_line_is_read() -> None:
    room = MAX_LINE_BYTES - len(xid("79, "))
    assert facts(xid("79, " + "a" * room), "text") == ("a" * room,)
    assert facts(xid("79, " + "a" * room + "b"), "text") == ("a" * room,)
