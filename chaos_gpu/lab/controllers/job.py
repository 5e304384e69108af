"""The Job controller: `completions` successes with at most `parallelism` pods at a time.

Failed pods are tried again after 0.2 s doubling to 5 s (10 s to 6 min in the real one), lost ones at once. Not
modelled: indexed jobs, success policies, pod failure policies but for FailJob on exit codes, the tracking finalizer (a
finished pod that is deleted counts again), managedBy. Source: Kubernetes, pkg/controller/job.
"""

from chaos_gpu.lab.client import Api, Informer, Key, key_of
from chaos_gpu.lab.controllers.loop import Loop
from chaos_gpu.lab.controllers.objects import (
    Json,
    controller_of,
    has_condition,
    is_finished,
    is_ready,
    owned_by,
    owner_reference,
    pod_from,
    random_suffix,
)
from chaos_gpu.lab.events import EventRecorder
from chaos_gpu.lab.times import rfc3339, seconds_since

JOBS = "apis/batch/v1/jobs"
PODS = "api/v1/pods"
BACK_OFF_S = 0.2
BACK_OFF_MAX_S = 5.0


class JobController:
    """Follows jobs and pods."""

    def __init__(self, api: Api, jobs: Informer, pods: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._jobs, self._pods = api, jobs, pods
        self._events = EventRecorder(api, "job-controller")
        self._expected: dict[str, set[str]] = {}
        self.loop: Loop[Key] = Loop(self._reconcile)
        jobs.on_event(self._on_job)
        pods.on_event(self._on_pod)

    def _on_job(self, kind: str, job: Json) -> None:
        if kind == "DELETED":
            self._expected.pop(job["metadata"]["uid"], None)
        else:
            self.loop.add(key_of(job))

    def _on_pod(self, _kind: str, pod: Json) -> None:
        owner = controller_of(pod)
        if owner and owner["kind"] == "Job":
            self._expected.get(owner["uid"], set()).discard(pod["metadata"]["name"])
            self.loop.add((pod["metadata"]["namespace"], owner["name"]))

    async def _reconcile(self, key: Key) -> float | None:
        job = self._jobs.objects.get(key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        if finished := _finished_at(job):
            return await self._expire(job, finished)
        pods = owned_by(self._pods.objects.values(), job["metadata"]["uid"])
        status = job.get("status") or {}
        if job["spec"].get("suspend"):
            await self._suspend(job, pods)
            return None
        started = status.get("startTime") or rfc3339()
        wait_s = await self._advance(job, pods, started)
        deadline = job["spec"].get("activeDeadlineSeconds")
        if deadline is not None and wait_s is None:
            wait_s = max(0.0, deadline - seconds_since(started)) + 0.01
        return wait_s

    async def _advance(self, job: Json, pods: list[Json], started: str) -> float | None:
        """Bring one running job a step further; return when to look again."""
        spec = job["spec"]
        succeeded = sum(_phase(pod) == "Succeeded" for pod in pods)
        failed = sum(_has_failed(pod) for pod in pods)
        active = [pod for pod in pods if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp")]
        deadline = spec.get("activeDeadlineSeconds")
        counts = {"succeeded": succeeded, "failed": failed}
        if succeeded >= spec.get("completions", 1):
            return await self._finish(job, active, started, counts, "Complete", "CompletionsReached")
        if deadline is not None and seconds_since(started) >= deadline:
            return await self._finish(job, active, started, counts, "Failed", "DeadlineExceeded")
        if any(_fails_job(spec.get("podFailurePolicy") or {}, pod) for pod in pods):
            return await self._finish(job, active, started, counts, "Failed", "PodFailurePolicy")
        retries = failed + sum(_restarts(pod) for pod in active if spec["template"]["spec"]["restartPolicy"] != "Never")
        if retries > spec.get("backoffLimit", 6):
            return await self._finish(job, active, started, counts, "Failed", "BackoffLimitExceeded")
        expected = self._expected.setdefault(job["metadata"]["uid"], set())
        wanted = min(spec.get("parallelism", 1), spec.get("completions", 1) - succeeded)
        missing = wanted - _occupied(spec, pods) - len(expected)
        wait_s = _back_off_left(pods) if missing > 0 else None
        if missing > 0 and not wait_s:
            for _ in range(missing):
                await self._create_pod(job, expected)
        ready = sum(is_ready(pod) for pod in active)
        await self._write(job, counts | {"startTime": started, "active": len(active), "ready": ready})
        return wait_s or None

    async def _create_pod(self, job: Json, expected: set[str]) -> None:
        metadata = job["metadata"]
        name = f"{metadata['name'][:57]}-{random_suffix()}"
        pod = pod_from(job["spec"]["template"], name, metadata["namespace"], owner_reference("batch/v1", "Job", job))
        expected.add(name)
        try:
            await self._api.create(PODS, pod)
        except BaseException:
            expected.discard(name)
            raise
        self._events.event("batch/v1", "Job", job, "SuccessfulCreate", f"Created pod: {name}")

    async def _finish(
        self, job: Json, active: list[Json], started: str, counts: Json, kind: str, reason: str
    ) -> float | None:
        for pod in active:
            await self._api.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        now = rfc3339()
        first = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
        conditions = [_condition(first, reason, now), _condition(kind, reason, now)]
        status = counts | {"startTime": started, "active": 0, "ready": 0, "conditions": conditions}
        if kind == "Complete":
            status["completionTime"] = now
        await self._write(job, status)
        severity = "Normal" if kind == "Complete" else "Warning"
        self._events.event("batch/v1", "Job", job, "Completed" if kind == "Complete" else reason, reason, severity)
        return None

    async def _expire(self, job: Json, finished: str) -> float | None:
        limit = job["spec"].get("ttlSecondsAfterFinished")
        if limit is None:
            return None
        left = limit - seconds_since(finished)
        if left > 0:
            return float(left)
        await self._api.delete(JOBS, key_of(job), uid=job["metadata"]["uid"], propagationPolicy="Background")
        return None

    async def _suspend(self, job: Json, pods: list[Json]) -> None:
        for pod in pods:
            if not is_finished(pod) and not pod["metadata"].get("deletionTimestamp"):
                await self._api.delete(PODS, key_of(pod), uid=pod["metadata"]["uid"])
        if not has_condition(job, "Suspended"):
            conditions = [_condition("Suspended", "JobSuspended", rfc3339())]
            await self._write(job, {"active": 0, "ready": 0, "startTime": None, "conditions": conditions})

    async def _write(self, job: Json, status: Json) -> None:
        """Write the fields that differ; a resumed job loses its condition Suspended."""
        known = job.get("status") or {}
        if "conditions" not in status and has_condition(job, "Suspended"):
            status["conditions"] = [{**_condition("Suspended", "JobResumed", rfc3339()), "status": "False"}]
        fresh = {name: value for name, value in status.items() if known.get(name) != value}
        if fresh:
            await self._api.patch(JOBS, key_of(job), {"status": fresh}, "strategic", "status")


def _occupied(spec: Json, pods: list[Json]) -> int:
    """Count the pods that no other may take the place of; one that is being deleted may be replaced at once, or not."""
    waits = spec.get("podReplacementPolicy") == "Failed"
    return sum(not is_finished(pod) and (waits or not pod["metadata"].get("deletionTimestamp")) for pod in pods)


def _phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _has_failed(pod: Json) -> bool:
    """A pod that is being deleted before it has ended counts as failed, once it has ended."""
    return _phase(pod) == "Failed"


def _fails_job(policy: Json, pod: Json) -> bool:
    """Whether a pod ended with an exit code after which its job is not to be tried again."""
    statuses = pod.get("status", {}).get("containerStatuses") or [] if _has_failed(pod) else []
    codes = {(status.get("state") or {}).get("terminated", {}).get("exitCode", 0) for status in statuses} - {0}
    rules = [rule["onExitCodes"] for rule in policy.get("rules") or [] if rule["action"] == "FailJob"]
    return any((code in rule["values"]) == (rule["operator"] == "In") for rule in rules for code in codes)


def _restarts(pod: Json) -> int:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return sum(int(status.get("restartCount", 0)) for status in statuses)


def _back_off_left(pods: list[Json]) -> float:
    failed = [pod for pod in pods if _has_failed(pod)]
    if not failed:
        return 0.0
    ends = [
        status["state"]["terminated"]["finishedAt"]
        for pod in failed
        for status in pod["status"].get("containerStatuses") or []
        if "terminated" in (status.get("state") or {})
    ]
    if not ends:
        return 0.0
    delay_s = min(BACK_OFF_S * 2.0 ** (len(failed) - 1), BACK_OFF_MAX_S)
    return max(0.0, delay_s - seconds_since(max(ends)))


def _condition(kind: str, reason: str, now: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": _MESSAGES.get(reason, ""),
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }


_MESSAGES = {
    "CompletionsReached": "Reached expected number of succeeded pods",
    "BackoffLimitExceeded": "Job has reached the specified backoff limit",
    "PodFailurePolicy": "Container of a pod failed with an exit code matching FailJob rule",
    "DeadlineExceeded": "Job was active longer than specified deadline",
    "JobSuspended": "Job suspended",
    "JobResumed": "Job resumed",
}


def _finished_at(job: Json) -> str:
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["lastTransitionTime"])
    return ""
