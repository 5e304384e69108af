"""Records of /dev/kmsg, as the kernel documents them and as a real H200's driver wrote them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.kmsg import KmsgRecord, MalformedRecord, parse_kmsg


@pytest.mark.parametrize(
    ("data", "record"),
    [
        (
            b"4,360,30750792,c;NVRM: Xid (PCI:0000:00:06): 31, pid=469, name=x, channel 0x0000000a",
            KmsgRecord(0, 4, 360, 30750792, "c", "NVRM: Xid (PCI:0000:00:06): 31, pid=469, name=x, channel 0x0000000a"),
        ),
        (b"12,7,8,-;NVRM: x", KmsgRecord(1, 4, 7, 8, "-", "NVRM: x")),
        (b"6,1,2,+;more", KmsgRecord(0, 6, 1, 2, "+", "more")),
        (
            b"6,1,2,-,caller=T17,new=field;text\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n",
            KmsgRecord(0, 6, 1, 2, "-", "text"),
        ),
        (rb"4,1,2,-;a\x0ab\x5cx\xc3\xa9;c", KmsgRecord(0, 4, 1, 2, "-", "a\nb\\x\u00e9;c")),
        (rb"4,1,2,-;\xff \xzz \x4", KmsgRecord(0, 4, 1, 2, "-", "\ufffd \\xzz \\x4")),
        (b"4,18446744073709551615,0,-;", KmsgRecord(0, 4, 18446744073709551615, 0, "-", "")),
    ],
)
def test_records(data: bytes, record: KmsgRecord) -> None:
    assert parse_kmsg(data) == record


def test_only_facility_0_is_the_kernel() -> None:
    assert parse_kmsg(b"7,1,2,-;x").from_kernel
    assert not parse_kmsg(b"8,1,2,-;x").from_kernel


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"4,1,2;x",
        b"4,1,2,-",
        b"4,1,2,z;x",
        b"4,1,2,-x;y",
        b"-4,1,2,-;x",
        b"4,1,2,-\n;x",
        b" 4,1,2,-;x",
        b"4," + b"9" * 5000 + b",2,-;x",
        "٤,1,2,-;x".encode(),
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedRecord):
        parse_kmsg(data)


@given(st.binary() | st.binary().map(lambda rest: b"4,1,2,-" + rest) | st.binary().map(lambda rest: b"4,1,2,-;" + rest))
def test_any_bytes_give_a_record_or_the_declared_error(data: bytes) -> None:
    try:
        record = parse_kmsg(data)
    except MalformedRecord:
        return
    assert 0 <= record.level <= 7


@given(st.text())
def test_what_the_kernel_escapes_comes_back(text: str) -> None:
    escaped = b"".join(
        bytes((byte,)) if 32 <= byte < 127 and byte != 92 else b"\\x%02x" % byte for byte in text.encode()
    )
    assert parse_kmsg(b"4,1,2,-;" + escaped).text == text
