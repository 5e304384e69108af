"""What is gathered of a run's trainings: the right container's log, and no log only where there is none."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos_gpu.errors import ApiError, ApiUnavailable, Forbidden, Invalid, NotFound
from chaos_gpu.faults import witness
from chaos_gpu.faults.starts import Starts

Json = dict[str, Any]
FIRST, AGAIN = "2026-09-21T13:33:10Z", "2026-09-21T13:33:24Z"
RUNNING: Json = {"running": {"startedAt": AGAIN}}


def ended(at: str, code: int) -> Json:
    return {"terminated": {"exitCode": code, "startedAt": at}}


def pod(name: str, restarts: int, state: Json, last: Json) -> Json:
    trainer = {"name": "trainer", "restartCount": restarts, "state": state, "lastState": last}
    statuses = [{"name": "helper", "restartCount": 7, "state": ended(FIRST, 9), "lastState": {}}, trainer]
    labels = {"chaos-gpu/training": "subject"}
    meta = {"name": name, "creationTimestamp": FIRST, "labels": labels}
    return {"metadata": meta, "status": {"containerStatuses": statuses}}


class Server:
    """An API server with logs by query, and what it says of others."""

    def __init__(self, logs: dict[str, list[Json]], otherwise: Exception) -> None:
        self.logs, self.otherwise = logs, otherwise
        self.deadlines = SimpleNamespace(total_s=1.0)

    def lines(self, path: str, query: dict[str, str], read_s: float) -> Iterator[bytes]:
        name = path.split("/")[-2] + "?" + "&".join(sorted(key for key in query if key != "container"))
        assert query["container"] == "trainer"
        if name not in self.logs:
            raise self.otherwise
        return iter([json.dumps(line).encode() for line in self.logs[name]])


GONE = NotFound("no", 404)


def starts(logs: dict[str, list[Json]], otherwise: Exception = GONE) -> Starts:
    server: Any = Server(logs, otherwise)
    return Starts(server, "trainer")


def steps(first: int, last: int) -> list[Json]:
    return [{"step": step, "loss": 1.0, "lr": 0.1} for step in range(first, last + 1)]


def counted(found: Starts) -> list[tuple[str, int, int, int, int | None]]:
    return [
        (each.pod, each.before_there, each.before, len(each.attempt.steps), each.attempt.exit_code)
        for each in found.told()
    ]


def test_the_first_container_of_the_manifest_is_the_one_that_trains() -> None:
    """A container that is put beside it may stand first in the pod's status, and have a log of its own."""
    found = starts({"pod-1?previous": steps(1, 6), "pod-1?": steps(5, 12)})
    found.take(pod("pod-1", 1, ended(AGAIN, 0), ended(FIRST, 137)))
    assert counted(found) == [("pod-1", 0, 0, 6, 137), ("pod-1", 1, 1, 8, 0)]
    first, second = found.told()
    assert second.at_s - first.at_s == 14.0


def test_a_log_is_taken_down_while_it_is_there() -> None:
    """A kubelet keeps one start that has ended: once the second has, the first is gone."""
    logs = {"pod-1?previous": steps(1, 6), "pod-1?": steps(5, 7)}
    found = starts(logs)
    found.take(pod("pod-1", 1, RUNNING, ended(FIRST, 137)))
    assert counted(found) == [("pod-1", 0, 0, 6, 137), ("pod-1", 1, 1, 3, None)]
    del logs["pod-1?previous"]
    logs["pod-1?"] = steps(5, 12)
    found.take(pod("pod-1", 1, ended(AGAIN, 0), {}))
    assert counted(found) == [("pod-1", 0, 0, 6, 137), ("pod-1", 1, 1, 8, 0)]


def test_a_log_that_was_missed_is_none_and_its_start_is_counted() -> None:
    found = starts({"pod-1?": steps(5, 12)})
    found.take(pod("pod-1", 1, ended(AGAIN, 0), {}))
    assert counted(found) == [("pod-1", 1, 1, 8, 0)]


def test_the_log_of_a_pod_that_goes_away_is_read_to_its_end() -> None:
    logs = {"pod-1?follow": steps(1, 6), "pod-2?": steps(7, 8)}
    found, going, later = starts(logs), pod("pod-1", 0, RUNNING, {}), pod("pod-2", 0, ended(AGAIN, 0), {})
    going["metadata"]["deletionTimestamp"] = AGAIN
    later["metadata"]["creationTimestamp"] = AGAIN
    found.take(going)
    del logs["pod-1?follow"]
    going["status"]["containerStatuses"][1]["state"] = ended(AGAIN, 143)
    found.take(going)
    found.take(later)
    assert counted(found) == [("pod-1", 0, 0, 6, 143), ("pod-2", 0, 1, 2, 0)]


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [([0], [1, 2], 0), ([0], [2], 1), ([], [1], 0), ([], [3], 2), ([0, 1], [2, 4], 1), ([0], [], 0), ([], [], 0)],
)
def test_starts_of_which_no_log_is_known_are_counted(before: list[int], after: list[int], lost: int) -> None:
    assert witness._lost(before, after) == lost


def test_one_that_waits_to_be_started_again_is_counted_once() -> None:
    found = starts({"pod-1?": steps(5, 6), "pod-1?previous": steps(5, 6)})
    found.take(pod("pod-1", 1, {"waiting": {"reason": "CrashLoopBackOff"}}, ended(AGAIN, 1)))
    assert counted(found) == [("pod-1", 1, 1, 2, 1)]


def test_what_has_not_been_started_is_no_start() -> None:
    found = starts({})
    found.take(pod("pod-1", 0, {"waiting": {"reason": "ContainerCreating"}}, {}))
    assert found.told() == []


@pytest.mark.parametrize("failure", [GONE, Invalid("not started", 400)])
def test_where_there_is_no_log_there_is_none(failure: Exception) -> None:
    found = starts({}, failure)
    found.take(pod("pod-1", 0, ended(AGAIN, 0), {}))
    assert found.told() == []


def test_what_a_kubelet_says_instead_of_a_log_is_none() -> None:
    found = starts({})
    cast("Any", found)._api.lines = lambda *_: iter([b"unable to retrieve container logs for containerd://73b8"])
    found.take(pod("pod-1", 0, ended(AGAIN, 0), {}))
    assert found.told() == []


@pytest.mark.parametrize("failure", [ApiUnavailable("no answer"), Forbidden("no", 403), ApiError("broken", 500)])
def test_a_log_that_could_not_be_read_is_not_an_empty_one(failure: Exception) -> None:
    """Else a training whose kubelet does not answer would have done no step."""
    with pytest.raises(type(failure)):
        starts({}, failure).take(pod("pod-1", 0, ended(AGAIN, 0), {}))
