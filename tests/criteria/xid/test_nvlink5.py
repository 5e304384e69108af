"""NVLink 5: the golden lines for both driver generations, and "no rule" wherever the sheet has none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.xid.catalog import CONTACT_SUPPORT
from chaos_gpu.criteria.xid.nvlink5 import CODES, NO_RULE, parse_link_error, resolve
from chaos_gpu.criteria.xid.reader import read_line
from chaos_gpu.criteria.xid.tables import read_table
from tests.criteria.xid.corpus import GOLDEN

WORDS = st.integers(0, 0xFFFFFFFF)


@pytest.mark.parametrize(
    "row", GOLDEN, ids=lambda row: f"{row['xid']}-{row['subcode']}-{row['intrinfo']}-{row['status']}"
)
@pytest.mark.parametrize("cut", [0, 1, 12])
def test_golden_lines_whole_and_cut_off(row: dict[str, str], cut: int) -> None:
    line = row["line"][: len(row["line"]) - cut]
    event = read_line(line.encode())
    assert event is not None
    assert event.resolution is not None
    assert (str(event.code), event.subcode, event.severity) == (row["xid"], row["subcode"], row["severity"])
    assert event.resolution.as_json() == {"lt_r575": row["v1_lt_r575"], "ge_r575": row["v2_ge_r575"]}
    known = [said for said in (row["v1_lt_r575"], row["v2_ge_r575"]) if said != NO_RULE]
    action = known[0].partition("=")[2].partition("(")[0] if known else CONTACT_SUPPORT
    assert event.action == action
    assert event.bucket == "WORKFLOW_NVLINK5_ERR"
    words = line.partition("Link ")[2].split()
    assert event.link == int(words[0])
    error = parse_link_error(event.text)
    assert error is not None
    assert (error.intrinfo, error.status) == (int(row["intrinfo"], 16), int(row["status"], 16))


WHOLE = "RLW_SRC_TRACK  Nonfatal   XC1 i1 Link -1 (0x04084507 0x00000004 0x00000000)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WHOLE, ("RLW_SRC_TRACK", "Nonfatal", True, -1, 0x04084507, 4)),
        (WHOLE[:-1], ("RLW_SRC_TRACK", "Nonfatal", True, -1, 0x04084507, 4)),
        (WHOLE[:63], ("RLW_SRC_TRACK", "Nonfatal", True, -1, 0x04084507, 4)),
        (WHOLE[:62], ("RLW_SRC_TRACK", "Nonfatal", True, -1, 0x04084507, None)),
        (WHOLE[:53], ("RLW_SRC_TRACK", "Nonfatal", True, -1, 0x04084507, None)),
        (WHOLE[:52], ("RLW_SRC_TRACK", "Nonfatal", True, -1, 0x04084507, None)),
        (WHOLE[:51], ("RLW_SRC_TRACK", "Nonfatal", True, -1, None, None)),
        (WHOLE[:41], ("RLW_SRC_TRACK", "Nonfatal", True, -1, None, None)),
        (WHOLE[:38], ("RLW_SRC_TRACK", "Nonfatal", True, None, None, None)),
        (WHOLE[:30], ("RLW_SRC_TRACK", "Nonfatal", None, None, None, None)),
        (WHOLE[:20], ("RLW_SRC_TRACK", None, None, None, None, None)),
        ("TLW_RX/TLW_RX_PIPE0 Fatal XC0 i0 Link 5 (0x4 0x8)", ("TLW_RX/TLW_RX_PIPE0", "Fatal", False, 5, 4, 8)),
        ("MSE Fatal XC10 i0 Link 123 (0x4 0x8", ("MSE", "Fatal", False, 123, 4, None)),
        ("MSE Fatal XC0 i2 Link 1", ("MSE", "Fatal", None, None, None, None)),
        ("MSE Fatal XC0 i0 Link 1234 (0x00000001)", ("MSE", "Fatal", False, None, None, None)),
        ("MSE Fatal XC0 i0 Link 1 (0x000000011 0x2)", ("MSE", "Fatal", False, 1, None, None)),
        ("MSE Fatality XC0", ("MSE", None, None, None, None, None)),
        ("Mse Fatal XC0", None),
        ("", None),
    ],
)
def test_as_much_as_is_there(text: str, said: tuple[object, ...] | None) -> None:
    error = parse_link_error(text)
    if said is None:
        assert error is None
        return
    assert error is not None
    assert (error.subcode, error.severity, error.injected, error.link, error.intrinfo, error.status) == said


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("text", ["", ", ", ", x", ", Nonfatal", ", pid=1, name=x, what"])
def test_a_record_without_words_has_no_rule(code: int, text: str) -> None:
    event = read_line(f"NVRM: Xid (PCI:0000:04:00): {code}{text}".encode())
    assert event is not None
    assert event.resolution is not None
    assert event.resolution.as_json() == {"lt_r575": NO_RULE, "ge_r575": NO_RULE}
    assert event.action == CONTACT_SUPPORT


@pytest.mark.parametrize("code", [143, 151, 79])
def test_other_codes_have_no_resolution(code: int) -> None:
    line = f"NVRM: Xid (PCI:0000:04:00): {code}, MSE_WATCHDOG Fatal XC0 i0 Link 00 (0x00000000 0x00000000)"
    event = read_line(line.encode())
    assert event is not None
    assert event.resolution is None
    assert (event.subcode, event.severity, event.link) == ("MSE_WATCHDOG", "Fatal", 0)


def test_155_has_the_shape_but_no_words() -> None:
    line = "NVRM: Xid (PCI:0000:04:00): 155, NVLINK_SW_DEFINED_ERROR  Fatal   XC0 i0 Link 09 : Link Down While Active."
    event = read_line(line.encode())
    assert event is not None
    assert (event.subcode, event.severity, event.link, event.injected) == ("NVLINK_SW_DEFINED_ERROR", "Fatal", 9, False)
    assert (event.resolution, event.action) == (None, "RESET_GPU")


def test_an_escalated_pipe_error_resets_the_gpu() -> None:
    plain, escalated = resolve(145, 0x6, 0x1), resolve(145, 0x86, 0x1)
    assert (plain.ge_r575, plain.action) == ("RLW_RXPIPE=IGNORE(Non-fatal*)", "IGNORE")
    assert (escalated.ge_r575, escalated.action) == ("RLW_RXPIPE=RESET_GPU(Non-fatal*)", "RESET_GPU")
    assert resolve(145, 0x4C2, 0x1).lt_r575 == "RLW_RXPIPE=RESET_GPU(Non-fatal*)"


def test_the_status_decides_where_the_sheet_has_one() -> None:
    assert resolve(150, 0, 0xFFFFFFFF).ge_r575 == "MSE Degraded=RESET_GPU(Fatal)"
    assert resolve(150, 0, 1).action == NO_RULE
    assert resolve(150, 0, None).action == NO_RULE
    assert resolve(149, 0x000FE406, None).action == "RESET_GPU"
    assert resolve(145, 0x7, 0x3) == resolve(145, 0x7, None) == resolve(79, 0x7, 0x1)


@pytest.mark.parametrize(
    "row", read_table("nvlink5.tsv"), ids=lambda row: f"{row['xid']}-{row['subcode']}-{row['status']}"
)
@pytest.mark.parametrize("generation", ["lt_r575", "ge_r575"])
def test_every_line_of_the_sheet_is_found_whatever_the_free_bits_are(row: dict[str, str], generation: str) -> None:
    for free in "01":
        intrinfo = int(row[generation].replace("-", free), 2)
        for status in row["status"].split("/") if row["status"] else ["0", "5", "0xffffffff"]:
            said = resolve(int(row["xid"]), intrinfo, int(status, 16)).as_json()[generation]
            assert f"{row['subcode']}={row['action']}({row['severity']})" in said.split(";")


@given(st.sampled_from(CODES), WORDS, WORDS)
def test_two_readings_that_differ_are_no_rule(code: int, intrinfo: int, status: int) -> None:
    found = resolve(code, intrinfo, status)
    said = [each for reading in (found.lt_r575, found.ge_r575) if reading != NO_RULE for each in reading.split(";")]
    actions = {each.partition("=")[2].partition("(")[0] for each in said}
    assert found.action == (actions.pop() if len(actions) == 1 else NO_RULE)
