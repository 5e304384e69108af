"""Journals as the guard leaves them, to be changed by the tests."""

from datetime import UTC, datetime
from typing import Any

from chaos_gpu.verdict import Outcome, Verdict

AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def verdict(
    criterion: str = "DEV-02", outcome: str = "pass", reason: str = "seen after 1.000 s", **more: Any
) -> dict[str, Any]:
    return Verdict(criterion=criterion, outcome=Outcome(outcome), reason=reason, at=AT, **more).as_json()


def guard(**changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = {
        "run": "1129-120000-abcdef",
        "phase": "after",
        "refused": None,
        "signal": None,
        "planned": {"DEV-02": 1},
        "verdicts": [verdict()],
        "platform_ready": {"before": True, "after": True, "after_on_target": False},
        "recovery": {"restored": ["injector pod ended"], "open": []},
    }
    return {**record, **changes}


def journal(**changes: Any) -> dict[str, Any]:
    return {
        "chaoslib-version": "1.45.1",
        "experiment": {"title": "A fatal Xid takes its node out of service"},
        "start": "2026-11-29T12:00:00",
        "duration": 12.34,
        "status": "completed",
        "chaos_gpu": guard(**changes),
    }
