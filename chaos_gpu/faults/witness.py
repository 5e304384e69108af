"""Gather what is known of a run's trainings: their Jobs, their logs, and what the injector saw of their stores."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.job.story import Attempt, Kill, Saved, Story
from chaos_gpu.errors import ApiError
from chaos_gpu.faults.names import FAULT, RUN, jobs_path, pods_path
from chaos_gpu.faults.observe import landed_of
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.training import ROLE_LABEL, ROLES
from chaos_gpu.faults.xid import pod_name
from chaos_gpu.payloads.eviction import BY_API

LOOK_S = 0.2
QUIET_LOOKS = 2
"""So often the injector must have said that no save is going on, after the trainings have ended."""
LAST_WORD_S = 30.0
NO_LOG = (400, 404)
"""The server's answers for a container without a log: not started, or gone."""


class Start(NamedTuple):
    """One start of a training's program: in which pod, after how many there and in all, when (seconds, 0: unknown)."""

    pod: str
    before_there: int
    before: int
    at_s: float
    attempt: Attempt


def story(run: Run, fault: str) -> Story:
    """Wait until the trainings of a fault have ended, at most `resume_s`, and tell what became of them.

    Raises: NotLanded when the fault did not land; ApiError and ApiUnavailable as they come.
    """
    end_s = time.monotonic() + run.settings.resume_s
    while not all(_ended(job) for job in _jobs(run, fault)) and time.monotonic() < end_s:
        run.pause(LOOK_S)
    events = _last_words(run, fault)
    kill = _kill(run, fault, events)
    starts = _starts(run, fault, ROLES[0])
    after = [each for each in starts if kill.precedes(each.pod, each.before_there, each.at_s)]
    before = [each for each in starts if each not in after]
    references = [each.attempt for each in _starts(run, fault, ROLES[1])]
    job = next((each for each in _jobs(run, fault) if each["metadata"]["labels"][ROLE_LABEL] == ROLES[0]), {})
    return Story(
        kill=kill,
        before=before[0].attempt if len(before) == 1 and before[0].before == 0 else None,
        after=tuple(each.attempt for each in after),
        restarts=max((each.before for each in after), default=0) or len(after),
        failed=_condition(job, "Failed"),
        finished=bool(_condition(job, "Complete")),
        references=tuple(references) if len(references) == 1 else (),
        saves=saves(events, ROLES[0]),
        reference_saves=saves(events, ROLES[1]),
    )


def _kill(run: Run, fault: str, events: list[JsonObject]) -> Kill:
    evidence = landed_of(run, fault).evidence
    if evidence.get("means") not in BY_API:
        return Kill.of(evidence)
    return Kill.at_end(evidence, next((each for each in events if each["event"] == "ended"), None))


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
    """Read a log; none where the server says that there is none. Raises ApiError and ApiUnavailable for the rest."""
    try:
        read_s = run.api.deadlines.total_s
        return [line.decode(errors="replace") for line in run.api.lines(f"{pods_path()}/{pod}/log", query, read_s)]
    except ApiError as failure:
        if failure.status not in NO_LOG:
            raise
        return []


def _starts(run: Run, fault: str, role: str) -> list[Start]:
    """Return the starts of a training's program of which the log is still there, oldest first."""
    found: list[Start] = []
    before, name = 0, _container(run, fault)
    for pod in sorted(_pods(run, fault, role), key=lambda each: str(each["metadata"]["creationTimestamp"])):
        pod_id, statuses = pod["metadata"]["name"], (pod.get("status") or {}).get("containerStatuses") or ()
        status: JsonObject = next((each for each in statuses if each.get("name") == name), {})
        restarts = int(status.get("restartCount") or 0)
        state, last = status.get("state") or {}, status.get("lastState") or {}
        states = [(restarts - 1, last, {"previous": "true"})] if restarts and "waiting" not in state else []
        states.append((restarts, state if "waiting" not in state else last, {}))
        for number, seen, query in states:
            lines = _log(run, pod_id, {"container": name, **query})
            attempt = Attempt.of(lines, _exit_code(seen))
            found.append(Start(pod_id, number, before + number, _started_s(seen), attempt))
        before += restarts + 1
    return found


def _container(run: Run, fault: str) -> str:
    """Name the container that trains: the first that the manifest has, which others may stand before in a pod."""
    job = next(body for body in run.injection(fault).plan.objects if body["kind"] == "Job")
    return str(job["spec"]["template"]["spec"]["containers"][0]["name"])


def _started_s(state: Any) -> float:
    known = [each.get("startedAt") for each in (state or {}).values() if isinstance(each, dict)]
    return datetime.fromisoformat(str(known[0]).replace("Z", "+00:00")).timestamp() if known and known[0] else 0.0


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
