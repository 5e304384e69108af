"""PCI addresses: one normal form, found in any of the usual ones."""

import pytest

from chaos_gpu.criteria.pci import normal_pci, pci_in
from chaos_gpu.errors import UsageError


@pytest.mark.parametrize(
    ("address", "normal"),
    [
        ("0000:3b:00", "0000:3b:00"),
        ("0000:3B:1F.0", "0000:3b:1f"),
        ("00000008:06:00.0", "0008:06:00"),
        ("000d:00:00", "000d:00:00"),
        ("ffff:ff:1f", "ffff:ff:1f"),
        ("0000ffff:ff:1f", "ffff:ff:1f"),
    ],
)
def test_normal_form(address: str, normal: str) -> None:
    assert normal_pci(address) == normal


@pytest.mark.parametrize(
    "address", ["00010000:00:00", "0000:3b:00.7", "000:3b:00", "0000:3b:2f", "0000:3b", " 0000:3b:00"]
)
def test_not_a_gpus_address(address: str) -> None:
    with pytest.raises(UsageError):
        normal_pci(address)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("0000:3b:00", True),
        ("(PCI:0000:3b:00): 79", True),
        ("PCI:0000:3B:00.0", True),
        ("00000000:3b:00.0,", True),
        ("0000:3b:00.", True),
        ("0000:3b:00.1", False),
        ("0000:3b:00:1", False),
        ("10000:3b:00", False),
        ("00010000:3b:00", False),
        ("0000:3b:001", False),
        ("a:0000:3b:00", True),
        ("3b:00", False),
        ("", False),
    ],
)
def test_found_in_text(text: str, named: bool) -> None:
    assert pci_in(text, "0000:3b:00") is named


def test_no_text_names_what_is_no_address() -> None:
    assert not pci_in("anything", "")
    assert not pci_in("{pci}", "{pci}")
