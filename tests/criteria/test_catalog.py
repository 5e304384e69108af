"""The catalogue: complete, honest about what NVIDIA does not say, helpful about codes it does not have."""

import pytest

from chaos_gpu.criteria.xid.catalog import CONTACT_SUPPORT, XidKind, catalogue, lookup
from chaos_gpu.errors import UsageError


def test_it_has_every_code_once() -> None:
    assert list(catalogue()) == list(range(1, 177))


@pytest.mark.parametrize(
    ("code", "mnemonic", "bucket", "kind"),
    [
        (13, "ROBUST_CHANNEL_GR_EXCEPTION", "RESTART_APP", XidKind.APPLICATION),
        (43, "ROBUST_CHANNEL_RESETCHANNEL_VERIF_ERROR", "IGNORE", XidKind.APPLICATION),
        (45, "ROBUST_CHANNEL_PREEMPTIVE_REMOVAL", "WORKFLOW_XID_45", XidKind.APPLICATION),
        (48, "ROBUST_CHANNEL_GPU_ECC_DBE", "WORKFLOW_XID_48", XidKind.HARDWARE),
        (63, "INFOROM_DRAM_RETIREMENT_EVENT", "IGNORE", XidKind.INFORMATION),
        (74, "NVLINK_ERROR", "WORKFLOW_NVLINK_ERR", XidKind.HARDWARE),
        (78, "VGPU_START_ERROR", "UPDATE_SWFW", XidKind.CONFIGURATION),
        (79, "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "RESTART_BM", XidKind.HARDWARE),
        (91, "RESERVED_XID", "CONTACT_SUPPORT", XidKind.UNUSED),
    ],
)
def test_known_codes(code: int, mnemonic: str, bucket: str, kind: XidKind) -> None:
    row = lookup(code)
    assert (row.code, row.mnemonic, row.advice, row.kind) == (code, mnemonic, bucket, kind)


@pytest.mark.parametrize("code", range(162, 177))
def test_a_code_without_a_published_action_means_contact_support(code: int) -> None:
    assert lookup(code).bucket == ""
    assert lookup(code).advice == CONTACT_SUPPORT


@pytest.mark.parametrize(
    ("code", "near"), [(0, "1 .*2 .*3 "), (177, "174 .*175 .*176 "), (999, "174 .*176 "), (-5, "1 ")]
)
def test_an_unknown_code_is_refused_with_its_neighbours(code: int, near: str) -> None:
    with pytest.raises(UsageError, match=f"Xid {code} is not in the catalogue\n.*nearest codes: {near}"):
        lookup(code)


@pytest.mark.parametrize("code", [True, "48", 48.0, None])
def test_only_a_whole_number_is_a_code(code: object) -> None:
    with pytest.raises(UsageError, match="whole number"):
        lookup(code)  # type: ignore[arg-type]
