"""The simulated engine forgets, echoes and keeps as the real one was measured to; the clock is the test's."""

import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.lab.dcgm import diag, health
from chaos_gpu.lab.dcgm.dcgmi import answer
from chaos_gpu.lab.dcgm.engine import Engine, hosted, opened, write_inventory
from chaos_gpu.lab.dcgm.fields import FIELDS
from chaos_gpu.lab.dcgm.manifests import ENGINE_IMAGE, EXPORTER_IMAGE
from chaos_gpu.lab.dcgm.metrics import rendered
from chaos_gpu.lab.dcgm.nodes import programs_of, write_programs
from tests.lab.dcgm.test_transcripts import INVENTORY

BEGAN = 1_000_000.0


class Clock:
    """An engine whose time goes by when it is told to."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.now = directory, BEGAN

    def inject(self, field: int, value: float, offset_s: float = 1) -> None:
        with opened(self.directory, lambda: self.now) as engine:
            engine.inject(engine.gpus[0], FIELDS[field], value, offset_s)

    def watch(self, systems: str = "pmitn", interval_s: float = 30) -> None:
        with opened(self.directory, lambda: self.now) as engine:
            engine.watch_health(systems, interval_s, 600)

    def latest(self, field: int, after_s: float) -> float | None:
        with opened(self.directory, lambda: self.now + after_s) as engine:
            return engine.latest(engine.gpus[0], field)

    def grades(self, after_s: float) -> list[str]:
        with opened(self.directory, lambda: self.now + after_s) as engine:
            return [each.grade for each in health.incidents(engine)]


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    write_inventory(tmp_path, {**INVENTORY, "gpus": [{**gpu, "missing": []} for gpu in INVENTORY["gpus"]]})
    return Clock(tmp_path)


@pytest.mark.parametrize(("offset_s", "lives_s"), [(0, 30), (1, 31), (20, 50)])
def test_a_sample_lives_until_the_poll_after_its_date(clock: Clock, offset_s: float, lives_s: float) -> None:
    clock.watch()
    clock.inject(395, 1, offset_s)
    assert clock.latest(395, lives_s - 0.1) == 1
    assert clock.latest(395, lives_s + 0.1) == 0


def test_the_inforom_is_asked_once_an_hour(clock: Clock) -> None:
    clock.watch()
    clock.inject(84, 0)
    assert clock.grades(3500) == ["Warning"]
    assert clock.grades(3700) == []


def test_what_nobody_watches_stays(clock: Clock) -> None:
    clock.inject(311, 1)
    assert clock.latest(311, 10_000) == 1


def test_the_later_date_stands_whatever_came_later(clock: Clock) -> None:
    clock.watch()
    clock.inject(395, 1, 20)
    clock.inject(395, 0, 5)
    assert clock.latest(395, 0) == 1
    clock.inject(395, 0, 20)
    clock.inject(395, 0, 21)
    assert clock.latest(395, 0) == 0


def test_a_change_is_felt_once_more_when_it_leaves_the_minute(clock: Clock) -> None:
    clock.watch(interval_s=10)
    clock.now += 45
    clock.inject(202, 100)
    assert clock.grades(0) == ["Warning"]
    clock.inject(202, 0, 2)
    assert clock.grades(3) == []
    assert clock.grades(40) == []
    echo = [after_s for after_s in range(40, 120) if clock.grades(after_s)]
    assert echo
    assert 55 <= min(echo) <= max(echo) <= 62


@pytest.mark.parametrize(("replays", "grades"), [(31, []), (32, ["Warning"])])
def test_replays_count_from_the_limit_of_the_link_on(clock: Clock, replays: int, grades: list[str]) -> None:
    clock.watch()
    clock.inject(202, replays)
    assert clock.grades(0) == grades


def test_an_xid_stays_with_health_until_the_engine_starts_anew(clock: Clock) -> None:
    clock.watch()
    clock.inject(230, 79)
    clock.inject(230, 0, 2)
    assert clock.latest(230, 0) == 0
    clock.watch()
    assert clock.grades(100_000) == ["Failure"]
    (clock.directory / "state.json").unlink()
    clock.watch()
    assert clock.grades(0) == []


def test_an_xid_that_nobody_watched_is_none_to_health(clock: Clock) -> None:
    clock.inject(230, 79)
    clock.watch()
    assert clock.grades(0) == []


@pytest.mark.parametrize(
    ("xids", "system", "grade"),
    [
        ((48, 74, 79, 95, 119, 120, 140), "Internal error", "Failure"),
        ((94,), "Internal error", "Warning"),
        ((31, 32, 43, 63), "Memory system", "Warning"),
        ((64,), "Memory system", "Failure"),
        ((13, 30, 44, 65, 80, 96, 141), "", ""),
    ],
)
def test_what_health_makes_of_xids(clock: Clock, xids: tuple[int, ...], system: str, grade: str) -> None:
    clock.watch("m")
    for xid in xids:
        clock.inject(230, xid)
    with opened(clock.directory, lambda: clock.now) as engine:
        found = [(each.code, each.system, each.grade) for each in health.incidents(engine)]
    assert found == [(xid, system, grade) for xid in xids if grade]


@pytest.mark.parametrize(("field", "lives_s"), [(202, 11), (311, 11), (409, 11), (395, 31)])
def test_some_fields_are_polled_as_often_as_is_asked_for_and_some_less(
    clock: Clock, field: int, lives_s: float
) -> None:
    clock.watch(interval_s=10)
    clock.inject(field, 1)
    assert clock.latest(field, lives_s - 0.1) == 1
    assert clock.latest(field, lives_s + 0.1) == 0


def test_the_exporter_is_a_watcher_too(clock: Clock) -> None:
    clock.watch()
    with opened(clock.directory, lambda: clock.now) as engine:
        assert [engine.watchers(FIELDS[field]) for field in (84, 150, 311)] == [1, 0, 1]
        engine.watch_exported()
        assert [engine.watchers(FIELDS[field]) for field in (84, 150, 311)] == [1, 1, 2]


@pytest.mark.parametrize("letter", "pmitn")
def test_health_sees_what_it_was_told_to_watch(clock: Clock, letter: str) -> None:
    clock.watch(letter)
    clock.now += 10
    for field, value in ((202, 100), (395, 1), (84, 0), (240, 5), (409, 1)):
        clock.inject(field, value)
    with opened(clock.directory, lambda: clock.now) as engine:
        systems = [each.system for each in health.incidents(engine)]
    own = {"p": "PCIe system", "m": "Memory system", "i": "Inforom", "t": "Power system", "n": "NVLink system"}
    assert systems == [own[letter]]


def test_a_paused_engine_says_nothing_and_takes_no_polls(clock: Clock) -> None:
    clock.watch()
    clock.inject(395, 1)
    with opened(clock.directory, lambda: clock.now) as engine:
        engine.paused = True
    assert clock.grades(0) == []
    assert clock.latest(395, 1000) == 1


def test_the_exporter_shows_no_xid_before_the_first_and_then_the_last(clock: Clock) -> None:
    def page() -> str:
        with opened(clock.directory, lambda: clock.now) as engine:
            engine.watch_exported()
            return rendered(engine, "n")

    assert "XID_ERRORS" not in page()
    clock.inject(230, 31)
    assert 'err_code="31"' in page()
    clock.inject(395, 1)
    uuid = INVENTORY["gpus"][0]["uuid"]
    assert [line for line in page().splitlines() if "ROW_REMAP_FAILURE{" in line and uuid in line][0].endswith(" 1")


@pytest.mark.parametrize(
    ("image", "programs"),
    [
        (ENGINE_IMAGE, {"dcgmi", "dcgm-exporter", "nv-hostengine"}),
        (EXPORTER_IMAGE, {"dcgm-exporter"}),
        ("python:3.12-slim", set()),
        ("registry.example/dcgm/tools:1", set()),
    ],
)
def test_only_images_of_dcgm_bring_its_programs(tmp_path: Path, image: str, programs: set[str]) -> None:
    write_programs(tmp_path)
    own = programs_of(image)
    assert ({path.name for path in (tmp_path / own).iterdir()} if own else set()) == programs


# --- diagnostics -----------------------------------------------------------------------------------------------------


@pytest.fixture
def running(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with hosted(clock.directory).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield clock.directory


@pytest.mark.parametrize(
    ("code", "level", "rc", "word"),
    [
        (28, 1, 226, "Warn"),
        (80, 1, 226, "Fail"),
        (58, 1, 0, "Pass"),
        (58, 2, 205, "Fail"),
        (51, 2, 226, "Warn"),
        (62, 2, 0, "Pass"),
        (62, 3, 226, "Fail"),
    ],
)
def test_a_fault_of_the_hardware_is_found_from_its_level_on(
    running: Path, code: int, level: int, rc: int, word: str
) -> None:
    (running / "faults.json").write_text(json.dumps([{"gpu": 1, "code": code}]))
    table = answer(["diag", "-r", str(level)], running)
    document = answer(["diag", "-r", str(level), "-j"], running)
    assert (table.rc, document.rc) == (rc, rc)
    assert f"GPU1: {word}" in table.out
    results = [result for test in _tests(document.out) for result in test["results"] if result["entity_id"] == 1]
    failed = [result for result in results if result["status"] == "Fail"]  # there a warning is a failure too
    assert len(failed) == (word != "Pass")
    assert [warning["error_id"] for result in failed for warning in result["warnings"]] == [code] * len(failed)


def _tests(text: str) -> list[Any]:
    return [test for each in json.loads(text)["DCGM Diagnostic"]["test_categories"] for test in each["tests"]]


@pytest.mark.parametrize(("field", "value", "rc"), [(150, 120, 226), (311, 1, 205), (230, 79, 226), (150, 89, 0)])
def test_level_2_reads_samples_and_level_1_does_not(running: Path, field: int, value: int, rc: int) -> None:
    answer(["test", "--inject", "--gpuid", "0", "-f", str(field), "-v", str(value), "--offset", "60"], running)
    assert answer(["diag", "-r", "1", "-j"], running).rc == 0
    assert answer(["diag", "-r", "2", "-j"], running).rc == rc


def test_each_level_contains_the_lower_ones() -> None:
    names = [{name for group in diag.tests_of(level).values() for name in group} for level in (1, 2, 3, 4)]
    assert names[0] == {"software"}
    assert all(lower < higher for lower, higher in zip(names, names[1:], strict=False))


def test_a_second_diagnosis_has_to_wait(running: Path) -> None:
    with (running / "diagnostic").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = answer(["diag", "-r", "1", "-j"], running)
    assert said.rc == 222
    assert "in use" in said.out


@pytest.mark.parametrize(
    ("argv", "rc"),
    [
        (["test", "--inject", "--gpuid", "0", "-f", "65766", "-v", "79"], 0),  # wraps to 230
        (["test", "--inject", "--gpuid", "0", "-f", "311", "-v", "1", "-o", "5"], 1),  # long form only
        (["test", "--inject", "--gpuid", "-1", "-f", "311", "-v", "1"], 254),
        (["test", "--inject", "--gpuid", "0", "-f", "xid_errors", "-v", "1"], 255),
        (["test", "--inject", "--introspect"], 1),
        (["test", "--introspect", "--gpuid", "0", "-f", "395"], 240),
        (["teapot"], 1),
        ([], 1),
    ],
)
def test_what_the_command_line_takes(running: Path, argv: list[str], rc: int) -> None:
    assert answer(argv, running).rc == rc


def test_without_an_engine_nobody_answers(clock: Clock) -> None:
    said = answer(["health", "-g", "0", "-c"], clock.directory)
    assert said.rc == 235
    assert "unable to establish a connection" in said.out


def test_values_are_read_as_the_real_one_reads_them(running: Path) -> None:
    for text, value in (("abc", 0), ("3.9", 3), ("-1", -1)):
        answer(["test", "--inject", "--gpuid", "0", "-f", "311", "-v", text, "--offset", "9"], running)
        with opened(running) as engine:
            assert _last_injected(engine) == value


def _last_injected(engine: Engine) -> float:
    return float(engine.state["series"]["0/311"]["samples"][-1][1])
