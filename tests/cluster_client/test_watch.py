"""A recorder misses nothing, and says for which times it could not have seen anything as it happened."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chaos_gpu.cluster.client import Api
from chaos_gpu.cluster.watch import Recorder, follow_one
from chaos_gpu.errors import Forbidden
from tests.cluster_client.conftest import SILENCE_S, Server, cut, reply, status, stream

NODES = "/api/v1/nodes"


def node(version: int, name: str = "n") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": str(version)}}


def page(version: int, *items: dict[str, Any]) -> Any:
    return reply(200, {"metadata": {"resourceVersion": str(version)}, "items": list(items)})


def event(kind: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": node(version)}


@pytest.fixture
def recorder(api: Api) -> Iterator[Recorder]:
    made = Recorder(api, NODES, "a=b")
    yield made
    made.stop()


def versions(recorder: Recorder) -> list[str]:
    return [change.object["metadata"]["resourceVersion"] for change in recorder.changes]


def await_versions(recorder: Recorder, *wanted: str) -> None:
    recorder.wait_for(lambda _: versions(recorder) == list(wanted), time.monotonic() + 5)
    assert versions(recorder) == list(wanted)


def watches(server: Server) -> list[str]:
    return [each.query["resourceVersion"] for each in server.requests if "watch" in each.query]


def test_records_the_list_and_each_change(recorder: Recorder, server: Server) -> None:
    server.answers(page(5, node(3)), stream(event("MODIFIED", 6), event("BOOKMARK", 7), event("DELETED", 8), 20))
    recorder.start()
    await_versions(recorder, "3", "6", "8")
    assert [change.deleted for change in recorder.changes] == [False, False, True]
    assert watches(server) == ["5"]
    assert recorder.gaps == []
    assert all(each.query["labelSelector"] == "a=b" for each in server.requests)


def test_a_list_that_fails_is_said_at_once(recorder: Recorder, server: Server) -> None:
    server.answers(status(403))
    with pytest.raises(Forbidden):
        recorder.start()


def test_goes_on_where_the_server_ended_the_watch(recorder: Recorder, server: Server) -> None:
    server.answers(page(5), stream(event("BOOKMARK", 7)), stream(event("MODIFIED", 8), 20))
    recorder.start()
    await_versions(recorder, "8")
    assert watches(server) == ["5", "7"]


BROKEN = {"at once": cut, "500": status(500), "later": stream(event("MODIFIED", 6), then="cut"), "no": stream(b"x\n")}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_watch_is_a_gap_and_nothing_is_missed(recorder: Recorder, server: Server, broken: Any) -> None:
    begun = time.monotonic()
    server.answers(page(5), broken, stream(event("MODIFIED", 9), 20))
    recorder.start()
    recorder.wait_for(lambda _: "9" in versions(recorder), time.monotonic() + 5)
    assert versions(recorder)[-1] == "9"
    assert watches(server)[1] in ("5", "6"), "it goes on behind what it has seen"
    ((start, end),) = recorder.gaps
    assert begun <= start < end <= recorder.changes[-1].at_s


def test_a_gap_begins_with_the_end_of_the_last_watch(recorder: Recorder, server: Server) -> None:
    """The server ends a watch in order, and answers the next one only with silence: nothing was watched meanwhile."""
    server.answers(page(5), stream(event("MODIFIED", 6)), reply(503, {}, wait_s=0.6), stream(event("MODIFIED", 9), 20))
    recorder.start()
    await_versions(recorder, "6", "9")
    ((start, end),) = recorder.gaps
    assert end - start >= 0.6
    assert start <= server.requests[2].at_s, "it begins where the first watch ended, not where the next one opened"


def test_a_version_that_is_too_old_means_a_new_list(recorder: Recorder, server: Server) -> None:
    gone = stream({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
    server.answers(page(5, node(3)), gone, page(20, node(15)), stream(event("MODIFIED", 21), 20))
    recorder.start()
    await_versions(recorder, "3", "15", "21")
    assert watches(server) == ["5", "20"]
    assert len(recorder.gaps) == 1


def test_an_outage_is_one_gap(recorder: Recorder, server: Server) -> None:
    server.answers(page(5), *[cut] * 4, stream(event("MODIFIED", 9), 20))
    recorder.start()
    await_versions(recorder, "9")
    assert len(recorder.gaps) == 1


def test_an_outage_that_lasts_is_a_gap_already(recorder: Recorder, server: Server) -> None:
    server.answers(page(5), stream(event("MODIFIED", 6)), cut)
    recorder.start()
    await_versions(recorder, "6")
    until(lambda: recorder.gaps)
    ((start, first_end),) = recorder.gaps
    until(lambda: recorder.gaps[0][1] > first_end)
    assert recorder.gaps[0][0] == start >= recorder.changes[-1].at_s


def until(holds: Callable[[], Any], limit_s: float = 5) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_waits_no_longer_than_told(recorder: Recorder, server: Server) -> None:
    server.answers(page(5), stream(SILENCE_S))
    recorder.start()
    begun = time.monotonic()
    assert not recorder.wait_for(lambda _: False, begun + 0.3)
    assert 0.3 <= time.monotonic() - begun < SILENCE_S


# --- one object ------------------------------------------------------------------------------------------------------


def test_follows_one_object(api: Api, server: Server) -> None:
    server.answers(page(5, node(4)), stream(event("MODIFIED", 6), event("DELETED", 7)), page(8))
    states = follow_one(api, NODES, "n", limit_s=5)
    assert [(state or {}).get("metadata", {}).get("resourceVersion") for state in (next(states) for _ in range(4))] == [
        "4",
        "6",
        None,
        None,
    ]
    assert all(each.query["fieldSelector"] == "metadata.name=n" for each in server.requests)


def test_follows_over_a_broken_watch_without_hurry(api: Api, server: Server) -> None:
    server.answers(page(5, node(4)), cut, page(5, node(4)), cut, page(6, node(6)))
    states = follow_one(api, NODES, "n", limit_s=0.8)
    assert len(list(states)) >= 2
    assert len(server.requests) < 40, "it does not ask without end"


def test_ends_at_its_limit(api: Api, server: Server) -> None:
    server.answers(page(5), stream(SILENCE_S))
    begun = time.monotonic()
    assert list(follow_one(api, NODES, "n", limit_s=0.5)) == [None]
    assert time.monotonic() - begun < SILENCE_S
