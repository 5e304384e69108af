"""Records: the driver's frame to the letter, our marker where no reader trips over it, bytes as a kernel takes them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.kmsg import parse_kmsg
from chaos_gpu.criteria.xid.catalog import catalogue
from chaos_gpu.criteria.xid.record import MAX_BYTES, NO_SUCH_PID, PCI_PLACEHOLDER, Form, as_written, compose
from chaos_gpu.errors import UsageError

MARKER = "cgpu-0a1b2c3d"
CODES = st.sampled_from(sorted(catalogue()))
FORMS = st.sampled_from([Form.PLAIN, Form.PROCESS])
MARKERS = st.from_regex(r"cgpu-[0-9a-z]{8}", fullmatch=True)
PCI = st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]", fullmatch=True)


@pytest.mark.parametrize(
    ("code", "form", "text"),
    [
        (79, "plain", f"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus. {MARKER}"),
        (43, "process", f"NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name={MARKER}, channel 0x0000000a"),
        (
            13,
            "plain",
            "NVRM: Xid (PCI:0000:3b:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): "
            f"Misaligned Address {MARKER}",
        ),
        (
            13,
            "process",
            f"NVRM: Xid (PCI:0000:3b:00): 13, pid=7, name={MARKER}, Graphics Exception: channel 0x0000000a, "
            "Class 0000cbc0, Offset 00000510, Data 0017e2ac",
        ),
        (
            154,
            "plain",
            "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to "
            f"0x1 (GPU Reset Required) {MARKER}",
        ),
        (46, "plain", f"NVRM: Xid (PCI:0000:3b:00): 46, GPU stopped processing {MARKER}"),
        (33, "plain", f"NVRM: Xid (PCI:0000:3b:00): 33, ROBUST_CHANNEL_SEC_ERROR {MARKER}"),
    ],
)
def test_text(code: int, form: str, text: str) -> None:
    record = compose(code, "0000:3b:00", form=form, marker=MARKER, pid=7)
    assert record.text == text
    assert record.text_known == (code not in {46, 33})


def test_by_default_no_living_process_is_named() -> None:
    assert f"pid={NO_SUCH_PID}," in compose(48, "0000:3b:00", form="process", marker=MARKER).text
    assert NO_SUCH_PID == 2**22 + 1


def test_init_is_a_process_too() -> None:
    assert "pid=1," in compose(48, "0000:3b:00", form="process", marker=MARKER, pid=1).text


def test_a_node_may_fill_in_the_address_itself() -> None:
    assert "(PCI:{pci}): 48, " in compose(48, PCI_PLACEHOLDER, marker=MARKER).text


@pytest.mark.parametrize("pci", ["0000:3B:00", "0000:3b:00.0", "00000000:3B:00.0", "00000000:3b:00"])
def test_any_usual_form_of_an_address_is_written_as_the_driver_writes_it(pci: str) -> None:
    assert "(PCI:0000:3b:00):" in compose(48, pci, marker=MARKER).text


@pytest.mark.parametrize(
    "pci", ["", "3b:00", "0000:3b:00.1", "10000:3b:00", "0000:3b:20", "0000:3b:00.8", "0000:3b:00\n", "gggg:3b:00"]
)
def test_other_addresses_are_refused(pci: str) -> None:
    with pytest.raises(UsageError):
        compose(48, pci, marker=MARKER)


@pytest.mark.parametrize(
    "marker", ["", "cgpu-", "cgpu-0A1B2C3D", "cgpu-0a1b2c3", "cgpu-0a1b2c3d4", "x: 5, y", "cgpu-0a1b2(3)"]
)
def test_other_markers_are_refused(marker: str) -> None:
    with pytest.raises(UsageError, match="marker"):
        compose(48, "0000:3b:00", marker=marker)


@pytest.mark.parametrize("pid", [0, -1, True, "7"])
def test_other_pids_are_refused(pid: object) -> None:
    with pytest.raises(UsageError, match="process id"):
        compose(48, "0000:3b:00", form="process", marker=MARKER, pid=pid)  # type: ignore[arg-type]


def test_other_forms_and_transports_are_refused() -> None:
    with pytest.raises(UsageError, match=r"no record form 'fancy'\n.*plain, process"):
        compose(48, "0000:3b:00", form="fancy", marker=MARKER)
    for transport in ("dcgm", "both"):
        with pytest.raises(UsageError, match=rf"no transport '{transport}'\n.*kmsg, bracket"):
            as_written("x", transport)


@given(CODES, PCI, FORMS, MARKERS)
def test_every_record_is_read_as_one_xid_by_strict_and_by_lax_readers(
    code: int, pci: str, form: Form, marker: str
) -> None:
    text = compose(code, pci, form=form, marker=marker).text
    assert re.findall(r": (\d+),", text) == [str(code)]
    assert text.count(marker) == 1
    strict = re.fullmatch(
        r"NVRM: Xid \(PCI:([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\): (\d+), (?:pid=(\d+), name=([^,]{1,15}), )?(\S.*)",
        text,
    )
    assert strict is not None
    assert (strict[1], int(strict[2])) == (pci, code)
    assert strict[4] == (marker if form is Form.PROCESS else None)
    last_parenthesis = text.rfind("(")
    assert marker not in text[last_parenthesis : text.find(")", last_parenthesis)]


@given(CODES, FORMS, st.sampled_from(["kmsg", "bracket"]), st.floats(0, 1e9))
def test_every_record_fits_into_one_write(code: int, form: Form, transport: str, uptime_s: float) -> None:
    text = compose(code, "0000:3b:00", form=form, marker=MARKER).text
    data = as_written(text, transport, uptime_s)
    assert len(data) <= MAX_BYTES
    assert data.startswith(b"<4>NVRM: " if transport == "kmsg" else b"<4>[")
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    stored = parse_kmsg(b"12,1,2,-;" + data[3:-1])
    assert stored.text.endswith(text)


def test_bytes_of_both_transports() -> None:
    assert as_written("NVRM: x", "kmsg", 1.5) == b"<4>NVRM: x\n"
    assert as_written("NVRM: x", "bracket") == b"<4>[0.000000] NVRM: x\n"
    assert as_written("NVRM: x", "bracket", 123.4567894) == b"<4>[123.456789] NVRM: x\n"


def test_the_longest_write_is_976_bytes() -> None:
    room = 976 - len(b"<4>\n")
    assert len(as_written("x" * room, "kmsg")) == 976
    with pytest.raises(UsageError, match="977 bytes long, 976 at most"):
        as_written("x" * (room + 1), "kmsg")


@pytest.mark.parametrize("text", ["two\nlines", "tab\t", "é", "\x7f"])
def test_only_printable_ascii_is_written(text: str) -> None:
    with pytest.raises(UsageError, match="printable ASCII"):
        as_written(text, "kmsg")


@pytest.mark.parametrize("uptime_s", [-0.1, float("nan")])
def test_uptime_is_not_negative(uptime_s: float) -> None:
    with pytest.raises(UsageError, match="time since boot"):
        as_written("x", "bracket", uptime_s)
