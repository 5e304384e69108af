"""Gather what is known of a run's trainings: their Jobs, their logs, and what the injector saw of their stores."""

import json
import time
from collections.abc import Iterator

from chaos_gpu.cluster.client import JsonObject
from chaos_gpu.criteria.job.story import Attempt, Kill, Saved, Story
from chaos_gpu.errors import ApiError
from chaos_gpu.faults.names import FAULT, RUN, jobs_path, pods_path
from chaos_gpu.faults.observe import landed_of
from chaos_gpu.faults.run import Run
from chaos_gpu.faults.starts import NO_LOG, Starts
from chaos_gpu.faults.training import ROLE_LABEL, SUBJECT
from chaos_gpu.faults.xid import pod_name
from chaos_gpu.payloads.eviction import BY_API

LOOK_S = 0.2
QUIET_LOOKS = 2
"""So often the injector must have said that no save is going on, after the trainings have ended."""
LAST_WORD_S = 30.0


def story(run: Run, fault: str) -> Story:
    """Wait until the trainings of a fault have ended, at most `resume_s`, and tell what became of them.

    Raises: NotLanded when the fault did not land; ApiError and ApiUnavailable as they come.
    """
    end_s = time.monotonic() + run.settings.resume_s
    while _take_down(run, fault) and time.monotonic() < end_s:
        run.pause(LOOK_S)
    events = _last_words(run, fault)
    kill = _kill(run, fault, events)
    starts, references = _starts(run, fault, SUBJECT).told(), dict(_references(run, fault))
    saved = [saves(events, role) for role in references]
    after = [each for each in starts if kill.precedes(each.pod, each.before_there, each.at_s)]
    before = [each for each in starts if each not in after]
    job = next((each for each in _jobs(run, fault) if each["metadata"]["labels"][ROLE_LABEL] == SUBJECT), {})
    return Story(
        kill=kill,
        before=before[0].attempt if len(before) == 1 and before[0].before == 0 else None,
        after=tuple(each.attempt for each in after),
        restarts=max((each.before for each in after), default=0) or len(after),
        failed=_condition(job, "Failed"),
        finished=bool(_condition(job, "Complete")),
        references=tuple(references.values()),
        saves=saves(events, SUBJECT),
        reference_saves=saved[0] if saved else (),
        other_saves=tuple(saved[1:]),
        lost=_lost([each.before for each in before], [each.before for each in after]),
    )


def _lost(before: list[int], after: list[int]) -> int:
    """Count the starts since the kill of which no log is known, by the numbers of those that are."""
    return len(set(range(max(before, default=0) + 1, max(after, default=0))) - set(after))


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
            return kill, saves(_last_words(run, fault), SUBJECT), ended
        run.pause(LOOK_S)


def saves(events: list[JsonObject], role: str) -> tuple[Saved, ...]:
    """Return the saves of one training that the injector has reported; of one reported twice, what was said last."""
    told = (each for each in events if each["event"] == "saved" and each.get("training") == role)
    return tuple({each["begun_ns"]: Saved.of(each) for each in told}.values())


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


def _take_down(run: Run, fault: str) -> bool:
    """Take down what the logs of the trainings say at this moment; say whether one of them goes on."""
    going_on = not all(_ended(job) for job in _jobs(run, fault))  # before the look: it shows all they did
    for pod in run.api.items(pods_path(), labels=f"{RUN}={run.id},{FAULT}={fault},{ROLE_LABEL}"):
        _starts(run, fault, pod["metadata"]["labels"][ROLE_LABEL]).take(pod)
    return going_on


def _references(run: Run, fault: str) -> Iterator[tuple[str, Attempt]]:
    """Yield role and log of each training that was left alone; one that was started more than once is none."""
    for role in (each["metadata"]["labels"][ROLE_LABEL] for each in _planned_jobs(run, fault)):
        told = _starts(run, fault, role).told() if role != SUBJECT else []
        if [each.before for each in told] == [0]:
            yield role, told[0].attempt


def _starts(run: Run, fault: str, role: str) -> Starts:
    """Return what is known of one training's starts; kept by the run, for logs go."""
    return run.starts.setdefault((fault, role), Starts(run.api, _container(run, fault)))


def _container(run: Run, fault: str) -> str:
    """Name the container that trains: the first that the manifest has, which others may stand before in a pod."""
    return str(_planned_jobs(run, fault)[0]["spec"]["template"]["spec"]["containers"][0]["name"])


def _planned_jobs(run: Run, fault: str) -> list[JsonObject]:
    return [body for body in run.injection(fault).plan.objects if body["kind"] == "Job"]


def _jobs(run: Run, fault: str) -> list[JsonObject]:
    names = [body["metadata"]["name"] for body in _planned_jobs(run, fault)]
    return [job for name in names if (job := run.api.find(f"{jobs_path()}/{name}"))]


def _ended(job: JsonObject) -> bool:
    return bool(_condition(job, "Complete") or _condition(job, "Failed"))


def _condition(job: JsonObject, kind: str) -> str:
    """Return the reason of a Job's condition, "" where it does not hold."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    holding = [each for each in conditions if each["type"] == kind and each["status"] == "True"]
    return str(holding[0].get("reason") or kind) if holding else ""
