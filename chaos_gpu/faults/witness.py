"""Gather what is known of a run's trainings: their Jobs, their logs, and what the injector saw of their stores."""

import json
import time
from collections.abc import Iterator
from typing import Any

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.job.story import Attempt, Kill, Saved, Story
from chaos_gpu.errors import ApiError, ApiUnavailable
from chaos_gpu.faults.names import FAULT, RUN, jobs_path, pods_path
from chaos_gpu.faults.observe import landed_of
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.training import ROLE_LABEL, ROLES
from chaos_gpu.faults.xid import pod_name

LOOK_S = 0.2
QUIET_LOOKS = 2
"""So often the injector must have said that no save is going on, after the trainings have ended."""
LAST_WORD_S = 30.0


def story(run: Run, fault: str) -> Story:
    """Wait until the trainings of a fault have ended, at most `resume_s`, and tell what became of them.

    Raises: NotLanded when the fault did not land; ApiError and ApiUnavailable as they come.
    """
    kill = Kill.of(landed_of(run, fault).evidence)
    end_s = time.monotonic() + run.settings.resume_s
    while not all(_ended(job) for job in _jobs(run, fault)) and time.monotonic() < end_s:
        run.pause(LOOK_S)
    events = _last_words(run, fault)
    subject = _attempts(run, fault, ROLES[0])
    references = [attempt for _, attempt in _attempts(run, fault, ROLES[1])]
    job = next((each for each in _jobs(run, fault) if each["metadata"]["labels"][ROLE_LABEL] == ROLES[0]), {})
    return Story(
        kill=kill,
        before=next((attempt for start, attempt in subject if start == 0), None),
        after=tuple(attempt for start, attempt in subject if start > 0),
        restarts=max((start for start, _ in subject), default=0),
        failed=_condition(job, "Failed"),
        finished=bool(_condition(job, "Complete")),
        references=tuple(references) if len(references) == 1 else (),
        saves=saves(events, ROLES[0]),
        reference_saves=saves(events, ROLES[1]),
    )


def preempted(run: Run, fault: str) -> tuple[Kill, tuple[Saved, ...], float | None]:
    """Wait until a training that was told to end has ended. Returns how it was told, its saves, when it had ended."""
    kill = Kill.of(landed_of(run, fault).evidence)
    limit_s = time.monotonic() + kill.grace_s + LAST_WORD_S
    while True:
        events = _events(run, fault)
        ended = next((each["ended_ns"] / 1e9 for each in events if each["event"] == "ended"), None)
        if ended is not None or time.monotonic() > limit_s:
            return kill, saves(_last_words(run, fault), ROLES[0]), ended
        run.pause(LOOK_S)


def saves(events: list[JsonObject], role: str) -> tuple[Saved, ...]:
    """Return the saves of one training that the injector has reported."""
    return tuple(Saved.of(each) for each in events if each["event"] == "saved" and each.get("training") == role)


def _last_words(run: Run, fault: str) -> list[JsonObject]:
    """Wait until the injector has said that no save is going on any more."""
    before, end_s = _quiet(_events(run, fault)), time.monotonic() + LAST_WORD_S
    while True:
        events = _events(run, fault)
        if _quiet(events) >= before + QUIET_LOOKS or time.monotonic() > end_s:
            return events
        run.pause(LOOK_S)


def _quiet(events: list[JsonObject]) -> int:
    return sum(each["event"] == "holding" and each.get("saving") == [] for each in events)


def _events(run: Run, fault: str) -> list[JsonObject]:
    found = []
    for line in _log(run, pod_name(run.id, fault), {}):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            found.append(event)
    return found


def _log(run: Run, pod: str, query: dict[str, str]) -> list[str]:
    """Read a log; none where it is gone."""
    try:
        read_s = run.api.deadlines.total_s
        return [line.decode(errors="replace") for line in run.api.lines(f"{pods_path()}/{pod}/log", query, read_s)]
    except (ApiError, ApiUnavailable):
        return []


def _attempts(run: Run, fault: str, role: str) -> list[tuple[int, Attempt]]:
    """Return the starts of a training's program of which the log is still there, numbered from 0."""
    found: list[tuple[int, Attempt]] = []
    before = 0
    for pod in sorted(_pods(run, fault, role), key=lambda each: str(each["metadata"]["creationTimestamp"])):
        status = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
        restarts = int(status.get("restartCount") or 0)
        name = pod["metadata"]["name"]
        if restarts:
            lines = _log(run, name, {"previous": "true"})
            found.append((before + restarts - 1, Attempt.of(lines, _exit_code(status.get("lastState")))))
        found.append((before + restarts, Attempt.of(_log(run, name, {}), _exit_code(status.get("state")))))
        before += restarts + 1
    return found


def _exit_code(state: Any) -> int | None:
    code = ((state or {}).get("terminated") or {}).get("exitCode")
    return code if isinstance(code, int) else None


def _pods(run: Run, fault: str, role: str) -> Iterator[JsonObject]:
    return run.api.items(pods_path(), labels=f"{RUN}={run.id},{FAULT}={fault},{ROLE_LABEL}={role}")


def _jobs(run: Run, fault: str) -> list[JsonObject]:
    names = [body["metadata"]["name"] for body in run.injection(fault).plan.objects if body["kind"] == "Job"]
    return [job for name in names if (job := run.api.find(f"{jobs_path()}/{name}"))]


def _ended(job: JsonObject) -> bool:
    return bool(_condition(job, "Complete") or _condition(job, "Failed"))


def _condition(job: JsonObject, kind: str) -> str:
    """Return the reason of a Job's condition, "" where it does not hold."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    holding = [each for each in conditions if each["type"] == kind and each["status"] == "True"]
    return str(holding[0].get("reason") or kind) if holding else ""
