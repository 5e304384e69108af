"""What may be injected into DCGM, and what may not: dcgmi itself would take all of it and say success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.dcgm.injection import FIELDS, MOST, NAMED, injection
from chaos_gpu.criteria.dcgm.report import Status
from chaos_gpu.errors import UsageError


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_named_error_is_a_value_of_a_field_that_can_be_put_back(name: str) -> None:
    sample = injection(name, 0, "")
    assert (sample.field, sample.value) == (NAMED[name].field, NAMED[name].value)
    assert sample.facts.systems
    assert sample.named is NAMED[name]
    assert name in str(sample)
    assert sample.called == f"{name} (DCGM field {NAMED[name].field})"


def test_the_errors_are_those_of_the_rules_of_health() -> None:
    shown = {name: (known.field, known.value, known.grade, known.grows, known.code) for name, known in NAMED.items()}
    assert shown == {
        "double-bit-ecc": (311, 1, Status.FAIL, False, 4),
        "row-remap-failure": (395, 1, Status.FAIL, False, 80),
        "inforom": (84, 0, Status.WARN, False, 9),
        "pcie-replay": (202, 100, Status.WARN, True, 3),
        "power": (240, 1_000_000, Status.WARN, True, 12),
        "thermal": (241, 1_000_000, Status.WARN, True, 10),
        "nvlink": (409, 10, Status.WARN, True, 13),
        "xid": (230, 79, Status.FAIL, False, 79),
    }


@pytest.mark.parametrize(
    ("error", "field", "value", "why"),
    [
        ("", 0, "", "one of both"),
        ("inforom", 84, "0", "one of both"),
        ("ecc", 0, "", "no error 'ecc'"),
        ("", 397, "1", "field 397"),  # there is none
        ("", 65766, "79", "field 65766"),  # wraps to 230
        ("", 507, "1", "field 507"),  # binary
        ("", -1, "1", "field -1"),
        ("", 311, "", "no value"),
        ("", 311, "abc", "not a number"),  # injects 0
        ("", 311, "3.9", "not whole"),  # injects 3
        ("", 311, "-1", "not a number from 0"),
        ("", 311, "nan", "not a number"),
        ("", 311, "inf", "not a number"),
        ("", 311, "1_000", "not a number"),
        ("", 311, "١", "not a number"),
        ("", 311, str(MOST), "not a number from 0"),
        ("", 237, "0", "outside of a table"),
        ("xid", 0, "seventy-nine", "not a number"),
    ],
)
def test_what_dcgmi_would_take_is_refused(error: str, field: int, value: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        injection(error, field, value)


@pytest.mark.parametrize(
    ("field", "value", "number"),
    [(311, "0", 0.0), (311, str(MOST - 1), MOST - 1.0), (155, "350.5", 350.5), (237, "1", 1.0), (230, "0", 0.0)],
)
def test_what_a_field_can_have_is_taken(field: int, value: str, number: float) -> None:
    assert injection("", field, value).value == number


def test_the_fields_are_those_that_can_be_put_back() -> None:
    assert sorted(FIELDS) == [
        *(84, 100, 101, 112, 140, 150, 155, 202, 203, 204, 230, 237, 238, 240, 241, 310, 311, 312, 313),
        *(392, 393, 394, 395, 396, 409, 419, 429, 439),
    ]
    assert [number for number, known in FIELDS.items() if known.fraction] == [155]
    assert {number: known.baseline for number, known in FIELDS.items() if known.baseline is not None} == {84: 1, 230: 0}
    assert MOST == 2147483648  # from here on, DCGM's 32-bit "blank"


def test_only_an_xid_stays() -> None:
    assert [name for name in sorted(NAMED) if injection(name, 0, "").sticky] == ["xid"]
    assert "engine restart needed" in injection("", 230, "31").sticky


def test_only_counters_grow() -> None:
    growing = [name for name in sorted(NAMED) if injection(name, 0, "").grows]
    assert growing == ["nvlink", "pcie-replay", "power", "thermal"]
    assert not injection("", 202, "100").grows  # a raw value is held as it is


@given(field=st.integers(), value=st.text(max_size=30))
def test_nothing_else_comes_out_than_a_number_of_a_known_field(field: int, value: str) -> None:
    try:
        sample = injection("", field, value)
    except UsageError:
        return
    assert sample.field in FIELDS
    assert 0 <= sample.value < MOST
