"""One word for how it stands with a run, the same in `status`, its JSON and messages; how long it may still take."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chaos_gpu.cli.progress import Progress
from chaos_gpu.cli.runs import _facts, _line
from chaos_gpu.faults.aftermath import state_of, unsettled_s
from chaos_gpu.faults.ledger import Entry

Json = dict[str, Any]
WINDOWS = {"reaction_s": 120.0, "uncordon_s": 300}


def entry(state: str, **records: Json) -> Entry:
    return Entry("r", state, records, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("state", "records", "word"),
    [
        ("open", {}, "active"),
        ("open", {"abort": {"at": "now"}}, "aborting"),
        ("closed", {"abort": {"at": "now"}}, "closed"),
        ("stuck", {}, "stuck"),
    ],
)
def test_one_word_for_a_run(state: str, records: Json, word: str) -> None:
    found = entry(state, **records)
    assert state_of(found) == _facts(found)["state"] == _line(found).split()[0] == word


def test_a_closed_run_tells_its_verdicts_apart() -> None:
    outcomes = ("pass", "fail", "pass", "unheard-of")
    judged = {f"verdict.{number:03}": {"outcome": outcome} for number, outcome in enumerate(outcomes)}
    found = entry("closed", **judged)
    assert _facts(found)["verdicts"] == {"fail": 1, "pass": 2}
    assert _line(found).endswith("(1 fail, 2 pass)")
    assert _line(entry("closed")).endswith("(no verdict)")


@pytest.mark.parametrize(
    ("records", "seconds"),
    [
        ({}, 0),
        ({"consequence.x": {"state": "landed", **WINDOWS}}, 420),
        ({"consequence.x": {"state": "settled", **WINDOWS}}, 0),
        ({"consequence.x": {"state": "settled", **WINDOWS}, "consequence.y": {"state": "foreseen", **WINDOWS}}, 420),
        ({"consequence.x": {"unreadable": "{half"}, "fault.x": WINDOWS}, 0),
    ],
)
def test_how_long_reactions_may_still_be_seen_through(records: Json, seconds: float) -> None:
    assert unsettled_s(entry("open", **records)) == seconds


@pytest.mark.parametrize(
    ("message", "shown"),
    [("xid-13: seeing the platform's reaction through: up to 120 s for it to come", True), ("plan: xid-13", False)],
)
def test_the_console_says_that_a_reaction_is_seen_through(message: str, shown: bool, tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text(f"[2026-11-30 02:00:00 INFO] {message}\n")
    console = Console(record=True, width=200, file=StringIO())
    Progress(log, "x", None, console).look()
    assert (message in console.export_text()) == shown
