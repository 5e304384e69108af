"""The reference policy: what everyone agrees on, and never "nothing" for what nobody knows."""

import pytest

from chaos_gpu.criteria.xid.catalog import catalogue
from chaos_gpu.criteria.xid.policy import Action, expected_action, policy_with, reference_policy
from chaos_gpu.errors import UsageError


@pytest.mark.parametrize("code", [48, 64, 74, 79, 119, 120])
def test_everyone_acts_on_these(code: int) -> None:
    assert expected_action(code).action is Action.CORDON


@pytest.mark.parametrize("code", [13, 31, 43])
def test_nobody_acts_on_these(code: int) -> None:
    assert expected_action(code).action is Action.NONE


@pytest.mark.parametrize("code", [0, 162, 173, 176, 177, 999])
def test_an_unknown_code_is_never_harmless(code: int) -> None:
    expectation = expected_action(code)
    assert expectation.action is Action.CORDON
    assert "contact support" in expectation.why


@pytest.mark.parametrize(
    ("code", "action"), [(94, "none"), (63, "none"), (45, "none"), (95, "cordon"), (140, "cordon"), (62, "cordon")]
)
def test_other_codes_follow_nvidias_immediate_action(code: int, action: str) -> None:
    expectation = expected_action(code)
    assert expectation.action == action
    assert catalogue()[code].bucket in expectation.why


def test_every_bucket_of_the_catalogue_has_an_action() -> None:
    assert {row.bucket for row in catalogue().values()} - {""} == set(reference_policy().buckets)


def test_a_site_puts_its_own_actions_over_it() -> None:
    policy = policy_with({"94": "cordon", 79: "none", "document": "runbook 7"})
    assert expected_action(94, policy).action is Action.CORDON
    assert expected_action(79, policy).action is Action.NONE
    assert expected_action(48, policy).action is Action.CORDON
    assert expected_action(94, policy).document == f"runbook 7, over: {reference_policy().document}"
    assert expected_action(79).action is Action.CORDON  # the reference is as before


def test_it_names_nvidias_document() -> None:
    assert "Xid-Catalog.xlsx (sha256 7f70ce96" in reference_policy().document
    assert expected_action(48).document == reference_policy().document


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("", "cordon"),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", "cordon"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "none"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None) cgpu-0a1b2c3d", "none"),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (Drain P2P)", "cordon"),
    ],
)
def test_xid_154_is_about_its_new_action(text: str, action: str) -> None:
    assert expected_action(154, text=text).action == action
    assert expected_action(48, text=text).action is Action.CORDON


def test_without_overrides_it_is_the_reference() -> None:
    assert policy_with({}) is reference_policy()
    assert policy_with(None) is reference_policy()
    assert "configuration" in policy_with({1: "none"}).document


@pytest.mark.parametrize(
    "overrides",
    [{"x": "cordon"}, {0: "cordon"}, {True: "none"}, {48: "reboot"}, {48: None}, {"²": "none"}, {"9" * 5000: "none"}],
)
def test_other_overrides_are_refused(overrides: dict[object, object]) -> None:
    with pytest.raises(UsageError, match="policy's"):
        policy_with(overrides)
