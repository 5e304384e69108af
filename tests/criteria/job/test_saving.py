"""How long a save may take, how many are kept, and whether one fits into a grace period."""

from dataclasses import replace
from typing import Any

import pytest

from chaos_gpu.criteria.job.saving import judge_grace, judge_retention, judge_save_time
from chaos_gpu.criteria.job.story import Saved
from chaos_gpu.verdict import Outcome
from tests.criteria.job.stories import KILL, saved

FAIL, UNKNOWN, PASS = Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS


def taking(*seconds: float) -> list[Saved]:
    return [saved(4 * n, 10.0 * n, durable_s=10.0 * n + each) for n, each in enumerate(seconds, start=1)]


@pytest.mark.parametrize(
    ("seconds", "limit_s", "outcome"),
    [
        ((1, 1, 1), 0, PASS),
        ((1, 1, 2), 0, PASS),
        ((1, 1, 2.01), 0, FAIL),
        ((1, 3, 4), 0, PASS),
        ((1, 3, 4.1), 0, FAIL),
        ((9, 1), 0, UNKNOWN),
        ((), 0, UNKNOWN),
        ((1, 2), 2, PASS),
        ((2.1,), 2, FAIL),
        ((), 2, UNKNOWN),
    ],
)
def test_save_time(seconds: tuple[float, ...], limit_s: float, outcome: Outcome) -> None:
    judgement = judge_save_time(taking(*seconds), {4: 0.5}, limit_s)
    assert judgement.outcome is outcome
    assert judgement.evidence["durable_s"] == [pytest.approx(each) for each in seconds]
    assert judgement.evidence["blocked_s"] == [0.5]


def test_what_is_said_of_save_times() -> None:
    judgement = judge_save_time(taking(1.2344, 1.5), {4: 0.25, 8: 0.50049}, 2.0)
    assert judgement.evidence == {
        "durable_s": [1.234, 1.5],
        "blocked_s": [0.25, 0.5],
        "bytes": [1000, 1000],
        "limit_s": 2.0,
    }
    assert judgement.reason == "2 saves, 1.5 s at most until all was there, training blocked for 0.5 s at most"
    unlimited = judge_save_time(taking(1, 1, 1), {})
    assert unlimited.evidence["limit_s"] is None
    assert unlimited.reason == "1 saves, 1 s at most until all was there"


KEPT = (saved(4, 90.0, kept=1), saved(8, 110.0), saved(12, 120.0), saved(16, 130.0))


@pytest.mark.parametrize(
    ("saves", "outcome", "said"),
    [
        (KEPT, PASS, "2 complete kept"),
        (KEPT[:3], PASS, "2 complete kept"),
        (KEPT[:2], UNKNOWN, "1 saves since"),
        ((), UNKNOWN, "0 saves since"),
        ((*KEPT[:2], replace(KEPT[2], least=0), KEPT[3]), FAIL, "no complete checkpoint"),
        ((*KEPT[:3], replace(KEPT[3], kept=3)), FAIL, "keeps 3"),
        ((*KEPT[:3], replace(KEPT[3], kept=1)), FAIL, "keeps 1"),
        ((*KEPT[:3], replace(KEPT[3], garbage={"step-8.pt.tmp": 13})), FAIL, "13 bytes are left"),
        ((*KEPT[:2], replace(KEPT[2], garbage={"step-8.pt.tmp": 13}), KEPT[3]), PASS, "nothing left"),
    ],
)
def test_retention(saves: tuple[Saved, ...], outcome: Outcome, said: str) -> None:
    judgement = judge_retention(saves, KILL, keep=2)
    assert judgement.outcome is outcome
    assert said in judgement.reason


@pytest.mark.parametrize(
    ("keep", "settle", "count", "outcome", "said"),
    [
        (4, 2, 4, PASS, "4 complete kept"),
        (5, 2, 4, UNKNOWN, "3 saves since"),
        (0, 2, 4, PASS, "some complete kept"),
        (0, 4, 4, UNKNOWN, "3 saves since"),
        (0, 0, 1, UNKNOWN, "0 saves since"),
        (0, 0, 2, PASS, "some complete kept"),
        (0, 1, 2, PASS, "some complete kept"),
    ],
)
def test_enough_must_have_been_seen(keep: int, settle: int, count: int, outcome: Outcome, said: str) -> None:
    """As many as are declared, and at least one since the kill; one that begins as it comes is since."""
    saves = (KEPT[0], replace(KEPT[1], begun_s=KILL.at_s), *KEPT[2:])[:count]
    judgement = judge_retention(saves, KILL, keep, settle)
    assert judgement.outcome is outcome
    assert said in judgement.reason


def test_what_is_said_of_what_is_kept() -> None:
    first, *others = KEPT
    left = {f"{name}.tmp": 10 for name in "fedcba"}
    judgement = judge_retention((replace(first, least=3), *others[:-1], replace(others[-1], garbage=left)), KILL, 2)
    assert judgement.evidence == {
        "kept": [1, 2, 2, 2],
        "least": 1,
        "garbage": left,
        "declared": 2,
        "saves_since_kill": 3,
    }
    assert judgement.reason.endswith(
        "60 bytes are left of interrupted saves, 3 saves later: a.tmp, b.tmp, c.tmp, d.tmp, e.tmp"
    )
    assert judge_retention((), KILL, 2).evidence["garbage"] == {}


def test_what_is_said_of_the_grace_period() -> None:
    judgement = judge_grace([saved(5, 101.0), saved(6, 102.0)], KILL, 103.0004)
    kept = {key: judgement.evidence[key] for key in ("grace_s", "ended_after_s", "saved_after_s", "step", "slack_s")}
    assert kept == {"grace_s": 10.0, "ended_after_s": 3.0, "saved_after_s": 2.0, "step": 5, "slack_s": 8.0}
    assert judgement.evidence["saves"][1] == {"step": 6, "begun_s": 2.0, "durable_s": 3.0}
    nothing = judge_grace([], KILL, None).evidence
    assert (nothing["ended_after_s"], nothing["saved_after_s"], nothing["step"]) == (None, None, None)


@pytest.mark.parametrize(
    ("saves", "ended_s", "changed", "outcome", "said"),
    [
        ([saved(5, 101.0)], 103.0, {}, PASS, "8 s before the end"),
        ([saved(5, 101.0)], 102.0, {}, PASS, "2 s after the request"),
        ([saved(5, 100.0)], 109.9, {}, PASS, "9 s before the end"),
        ([saved(5, 101.0)], 110.0, {}, FAIL, "still running"),
        ([saved(5, 101.0)], 103.0, {"grace_s": -1.0}, UNKNOWN, "not known"),
        ([saved(5, 101.0)], 101.9, {}, FAIL, "saved nothing"),
        ([saved(5, 101.0, complete="no")], 103.0, {}, FAIL, "saved nothing"),
        ([saved(4, 99.0)], 103.0, {}, FAIL, "saved nothing"),
        ([], 103.0, {}, FAIL, "saved nothing"),
        ([saved(5, 101.0)], None, {}, UNKNOWN, "not seen to end"),
        ([saved(5, 101.0)], 103.0, {"grace_s": 0.0}, UNKNOWN, "not known"),
    ],
)
def test_grace(saves: list[Saved], ended_s: float | None, changed: dict[str, Any], outcome: Outcome, said: str) -> None:
    judgement = judge_grace(saves, replace(KILL, **changed), ended_s)
    assert judgement.outcome is outcome
    assert said in judgement.reason
