"""Follow objects as they change, without polling: each change is stamped with the runner's monotonic clock."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from chaos_gpu.cluster.client import PAGE, Api, JsonObject
from chaos_gpu.errors import ApiError, ApiUnavailable, Gone

logger = logging.getLogger("chaostoolkit.gpu")

WATCH_S = 240
RETRY_S = 0.2
HANDOVER_S = 0.05
"""So long may it take from the end of one watch to the next one and count as no gap."""


@dataclass(frozen=True)
class Change:
    """One object as it was from `at_s` on (runner's monotonic seconds); `deleted` when it went away."""

    at_s: float
    object: JsonObject
    deleted: bool = False


@dataclass
class Recorder:
    """Records every change of a list of objects from `start` to `stop`, in a daemon thread of its own.

    Attributes:
        keep: takes of an object what is worth keeping; thousands of whole ones would fill the memory.
        changes: the objects as first listed, then each change in order of arrival.
    """

    api: Api
    path: str
    labels: str
    keep: Callable[[JsonObject], JsonObject] = lambda whole: whole
    changes: list[Change] = field(default_factory=list)
    _gaps: list[tuple[float, float]] = field(default_factory=list)
    _lost_at: float | None = None
    _version: str = ""
    _confirmed_at: float = field(default_factory=time.monotonic)
    _seen: set[tuple[str, str]] = field(default_factory=set)
    _arrived: threading.Condition = field(default_factory=threading.Condition)
    _stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """Stretches of the runner's monotonic time in which no watch was open, one that lasts included."""
        lost_at, now = self._lost_at, time.monotonic()
        lasting = lost_at is not None and now - lost_at > HANDOVER_S
        return [*self._gaps, *([(lost_at, now)] if lasting and lost_at is not None else [])]

    def start(self) -> None:
        """List the objects now, then watch in the background. Raises ApiError, ApiUnavailable if the list fails."""
        self._list()
        threading.Thread(target=self._follow, name="chaos-gpu-recorder", daemon=True).start()

    def stop(self) -> None:
        """Record no more."""
        self._stopped.set()

    def wait_for(self, condition: Callable[[list[Change]], bool], until_s: float, step_s: float = 1.0) -> bool:
        """Wait until the recorded changes fulfil `condition`; False when monotonic `until_s` has passed.

        Wakes up at least every `step_s`, so that a signal's exception is raised in time.
        """
        with self._arrived:
            while not condition(self.changes):
                left = until_s - time.monotonic()
                if left <= 0:
                    return False
                self._arrived.wait(min(left, step_s))
            return True

    def confirm(self, limit_s: float) -> bool:
        """See that the watch shows what the server has: each object's newest version arrives within `limit_s`.

        A stream may be silent because nothing happens, or because it is dead. Where it does not catch up, all since
        the last confirmation is a gap.
        """
        asked_at = time.monotonic()
        listed = {_stamp(found) for found in self.api.items(self.path, labels=self.labels)}
        seen = self.wait_for(lambda _: listed <= self._seen, asked_at + limit_s)
        if not seen:
            self._gaps.append((self._confirmed_at, time.monotonic()))
        self._confirmed_at = asked_at
        return seen

    def _list(self) -> None:
        query: dict[str, Any] = {"labelSelector": self.labels, "limit": PAGE}
        while True:
            page = self.api.get(self.path, query)
            for found in page.get("items") or ():
                self._add(Change(time.monotonic(), found))
            token = page["metadata"].get("continue")
            if not token:
                break
            query["continue"] = token
        self._version = str(page["metadata"]["resourceVersion"])

    def _add(self, change: Change) -> None:
        with self._arrived:
            self._seen.add(_stamp(change.object))
            self.changes.append(replace(change, object=self.keep(change.object)))
            self._arrived.notify_all()

    def _follow(self) -> None:
        """Watch on from the last version seen: nothing is missed over a broken watch, only late; a gap all the same."""
        self._lost()
        try:
            self._follow_on()
        finally:  # whatever ends this thread ends the watch
            self._lost()

    def _follow_on(self) -> None:
        while not self._stopped.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch()
                self._lost()
            except (ApiError, ApiUnavailable) as failure:
                self._lost()
                logger.debug("the watch on %s is lost: %s", self.path, failure)
                if isinstance(failure, Gone):
                    self._version = ""
                self._stopped.wait(RETRY_S)

    def _watch(self) -> None:
        query = watch_query(self._version, labels=self.labels)
        for event in self.api.watch(self.path, query, WATCH_S + 10, self._opened):
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._add(Change(time.monotonic(), event["object"], event["type"] == "DELETED"))
            if self._stopped.is_set():
                return

    def _lost(self) -> None:
        if self._lost_at is None:
            self._lost_at = time.monotonic()

    def _opened(self) -> None:
        lost_at, now, self._lost_at = self._lost_at, time.monotonic(), None
        if lost_at is not None and now - lost_at > HANDOVER_S:
            self._gaps.append((lost_at, now))


def _stamp(found: JsonObject) -> tuple[str, str]:
    return str(found["metadata"]["uid"]), str(found["metadata"]["resourceVersion"])


def watch_query(version: str, labels: str = "", fields: str = "", seconds: float = WATCH_S) -> dict[str, Any]:
    """Make the query of a watch that starts after `version` and is ended by the server after `seconds`."""
    query: dict[str, Any] = {"watch": "true", "resourceVersion": version, "timeoutSeconds": max(1, round(seconds))}
    query["allowWatchBookmarks"] = "true"
    if labels:
        query["labelSelector"] = labels
    if fields:
        query["fieldSelector"] = fields
    return query


def follow_one(api: Api, path: str, name: str, limit_s: float) -> Iterator[JsonObject | None]:
    """Yield one object as it is and at each change; None when it is deleted; ends after `limit_s`.

    Args:
        api: the connection.
        path: of the collection, "/api/v1/namespaces/x/pods".
        name: of the object.
        limit_s: seconds to follow it.
    """
    end = time.monotonic() + limit_s
    fields = f"metadata.name={name}"
    while (left := end - time.monotonic()) > 0:
        page = api.get(path, {"fieldSelector": fields})
        yield (page.get("items") or [None])[0]
        query = watch_query(str(page["metadata"]["resourceVersion"]), fields=fields, seconds=left)
        try:
            for event in api.watch(path, query, read_s=left + 1):
                if event["type"] != "BOOKMARK":
                    yield None if event["type"] == "DELETED" else event["object"]
        except (Gone, ApiUnavailable) as failure:
            logger.debug("following %s/%s anew: %s", path, name, failure)
        time.sleep(min(RETRY_S, max(0.0, end - time.monotonic())))
