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
    ("saves", "ended_s", "changed", "outcome", "said"),
    [
        ([saved(5, 101.0)], 103.0, {}, PASS, "8 s before the end"),
        ([saved(5, 101.0)], 110.0, {}, FAIL, "still running"),
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
