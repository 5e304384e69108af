"""Records as platforms write them, and where they keep them."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.health.record import Action, Record, Result, read_record, worst_result
from chaos_gpu.criteria.health.source import Source, read_source, records_in
from chaos_gpu.errors import UsageError

UUID = "GPU-11111111-2222-3333-4444-555555555555"
AT = "2026-11-29T10:00:00Z"
WHOLE = {"node": "n0", "gpu_uuid": UUID, "level": "r3", "result": "Pass", "action": "return", "ended_at": AT}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


def test_a_whole_record_has_no_problems() -> None:
    record = read_record(WHOLE)
    moment = datetime(2026, 11, 29, 10, tzinfo=UTC)
    assert record == Record("n0", UUID, 3, Result.PASS, Action.ADMIT, moment)
    assert json.loads(json.dumps(record.as_json()))["level"] == "r3"


@pytest.mark.parametrize("field", ["node", "gpu_uuid", "level", "result", "action", "ended_at"])
def test_each_field_that_is_missing_is_a_problem(field: str) -> None:
    record = read_record({**WHOLE, field: None})
    assert record.problems == (f"{field} is missing",)
    assert not getattr(record, field)


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("level", 2, 2),
        ("level", "2", 2),
        ("level", "R4", 4),
        ("level", "level-1", 1),
        ("level", "medium", 2),
        ("level", "long", 3),
        ("level", 0, 0),
        ("level", 5, 0),
        ("level", "r5", 0),
        ("level", "r22", 0),
        ("level", True, 0),
        ("result", "PASSED", Result.PASS),
        ("result", "Warn", Result.WARN),
        ("result", "Not Run", Result.SKIP),
        ("result", "maybe", None),
        ("result", 0, None),
        ("action", "uncordoned", Action.ADMIT),
        ("action", "quarantined", Action.ISOLATE),
        ("action", "hold", Action.HOLD),
        ("action", "reboot", None),
        ("gpu_uuid", UUID.upper().replace("GPU-", "GPU-"), UUID.upper()),
        ("gpu_uuid", "3182", ""),
        ("gpu_uuid", "0", ""),
        ("gpu_uuid", 0, ""),
        ("gpu_uuid", UUID + "0", ""),
        ("gpu_uuid", "MIG" + UUID[3:], ""),
        ("ended_at", 1795946400, datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("ended_at", 1795946400000, datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("ended_at", "2026-11-29T19:00:00+09:00", datetime(2026, 11, 29, 10, tzinfo=UTC)),
        ("ended_at", "2026-11-29T10:00:00", None),
        ("ended_at", 1e300, None),
        ("ended_at", True, None),
    ],
)
def test_words_numbers_and_times(field: str, value: Any, read: Any) -> None:
    record = read_record({**WHOLE, field: value})
    assert getattr(record, field) == read
    assert bool(record.problems) == (not read)


def test_times_that_contradict_each_other_or_cannot_be_read() -> None:
    assert read_record({**WHOLE, "started_at": "2026-11-29T10:00:01Z"}).problems == ("it ended before it started",)
    assert read_record({**WHOLE, "started_at": AT}).problems == ()
    assert read_record({**WHOLE, "started_at": "yesterday"}).problems == ("started_at is 'yesterday'",)


def test_a_site_has_its_own_words() -> None:
    record = read_record({**WHOLE, "result": "grün", "action": "zurück"}, {"Grün": "pass", "zurück": "admit"})
    assert (record.result, record.action, record.problems) == (Result.PASS, Action.ADMIT, ())


@given(st.dictionaries(st.sampled_from([*WHOLE, "started_at", "confirmed_by"]), ANYTHING))
def test_whatever_stands_there_is_read_or_named(fields: dict[str, Any]) -> None:
    record = read_record(fields)
    json.dumps(record.as_json())
    read = (record.node, record.gpu_uuid, record.level, record.result, record.action, record.ended_at)
    assert len(record.problems) >= sum(not value for value in read)


@given(st.lists(st.none() | st.sampled_from(list(Result)), max_size=8))
def test_the_worst_is_never_better_than_any(results: list[Result | None]) -> None:
    worst = worst_result(results)
    if Result.FAIL in results:
        assert worst is Result.FAIL
    elif None in results or not results:
        assert worst is None
    else:
        assert worst is min((each for each in results if each), key=list(Result).index)


class TestSource:
    """Where the records are."""

    CONFIG_MAPS = {
        "items": [
            {"metadata": {"name": "a"}, "data": {"1": json.dumps(WHOLE), "2": json.dumps({**WHOLE, "level": "r2"})}},
            {"metadata": {"name": "b"}, "data": {"1": "not JSON"}},
            {"metadata": {"name": "c"}},
        ]
    }

    def test_records_may_be_texts_inside_objects(self) -> None:
        source = Source(kubernetes="/api/v1/configmaps", items="$.items[*].data.*")
        records = records_in(self.CONFIG_MAPS, source)
        assert [record.level for record in records] == [3, 2, 0]
        assert [bool(record.problems) for record in records] == [False, False, True]

    def test_fields_may_lie_deep_and_have_other_names(self) -> None:
        fields = {
            "node": "$.spec.nodeName",
            "gpu_uuid": "$.spec['gpu.uuid']",
            "level": "$.spec.level",
            "result": "$.status.conditions[?@.type == 'Diagnosed'].reason",
            "action": "$.status.action",
            "ended_at": "$.status.completionTime",
        }
        spec = {"nodeName": "n0", "gpu.uuid": UUID, "level": 2}
        status = {
            "conditions": [{"type": "Ready", "reason": "x"}, {"type": "Diagnosed", "reason": "Warn"}],
            "action": "hold",
            "completionTime": AT,
        }
        source = Source(kubernetes="/apis/x/v1/diags", fields=fields)
        (record,) = records_in({"items": [{"spec": spec, "status": status}]}, source)
        assert (record.result, record.action, record.problems) == (Result.WARN, Action.HOLD, ())

    def test_a_history_without_end_is_refused_before_it_is_looked_through(self) -> None:
        with pytest.raises(UsageError, match="holds 50,001 records"):
            records_in({"items": [{}] * 50_001}, Source(http="http://x"))

    def test_a_field_of_which_there_are_two_is_none(self) -> None:
        source = Source(http="http://x/records", fields={**Source(http="http://x").fields, "node": "$.names[*]"})
        (record,) = records_in({"items": [{**WHOLE, "names": ["n0", "n1"]}]}, source)
        assert record.problems == ("node is missing",)

    @pytest.mark.parametrize(
        ("declared", "told"),
        [
            ("{", "no JSON"),
            ("[]", "source of records"),
            ("{}", "exactly one"),
            ('{"kubernetes": "/api/v1/x", "http": "http://x"}', "exactly one"),
            ('{"kubernetes": "configmaps"}', "must be a path"),
            ('{"http": "file:///etc/passwd"}', "must be an address"),
            ('{"http": "http://"}', "must be an address"),
            ('{"http": "http://[x"}', "must be an address"),
            ('{"http": "http://x", "items": "$.["}', "no JSONPath"),
            ('{"http": "http://x", "fields": {"node": "$.n"}}', "gpu_uuid"),
            ('{"http": "http://x", "words": {"ok": "fine"}}', "no result and no action"),
            ('{"http": "http://x", "more": 1}', "more"),
        ],
    )
    def test_what_is_no_source_is_told(self, declared: str, told: str) -> None:
        with pytest.raises(UsageError, match=told):
            read_source(declared)

    def test_nothing_is_no_source(self) -> None:
        assert read_source("  ") is None

    def test_a_name_never_shows_a_query(self) -> None:
        assert Source(http="https://x/records?token=abc").name == "https://x/records"
        assert Source(http="https://ann:secret@x:8/records").name == "https://x:8/records"

    @given(ANYTHING)
    def test_any_document_can_be_looked_through(self, document: Any) -> None:
        for items in ("$.items[*]", "$..*", "$"):
            records = records_in(document, Source(http="http://x", items=items))
            assert all(record.problems for record in records)
