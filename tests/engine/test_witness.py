"""What is gathered of a run's trainings: the right container's log, and no log only where there is none."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from chaos_gpu.errors import ApiError, ApiUnavailable, Forbidden, Invalid, NotFound
from chaos_gpu.faults import witness

Json = dict[str, Any]
FIRST, AGAIN = "2026-09-21T13:33:10Z", "2026-09-21T13:33:24Z"
JOB: Json = {
    "kind": "Job",
    "metadata": {"name": "r1-kill-sub", "labels": {"chaos-gpu/training": "subject"}},
    "spec": {"template": {"spec": {"containers": [{"name": "trainer"}, {"name": "helper"}]}}},
    "status": {"conditions": [{"type": "Complete", "status": "True"}]},
}


def ended(at: str, code: int) -> Json:
    return {"terminated": {"exitCode": code, "startedAt": at}}


def pod(name: str, restarts: int, state: Json, last: Json) -> Json:
    trainer = {"name": "trainer", "restartCount": restarts, "state": state, "lastState": last}
    statuses = [{"name": "helper", "restartCount": 7, "state": ended(FIRST, 9), "lastState": {}}, trainer]
    labels = {"chaos-gpu/training": "subject"}
    meta = {"name": name, "creationTimestamp": FIRST, "labels": labels}
    return {"metadata": meta, "status": {"containerStatuses": statuses}}


class Server:
    """An API server with one pod, its logs by query, and what it says of others."""

    def __init__(self, pods: list[Json], logs: dict[str, list[Json]], otherwise: Exception) -> None:
        self.pods, self.logs, self.otherwise = pods, logs, otherwise
        self.deadlines = SimpleNamespace(total_s=1.0)

    def items(self, path: str, labels: str = "") -> Iterator[Json]:
        return iter(self.pods if "subject" in labels else [])

    def find(self, path: str) -> Json:
        return JOB

    def lines(self, path: str, query: dict[str, str], read_s: float) -> Iterator[bytes]:
        name = path.split("/")[-2] + ("?" + "&".join(sorted(query.values())) if query else "")
        if name not in self.logs:
            raise self.otherwise
        return iter([json.dumps(line).encode() for line in self.logs[name]])


def run_with(server: Server) -> Any:
    plan = SimpleNamespace(objects=[JOB])
    return SimpleNamespace(id="r1", api=server, injection=lambda fault: SimpleNamespace(plan=plan))


def steps(first: int, last: int) -> list[Json]:
    return [{"step": step, "loss": 1.0, "lr": 0.1} for step in range(first, last + 1)]


def test_the_first_container_of_the_manifest_is_the_one_that_trains() -> None:
    """A container that is put beside it may stand first in the pod's status, and have a log of its own."""
    crashed = pod("pod-1", 1, ended(AGAIN, 0), ended(FIRST, 137))
    logs = {"pod-1?trainer&true": steps(1, 6), "pod-1?trainer": steps(5, 12)}
    first, second = witness._starts(run_with(Server([crashed], logs, NotFound("no", 404))), "kill", "subject")
    assert (first.before_there, first.attempt.exit_code, len(first.attempt.steps)) == (0, 137, 6)
    assert (second.before_there, second.attempt.exit_code, len(second.attempt.steps)) == (1, 0, 8)
    assert second.at_s - first.at_s == 14.0


def test_one_that_waits_to_be_started_again_is_counted_once() -> None:
    waiting = pod("pod-1", 1, {"waiting": {"reason": "CrashLoopBackOff"}}, ended(AGAIN, 1))
    logs = {"pod-1?trainer": steps(5, 6), "pod-1?trainer&true": steps(5, 6)}
    (only,) = witness._starts(run_with(Server([waiting], logs, NotFound("no", 404))), "kill", "subject")
    assert (only.before_there, only.attempt.exit_code) == (1, 1)


@pytest.mark.parametrize("failure", [NotFound("gone", 404), Invalid("not started", 400)])
def test_where_there_is_no_log_there_is_none(failure: Exception) -> None:
    assert witness._log(run_with(Server([], {}, failure)), "pod-1", {}) == []


@pytest.mark.parametrize("failure", [ApiUnavailable("no answer"), Forbidden("no", 403), ApiError("broken", 500)])
def test_a_log_that_could_not_be_read_is_not_an_empty_one(failure: Exception) -> None:
    """Else a training whose kubelet does not answer would have done no step."""
    with pytest.raises(type(failure)):
        witness._log(run_with(Server([], {}, failure)), "pod-1", {})
