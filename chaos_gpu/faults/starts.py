"""The starts of a training's program, taken down while their logs are there.

A kubelet keeps the log of the start before the present one, until that has ended too; a pod that is deleted takes its
logs along.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.criteria.job.story import Attempt
from chaos_gpu.errors import ApiError, ApiUnavailable
from chaos_gpu.faults.names import pods_path

NO_LOG = (400, 404)
"""The server's answers for a container without a log: not started, or gone."""
GONE = "unable to retrieve container logs"
"""So an older kubelet says, in the place of a log, that there is none any more."""
END_S = 60.0
"""How long a container that is told to end may be silent."""


class Start(NamedTuple):
    """One start of a training's program: in which pod, after how many there and in all, when (seconds, 0: unknown)."""

    pod: str
    before_there: int
    before: int
    at_s: float
    attempt: Attempt


class _State(NamedTuple):
    number: int
    state: JsonObject
    query: dict[str, str]


class Starts:
    """Those of one training; tell it of every state of its pods, in time."""

    def __init__(self, api: Api, container: str) -> None:
        """Nothing is known yet.

        Args:
            api: whom to ask for logs.
            container: which one of its pods' containers trains.
        """
        self._api, self._container = api, container
        self._pods: dict[str, JsonObject] = {}
        self._over: dict[tuple[str, int], tuple[float, Attempt]] = {}

    def take(self, pod: JsonObject) -> None:
        """Take down the logs of the starts that have ended; of one that is told to end, up to its end.

        Raises: ApiError and ApiUnavailable as they come.
        """
        name, meta = pod["metadata"]["name"], pod["metadata"]
        self._pods[name] = pod
        for number, state, query in self._states(pod):
            ended, known = "terminated" in state, self._over.get((name, number))
            if known:
                code = known[1].exit_code if known[1].exit_code is not None else _exit_code(state)
                self._over[name, number] = (known[0], replace(known[1], exit_code=code))
            elif ended or meta.get("deletionTimestamp"):
                lines = self._log(name, query) if ended else self._to_its_end(name, query)
                if lines is not None:
                    self._over[name, number] = (_started_s(state), Attempt.of(lines, _exit_code(state)))

    def told(self) -> list[Start]:
        """Return the starts of which a log is known, or can be read now, oldest first. Raises as `take` does."""
        found: list[Start] = []
        before = 0
        for name, pod in sorted(self._pods.items(), key=lambda each: str(each[1]["metadata"]["creationTimestamp"])):
            states = {each.number: each for each in self._states(pod)}
            count = max(states, default=-1) + 1
            for number in range(count):
                at_s, attempt = self._over.get((name, number)) or self._now(name, states.get(number))
                if attempt is not None:
                    found.append(Start(name, number, before + number, at_s, attempt))
            before += count
        return found

    def _now(self, pod: str, state: _State | None) -> tuple[float, Attempt | None]:
        lines = self._log(pod, state.query) if state else None
        if state is None or lines is None:
            return 0.0, None
        return _started_s(state.state), Attempt.of(lines, _exit_code(state.state))

    def _states(self, pod: JsonObject) -> Iterator[_State]:
        """Yield the starts that the pod's status still tells of, and how to ask for their logs."""
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        status: JsonObject = next((each for each in statuses if each.get("name") == self._container), {})
        restarts = int(status.get("restartCount") or 0)
        state, last = status.get("state") or {}, status.get("lastState") or {}
        query = {"container": self._container}
        if "waiting" in state:  # to be started, or started again: the log there is belongs to the last one
            state = last
        elif restarts:
            yield _State(restarts - 1, last, {**query, "previous": "true"})
        if state:
            yield _State(restarts, state, query)

    def _to_its_end(self, pod: str, query: dict[str, str]) -> list[str] | None:
        try:
            return self._log(pod, {**query, "follow": "true"}, END_S)
        except ApiUnavailable:  # it did not come to its end while it was waited for
            return None

    def _log(self, pod: str, query: dict[str, str], read_s: float = 0.0) -> list[str] | None:
        """Read a log; None where the server says that there is none. Raises as `take` does."""
        limit_s = read_s or self._api.deadlines.total_s
        try:
            lines = self._api.lines(f"{pods_path()}/{pod}/log", query, limit_s)
            told = [line.decode(errors="replace") for line in lines]
        except ApiError as failure:
            if failure.status not in NO_LOG:
                raise
            return None
        return None if told and told[0].lower().startswith(GONE) else told


def _started_s(state: Any) -> float:
    known = [each.get("startedAt") for each in (state or {}).values() if isinstance(each, dict)]
    return datetime.fromisoformat(str(known[0]).replace("Z", "+00:00")).timestamp() if known and known[0] else 0.0


def _exit_code(state: Any) -> int | None:
    code = ((state or {}).get("terminated") or {}).get("exitCode")
    return code if isinstance(code, int) else None
