"""Each call ends in time with the right error; only what may pass is tried again; nothing secret is told."""

import json
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.cluster.client import MERGE_PATCH, Api, error_of
from chaos_gpu.cluster.exec import Exec
from chaos_gpu.errors import ApiError, ApiUnavailable, Conflict, Forbidden, Gone, Invalid, NotFound, UsageError
from tests.cluster_client.conftest import SILENCE_S, TOKEN, Answer, Server, cut, reply, status, stream

PODS = "/api/v1/namespaces/x/pods"
CLASSES = {400: Invalid, 401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone, 422: Invalid}


@pytest.mark.parametrize(("code", "kind"), CLASSES.items())
def test_an_answer_is_an_answer(api: Api, server: Server, code: int, kind: type[ApiError]) -> None:
    server.answers(status(code, "no, because"))
    with pytest.raises(kind, match="no, because") as failure:
        api.get(PODS)
    assert failure.value.status == code
    assert len(server.requests) == 1, "it is not asked again"


PASSING = {"429": status(429), **{str(code): status(code) for code in (500, 502, 503, 504)}, "cut": cut}


@pytest.mark.parametrize("answer", PASSING.values(), ids=PASSING)
def test_what_passes_is_tried_again(api: Api, server: Server, answer: Answer) -> None:
    server.answers(answer, answer, reply(200, {"kind": "Pod"}))
    assert api.get(PODS) == {"kind": "Pod"}
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer", [status(503, "busy"), cut, reply(200, {}, wait_s=SILENCE_S)], ids=["503", "cut", "silent"]
)
def test_it_ends_at_its_deadline(api: Api, server: Server, answer: Answer) -> None:
    server.answers(answer)
    begun = time.monotonic()
    with pytest.raises(ApiUnavailable, match="gave up after 1 s") as failure:
        api.get(PODS)
    assert time.monotonic() - begun < SILENCE_S
    assert "kubectl get --raw /readyz" in failure.value.remedy
    assert len(server.requests) >= 2


def test_a_call_may_have_a_deadline_of_its_own(api: Api, server: Server) -> None:
    server.answers(status(503))
    with pytest.raises(ApiUnavailable, match=r"gave up after 0\.2 s"):
        api.request("GET", PODS, deadline_s=0.2)


def test_a_slow_answer_inside_the_deadline_is_one(make_api: Callable[..., Api], server: Server) -> None:
    server.answers(reply(200, {"kind": "Pod"}, wait_s=0.7))
    assert make_api(read_s=2, total_s=5).get(PODS) == {"kind": "Pod"}


def test_a_disruption_budget_is_an_answer(api: Api, server: Server) -> None:
    body = {"kind": "Status", "code": 429, "message": "no", "details": {"causes": [{"reason": "DisruptionBudget"}]}}
    server.answers(reply(429, body))
    with pytest.raises(ApiError, match="no"):
        api.create(f"{PODS}/a/eviction", {})
    assert len(server.requests) == 1


def test_a_repeated_post_finds_its_own_first_try(api: Api, server: Server) -> None:
    server.answers(cut, status(409, "exists"))
    with pytest.raises(Conflict):
        api.create(PODS, {"metadata": {"name": "a"}})
    assert [each.method for each in server.requests] == ["POST", "POST"]


def test_find_and_delete_take_a_missing_object_for_what_it_is(api: Api, server: Server) -> None:
    server.answers(status(404))
    assert api.find(f"{PODS}/a") is None
    assert api.delete(f"{PODS}/a", grace_s=0, uid="u", background=True) is False
    assert server.requests[-1].body == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u"},
        "propagationPolicy": "Background",
    }


def test_requests_are_as_the_server_expects_them(api: Api, server: Server) -> None:
    api.patch(f"{PODS}/a b", {"metadata": {}})
    request = server.requests[-1]
    assert request.path == f"{PODS}/a%20b"
    assert request.headers["Content-Type"] == MERGE_PATCH
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"


def test_a_list_is_read_to_its_last_page(api: Api, server: Server) -> None:
    pages = [reply(200, {"items": [{"n": n}], "metadata": {"continue": f"p{n}"}}) for n in range(3)]
    server.answers(*pages, reply(200, {"items": [{"n": 3}], "metadata": {}}))
    found = list(api.items(PODS, labels="a=b", fields="c=d"))
    assert [each["n"] for each in found] == [0, 1, 2, 3]
    assert [each.query.get("continue") for each in server.requests] == [None, "p0", "p1", "p2"]
    assert {(each.query["labelSelector"], each.query["fieldSelector"]) for each in server.requests} == {("a=b", "c=d")}


def test_a_page_that_expired_is_said(api: Api, server: Server) -> None:
    server.answers(reply(200, {"items": [{}], "metadata": {"continue": "p"}}), status(410, "too old"))
    with pytest.raises(Gone, match="too old"):
        list(api.items(PODS))


@given(st.integers(300, 599), st.binary(max_size=600))
def test_no_answer_raises_anything_but_its_error(code: int, data: bytes) -> None:
    error = error_of(code, data)
    assert error.status == code
    assert type(error) is CLASSES.get(code, ApiError)


@given(st.text(max_size=40))
def test_only_the_message_of_a_status_is_told(secret: str) -> None:
    body = {"kind": "Secret", "message": f"<{secret}>", "data": {"password": f"<{secret}>"}}
    assert f"<{secret}>" not in str(error_of(403, json.dumps(body).encode()))
    told = {"kind": "Status", "message": "why", "details": {"secret": f"<{secret}>"}}
    assert error_of(403, json.dumps(told).encode()).reason == "why"


@pytest.mark.parametrize("answer", [status(401), cut, status(500), reply(500, TOKEN), reply(403, TOKEN)])
def test_no_error_tells_the_token(api: Api, server: Server, answer: Answer) -> None:
    server.answers(answer)
    with pytest.raises((ApiError, ApiUnavailable)) as failure:
        api.request("GET", PODS, deadline_s=0.3)
    seen: BaseException | None = failure.value
    while seen:
        assert TOKEN not in f"{seen} {seen!r}"
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX: y", "a\x00", "ä", "a\x7f"])
def test_a_token_that_no_header_can_hold(make_api: Callable[..., Api], token: str) -> None:
    api = make_api(token=token)
    with pytest.raises(UsageError) as failure:
        api.get(PODS)
    assert token not in str(failure.value)


# --- answers that come bit by bit ------------------------------------------------------------------------------------


def event(kind: str, version: int, **more: object) -> dict[str, object]:
    return {"type": kind, "object": {"metadata": {"name": "a", "resourceVersion": str(version)}, **more}}


def test_lines_come_as_they_are_written(make_api: Callable[..., Api], server: Server) -> None:
    more, end = threading.Event(), threading.Event()
    server.answers(stream(b"one\ntw", more, b"o\nthree", end))
    lines = make_api().lines(f"{PODS}/a/log", {"follow": "true"}, read_s=SILENCE_S)
    assert next(lines) == b"one"
    more.set()
    assert next(lines) == b"two"
    end.set()
    assert list(lines) == [b"three"]


def test_silence_ends_a_watch(api: Api, server: Server) -> None:
    server.answers(stream(event("ADDED", 1), SILENCE_S))
    events = api.watch(PODS, {}, read_s=0.4)
    assert next(events)["type"] == "ADDED"
    begun = time.monotonic()
    with pytest.raises(ApiUnavailable):
        next(events)
    assert time.monotonic() - begun < SILENCE_S


@pytest.mark.parametrize(("code", "kind"), [(410, Gone), (403, Forbidden), (500, ApiError)])
def test_an_error_event_is_an_error(api: Api, server: Server, code: int, kind: type[ApiError]) -> None:
    server.answers(stream({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "too old"}}))
    with pytest.raises(kind, match="too old"):
        list(api.watch(PODS, {}, read_s=1))


NONSENSE = [b"garbage\n", b"3\n", b"[]\n", b'{"type": "ADDED"}\n', b'{"kind": "Status"}\n']


@pytest.mark.parametrize("answer", [stream(b'{"type": "ADD', then="cut"), *map(stream, NONSENSE)])
def test_a_watch_that_makes_no_sense_is_broken(api: Api, server: Server, answer: Answer) -> None:
    server.answers(answer)
    with pytest.raises(ApiUnavailable):
        list(api.watch(PODS, {}, read_s=1))


def test_an_exec_that_is_not_answered_ends_in_time(api: Api, server: Server) -> None:
    server.answers(reply(200, {}, wait_s=SILENCE_S))
    begun = time.monotonic()
    with pytest.raises(ApiUnavailable, match="exec in pod x/a"):
        Exec(api, "x", "a", ["true"], timeout_s=0.3)
    assert time.monotonic() - begun < SILENCE_S


def test_an_exec_that_is_refused_says_why(api: Api, server: Server) -> None:
    server.answers(status(403))
    with pytest.raises(ApiUnavailable, match="403") as failure:
        Exec(api, "x", "a", ["true"])
    assert TOKEN not in str(failure.value)
