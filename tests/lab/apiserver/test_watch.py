"""Watches: what they tell, from when on, and how they end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.lab.apiserver.conftest import MAPS, PODS, Served, pod

MERGE = "application/merge-patch+json"


@contextmanager
def watching(served: Served, path: str, **parameters: str) -> Iterator[Iterator[Any]]:
    """Open a watch; yields its events as they come."""
    with served.http.stream("GET", f"{served.url}/{path}", params={"watch": "1", **parameters}) as response:
        assert response.status_code == 200
        yield (json.loads(line) for line in response.iter_lines())


def brief(event: Any) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"]["name"]


def revision(served: Served, path: str = MAPS) -> str:
    return str(served.ok("GET", path)["metadata"]["resourceVersion"])


def test_a_watch_from_a_list_tells_every_change_in_order(served: Served) -> None:
    with watching(served, MAPS, resourceVersion=revision(served), timeoutSeconds="5") as events:
        served.make(MAPS, "a")
        served.ok("PATCH", f"{MAPS}/a", {"data": {"x": "y"}}, media=MERGE)
        served.ok("DELETE", f"{MAPS}/a")
        seen = [next(events) for _ in range(3)]
    assert [brief(e) for e in seen] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    revisions = [int(e["object"]["metadata"]["resourceVersion"]) for e in seen]
    assert revisions == sorted(set(revisions))


def test_a_watch_replays_what_it_missed(served: Served) -> None:
    since = revision(served)
    served.make(MAPS, "a")
    served.ok("DELETE", f"{MAPS}/a")
    with watching(served, MAPS, resourceVersion=since, timeoutSeconds="5") as events:
        assert [brief(next(events)) for _ in range(2)] == [("ADDED", "a"), ("DELETED", "a")]


@pytest.mark.parametrize("since", ["", "0"])
def test_a_watch_from_nowhere_begins_with_what_there_is(served: Served, since: str) -> None:
    served.make(MAPS, "a")
    with watching(served, MAPS, resourceVersion=since, timeoutSeconds="5") as events:
        assert brief(next(events)) == ("ADDED", "a")


@pytest.mark.parametrize("true", ["1", "t", "T", "true", "True", "TRUE"])
def test_booleans_are_read_as_go_reads_them(served: Served, true: str) -> None:
    served.make(MAPS, "a")
    with watching(served, MAPS, watch=true, timeoutSeconds="5") as events:
        assert brief(next(events)) == ("ADDED", "a")


def test_the_end_of_the_initial_events_is_marked(served: Served) -> None:
    served.make(MAPS, "a")
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with watching(served, MAPS, timeoutSeconds="5", **initial) as events:
        assert brief(next(events)) == ("ADDED", "a")
        bookmark = next(events)
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert served.call("GET", MAPS, params={"watch": "1", "sendInitialEvents": "true"})[0] == 422


def test_an_object_comes_into_view_and_goes_out_of_it(served: Served) -> None:
    served.make(MAPS, "a", metadata={"labels": {"x": "1"}})
    with watching(served, MAPS, resourceVersion=revision(served), labelSelector="x=1", timeoutSeconds="5") as events:
        for value in ("1", "2", "3", "1"):
            served.ok("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"x": value, "y": value}}}, media=MERGE)
        served.make(MAPS, "unseen")
        served.ok("DELETE", f"{MAPS}/a")
        seen = [next(events) for _ in range(4)]
    assert [e["type"] for e in seen] == ["MODIFIED", "DELETED", "ADDED", "DELETED"]
    gone = seen[1]["object"]["metadata"]
    assert gone["labels"]["x"] == "1"
    assert int(gone["resourceVersion"]) > int(seen[0]["object"]["metadata"]["resourceVersion"])


def test_a_field_selector_follows_a_pod_to_its_node(served: Served) -> None:
    served.ok("POST", PODS, pod())
    selector = {"fieldSelector": "spec.nodeName=n", "resourceVersion": revision(served)}
    with watching(served, PODS, timeoutSeconds="5", **selector) as events:
        served.ok("POST", f"{PODS}/p/binding", {"target": {"name": "n"}})
        assert brief(next(events)) == ("ADDED", "p")


def test_a_pods_graceful_end_is_two_events(served: Served) -> None:
    served.ok("POST", PODS, pod(nodeName="n"))
    with watching(served, PODS, resourceVersion=revision(served), timeoutSeconds="5") as events:
        served.ok("DELETE", f"{PODS}/p")
        served.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
        marked, gone = next(events), next(events)
    assert (marked["type"], gone["type"]) == ("MODIFIED", "DELETED")
    assert marked["object"]["metadata"]["deletionTimestamp"]


def test_a_watch_keeps_to_its_namespace_and_name(served: Served) -> None:
    since = revision(served)
    served.make("api/v1/namespaces/kube-system/configmaps", "a")
    served.make(MAPS, "b")
    served.make(MAPS, "c")
    with watching(served, MAPS, resourceVersion=since, timeoutSeconds="5") as events:
        assert [brief(next(events))[1] for _ in range(2)] == ["b", "c"]
    with watching(served, f"{MAPS}/c", resourceVersion=since, timeoutSeconds="5") as events:
        assert brief(next(events)) == ("ADDED", "c")


def test_a_watch_ends_after_its_time(served: Served) -> None:
    with watching(served, MAPS, resourceVersion=revision(served), timeoutSeconds="1") as events:
        assert list(events) == []


def test_a_revision_that_left_the_history_is_410(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    since = revision(served, PODS)
    monkeypatch.setattr("chaos_gpu.lab.apiserver.store.HISTORY_EVENTS", 3)
    for n in range(5):
        served.ok("POST", PODS, pod(f"p{n}"))
    with watching(served, PODS, resourceVersion=since, timeoutSeconds="5") as events:
        told = list(events)
    assert [e["type"] for e in told] == ["ERROR"]
    assert (told[0]["object"]["code"], told[0]["object"]["reason"]) == (410, "Expired")


def test_a_table_of_a_watch_tells_its_columns_once(served: Served) -> None:
    served.make(MAPS, "a")
    served.make(MAPS, "b")
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    parameters = {"watch": "1", "timeoutSeconds": "5"}
    with served.http.stream("GET", f"{served.url}/{MAPS}", params=parameters, headers=accept) as response:
        lines = response.iter_lines()
        first, second = json.loads(next(lines))["object"], json.loads(next(lines))["object"]
    assert first["columnDefinitions"]
    assert not second["columnDefinitions"]
    assert second["rows"][0]["cells"][0] == "b"


def test_a_server_that_stops_ends_its_watches(served: Served) -> None:
    """The fixture's own end would hang, or time out, if an open watch kept the server from stopping."""
    request = served.http.build_request("GET", f"{served.url}/{MAPS}", params={"watch": "1"})
    response = served.http.send(request, stream=True)
    assert response.status_code == httpx.codes.OK
