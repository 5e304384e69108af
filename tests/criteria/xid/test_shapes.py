"""Every form that is composed, read back by our own reader, says what was asked for; and nothing else can be asked."""

from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.kmsg import parse_kmsg
from chaos_gpu.criteria.xid.advice import RECOVERY
from chaos_gpu.criteria.xid.catalog import XidKind, catalogue
from chaos_gpu.criteria.xid.event import Event, Kind
from chaos_gpu.criteria.xid.forms import ends_a_name
from chaos_gpu.criteria.xid.incidents import incidents_of
from chaos_gpu.criteria.xid.nvlink5 import CODES, GENERATIONS, NO_RULE, sample
from chaos_gpu.criteria.xid.record import MAX_BYTES, PCI_PLACEHOLDER, Form, Record, Transport, compose, writes
from chaos_gpu.criteria.xid.shapes import RECIPES, switch_errors, words_of
from chaos_gpu.criteria.xid.stream import read_log
from chaos_gpu.errors import UsageError

MARKER = "cgpu-0a1b2c3d"
PCI = "0000:3b:0c"
KNOWN = sorted(catalogue())
APPLICATION = [code for code in KNOWN if catalogue()[code].kind is XidKind.APPLICATION]


class Asked(NamedTuple):
    """A form, its variant, and a code that can have it."""

    form: Form
    variant: str
    code: int


def codes_of(form: Form) -> list[int]:
    match form:
        case Form.MIG:
            return [*APPLICATION, 95]
        case Form.NVLINK5:
            return list(CODES)
        case Form.RECOVERY:
            return [154]
        case Form.FALLEN:
            return [79]
        case Form.BURST:
            return [13]
        case Form.SXID:
            return sorted(switch_errors())
        case Form.COMMA_NAME:
            return [code for code in KNOWN if ends_a_name(words_of(code, process=True)[0])]
        case _:
            return KNOWN


def variants_of(form: Form) -> list[str]:
    more = {
        Form.MIG: [*(str(gi) for gi in range(15)), *(f"{gi}/{ci}" for gi, ci in product(range(15), range(8)))],
        Form.RECOVERY: [f"{old}-{new}" for old, new in product(RECOVERY, RECOVERY)],
    }
    return [*RECIPES[form].variants, *more.get(form, [])] or [""]


ALL = [Asked(form, variant, code) for form in Form for variant in variants_of(form) for code in codes_of(form)]
EACH = [Asked(form, variant, codes_of(form)[0]) for form in Form for variant in variants_of(form)[:6]]
WAYS = st.sampled_from(["kmsg", "bracket"])
MARKERS = st.from_regex(r"cgpu-[0-9a-z]{8}", fullmatch=True)
ADDRESSES = st.from_regex(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]", fullmatch=True)


def compose_asked(asked: Asked, pci: str = PCI, marker: str = MARKER, pid: int = 7) -> Record:
    return compose(asked.code, pci, form=asked.form, variant=asked.variant, marker=marker, pid=pid)


def as_logged(record: Record, transport: str = "kmsg", since_usec: int = 1_000_000) -> bytes:
    """The lines that a reader of /dev/kmsg sees: each write a record of facility 1, 1 ms apart, newlines escaped."""
    lines = []
    for number, write in enumerate(writes(record, transport, 12.5)):
        level, _, text = write.partition(b">")
        body = text.removesuffix(b"\n").replace(b"\n", rb"\x0a")
        lines.append(b"%d,%d,%d,-;%s\n" % (8 + int(level[1:]), 100 + number, since_usec + 1000 * number, body))
    return b"".join(lines)


def read(record: Record, transport: str = "kmsg") -> list[Event]:
    return list(read_log([as_logged(record, transport)]))


@given(st.sampled_from(ALL), ADDRESSES, MARKERS, st.integers(1, 2**22), WAYS)
def test_what_is_composed_is_what_is_read(asked: Asked, pci: str, marker: str, pid: int, transport: str) -> None:
    record = compose_asked(asked, pci, marker, pid)
    events = read(record, transport)
    (incident,) = incidents_of(events)
    place = f"{pci}.0" if asked.form is Form.SXID else pci
    assert {(event.code, event.pci, event.injected) for event in events} == {(asked.code, place, True)}
    assert incident.pci == place
    assert len(events) == {"burst": 3, "fallen": 2 if asked.variant == "xid" else 1}.get(asked.form, 1)
    assert [event.kind for event in events] == kinds(asked)
    assert (events[-1].pid, events[-1].process) == process(asked, marker, pid)
    assert all(text.count(marker) == 1 for text in record.texts)


def kinds(asked: Asked) -> list[Kind]:
    match asked.form:
        case Form.SXID:
            return [Kind.SXID]
        case Form.BURST:
            return [Kind.XID] * 3
        case Form.FALLEN:
            return {"xid": [Kind.XID, Kind.FALLEN_OFF_BUS]}.get(asked.variant, [Kind.FALLEN_OFF_BUS])
        case _:
            return [Kind.XID]


def process(asked: Asked, marker: str, pid: int) -> tuple[int | None, str | None]:
    if asked.form is Form.COMMA_NAME:
        return pid, "python3, main"
    named = (Form.PROCESS, Form.MIG, Form.LONG_DOMAIN, Form.FUNCTION, Form.UPPER_CASE, Form.BURST)
    return (pid, marker) if asked.form in named else (None, None)


@pytest.mark.parametrize("variant", variants_of(Form.MIG))
def test_mig_instances(variant: str) -> None:
    (event,) = read(compose(31, PCI, form="mig", variant=variant, marker=MARKER))
    gpu_instance, _, compute_instance = variant.partition("/")
    assert event.gpu_instance == int(gpu_instance)
    assert event.compute_instance == (int(compute_instance) if compute_instance else None)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_nvlink5_of_both_generations(code: int, generation: str) -> None:
    rule, _, _ = sample(code, generation)
    (event,) = read(compose(code, PCI, form="nvlink5", variant=generation, marker=MARKER))
    assert event.resolution is not None
    readings = event.resolution.as_json()
    assert f"={rule.action}({rule.severity})" in readings.pop(generation)
    assert (event.subcode, event.action, event.link, event.severity) == (
        rule.subcode.split("/")[0],
        rule.action,
        9,
        rule.severity.replace("-f", "f"),
    )
    if code != 150:  # its one rule is the same for both
        assert readings.popitem()[1] == NO_RULE


def test_a_sample_asks_for_something_where_the_sheet_does() -> None:
    assert [sample(code, "ge_r575")[0].action for code in (144, 145, 146, 150)] == ["RESET_GPU"] * 4
    assert sample(144, "lt_r575")[1:] == (0b100001, 2)


def test_nvlink5_to_the_letter() -> None:
    assert compose(145, PCI, form="nvlink5", marker=MARKER).text == (
        f"NVRM: Xid (PCI:{PCI}): 145, RLW_REMAP  Fatal   XC0 i0 Link 09 "
        f"(0x00000004 0x00000040 0x00000000 0x00000000 0x00000000 0x00000000) {MARKER}"
    )


def test_nvlink5_link_flag_and_cut() -> None:
    cut, no_link, flagged = (
        compose(145, PCI, form="nvlink5", variant=variant, marker=MARKER) for variant in ("cut", "no-link", "flagged")
    )
    assert ")" not in cut.text.partition("Link")[2]
    assert read(cut)[0].resolution == read(compose(145, PCI, form="nvlink5", marker=MARKER))[0].resolution
    assert read(no_link)[0].link == -1
    assert " i1 " in flagged.text
    assert " i0 " in no_link.text
    kernel = flagged.text.replace(MARKER, "").encode()
    assert list(read_log([b"4,1,2,c;" + kernel]))[0].injected is True, "the hardware's own flag"


@pytest.mark.parametrize(("old", "new"), list(product(RECOVERY, RECOVERY)))
def test_recovery_actions(old: int, new: int) -> None:
    record = compose(154, PCI, form="recovery", variant=f"{old}-{new}", marker=MARKER)
    assert f"from 0x{old} ({RECOVERY[old][0]}) to 0x{new} ({RECOVERY[new][0]}) " in record.text
    assert read(record)[0].action == RECOVERY[new][1]


def test_the_three_lines_of_a_gpu_missing_at_probe_time_are_one_write() -> None:
    record = compose(79, PCI, form="fallen", variant="probe", marker=MARKER)
    (written,) = writes(record, "kmsg")
    assert written.count(b"\n") == 3
    stored = parse_kmsg(as_logged(record).removesuffix(b"\n"))
    assert [line.split(" ")[0] for line in stored.text.split("\n")] == ["NVRM:"] * 3


def test_an_nvswitch_error_is_three_records_of_one_event() -> None:
    record = compose(24007, PCI, form="sxid", marker=MARKER)
    (event,) = read(record)
    assert (event.severity, event.link, event.continuation) == ("Fatal", 28, False)
    assert [text.split(", ")[1].split(" ")[0] for text in record.texts] == ["Fatal", "Severity", "Data"]
    assert {write[:3] for write in writes(record, "kmsg")} == {b"<3>"}
    minor = compose(28006, PCI, form="sxid", marker=MARKER)
    assert ", Non-fatal, Link 46 " in minor.texts[0]
    assert ", Severity 0 Engine instance 46 " in minor.texts[1]
    assert ", Severity 1 Engine instance 28 " in record.texts[1]


def test_a_burst_is_as_the_driver_writes_it() -> None:
    """Two records without a process, the third with; see data of an H200."""
    events = read(compose(13, PCI, form="burst", marker=MARKER, pid=488))
    assert [(event.pid, event.text.split(" ")[1]) for event in events] == [
        (None, "SM"),
        (None, "Exception:"),
        (488, "Exception:"),
    ]


def test_both_ways_are_the_records_twice() -> None:
    record = compose(13, PCI, form="burst", marker=MARKER)
    assert writes(record, Transport.BOTH, 1) == (*writes(record, "kmsg"), *writes(record, "bracket", 1))


@pytest.mark.parametrize("asked", EACH, ids=lambda asked: f"{asked.form} {asked.variant}")
def test_the_node_can_fill_in_the_address(asked: Asked) -> None:
    """What the injector does with the placeholders comes to the same as composing with the address itself."""
    blank = compose_asked(asked, PCI_PLACEHOLDER)
    filled = [
        text.replace("{pci}", PCI).replace("{PCI}", PCI.upper()).replace("{switch}", f"{PCI}.0") for text in blank.texts
    ]
    assert tuple(filled) == compose_asked(asked).texts
    assert all("{" in text.split("Data {")[0] or "\n" in text for text in blank.texts)


@pytest.mark.parametrize("asked", EACH, ids=lambda asked: f"{asked.form} {asked.variant}")
def test_an_xid_is_a_warning_and_an_sxid_an_error(asked: Asked) -> None:
    levels = {write[:3] for write in writes(compose_asked(asked), "kmsg")}
    assert levels == {b"<3>" if asked.form is Form.SXID else b"<4>"}


@given(st.sampled_from(ALL), WAYS, st.floats(0, 1e9))
def test_every_write_fits(asked: Asked, transport: str, uptime_s: float) -> None:
    for write in writes(compose_asked(asked), transport, uptime_s):
        assert len(write) <= MAX_BYTES
        assert write.endswith(b"\n")


@pytest.mark.parametrize(
    ("form", "variant", "code", "says"),
    [
        ("mig", "", 79, r"whole GPU: its record names no MIG instance\n.*13, 31, 43, 94\) or 95"),
        ("mig", "", 48, "whole GPU"),
        ("mig", "15", 31, r"form mig has no variant '15'\n.*as 1/0 or 1"),
        ("mig", "1/8", 31, "no variant"),
        ("mig", "1/0\n", 31, "no variant"),
        ("mig", "1/", 31, "no variant"),
        ("nvlink5", "", 143, r"no code of NVLink 5\n.*144 to 150"),
        ("nvlink5", "", 151, "no code of NVLink 5"),
        ("nvlink5", "r575", 149, r"form nvlink5 has no variant 'r575'\n.*ge_r575, lt_r575, cut, no-link, flagged"),
        ("recovery", "", 153, r"Xid 154 announces.*\n.*give code: 154"),
        ("recovery", "0-6", 154, r"no variant '0-6'\n.*as 0-1"),
        ("recovery", "-1-0", 154, "no variant"),
        ("fallen", "", 48, r"Xid 79 is a GPU that fell off the bus\n.*give code: 79"),
        ("fallen", "bus", 79, r"no variant 'bus'\n.*xid, gpu, probe"),
        ("burst", "", 31, r"31 and 43 are one record each\n.*give code: 13"),
        ("comma-name", "", 62, r"where a name with a comma ends\n.*31 or 48"),
        ("sxid", "", 48, r"SXid 48: its text is not known to us\n.*12028, 20034, 24007, 28006"),
        ("plain", "", 24007, "24007 is not in the catalogue"),
        ("quoted-pid", "", 9999, "9999 is not in the catalogue"),
        ("process", "1/0", 48, r"form process has no variant '1/0'\n.*leave it out"),
    ],
)
def test_a_form_that_a_code_cannot_have_is_refused(form: str, variant: str, code: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        compose(code, PCI, form=form, variant=variant, marker=MARKER)


@pytest.mark.parametrize(
    ("form", "variant", "shape", "called"),
    [
        ("plain", "", "plain", "Xid 48 (plain)"),
        ("process", "", "process", "Xid 48"),
        ("mig", "", "mig 1/0", "Xid 31 (mig 1/0)"),
        ("fallen", "gpu", "fallen gpu", "Xid 79 (fallen gpu)"),
        ("sxid", "", "sxid", "SXid 24007"),
    ],
)
def test_a_shape_has_a_name_for_people(form: str, variant: str, shape: str, called: str) -> None:
    code = {"mig": 31, "fallen": 79, "sxid": 24007}.get(form, 48)
    record = compose(code, PCI, form=form, variant=variant, marker=MARKER)
    assert (record.shape, record.called) == (shape, called)


def test_every_form_has_a_recipe() -> None:
    assert set(RECIPES) == set(Form)
