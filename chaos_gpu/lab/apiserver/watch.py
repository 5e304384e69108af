"""Watches: changes of a collection as a stream of JSON lines."""

import asyncio
from collections.abc import Iterable

from aiohttp import web

from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.conversion import served, served_raw
from chaos_gpu.lab.apiserver.reading import Form, future, predicate
from chaos_gpu.lab.apiserver.status import Json, StatusError, cause, invalid
from chaos_gpu.lab.apiserver.store import Change, Predicate, Store, Stored, Watcher, dump
from chaos_gpu.lab.apiserver.tables import table

DEFAULT_TIMEOUT_S = 3600
BOOKMARK_EVERY_S = 60


class _View:
    """What one watcher sees of the changes."""

    def __init__(self, bound: Bound, form: Form) -> None:
        self._resource = bound.resource
        self._namespace = bound.namespace
        self._matches: Predicate | None = predicate(bound)
        self._form = form
        self._told_columns = False

    def lines(self, changes: Iterable[Change]) -> bytes:
        """Return the changes that this watcher sees, encoded."""
        return b"".join(filter(None, map(self._line, changes)))

    def initial(self, objects: Iterable[Stored]) -> bytes:
        """Return the objects that were there before the watch, as additions."""
        return self.lines(Change("ADDED", stored, None) for stored in objects)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark: everything up to that revision has been told."""
        meta: Json = {"resourceVersion": str(revision)}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Json = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": meta}
        if self._form.kind == "Table":
            obj = table(self._resource, [], meta, headers=False)
        return dump({"type": "BOOKMARK", "object": obj}) + b"\n"

    def _line(self, change: Change) -> bytes | None:
        if self._namespace and change.new.data["metadata"].get("namespace") != self._namespace:
            return None
        seen = self._seen(change)
        if seen is None:
            return None
        kind, stored = seen
        if not self._form.kind and stored is change.new and kind == change.type:
            return self._shared(change)
        return self._encode(kind, stored, change.revision)

    def _seen(self, change: Change) -> tuple[str, Stored] | None:
        """Return the change as it looks through the selectors: an object may come into view, or go out of it."""
        if self._matches is None:
            return change.type, change.new
        now = self._matches(change.new.data)
        before = change.old is not None and self._matches(change.old.data)
        if change.type == "DELETED":
            return ("DELETED", change.new) if before or now else None
        if now:
            return ("MODIFIED" if before else "ADDED"), change.new
        return ("DELETED", change.old) if before and change.old else None

    def _shared(self, change: Change) -> bytes:
        version = self._resource.api_version
        if version not in change.wire:
            raw = served_raw(self._resource, change.new)
            change.wire[version] = b'{"type":"' + change.type.encode() + b'","object":' + raw + b"}\n"
        return change.wire[version]

    def _encode(self, kind: str, stored: Stored, revision: int) -> bytes:
        data = stored.data
        if stored.revision != revision:
            data = {**data, "metadata": {**data["metadata"], "resourceVersion": str(revision)}}
        if self._form.kind == "Table":
            meta = {"resourceVersion": str(revision)}
            headers, self._told_columns = not self._told_columns, True
            obj = table(self._resource, [data], meta, include=self._form.include, headers=headers)
        else:
            obj = self._form.one(self._resource, data) if self._form.kind else served(self._resource, data)
        return dump({"type": kind, "object": obj}) + b"\n"


async def watch(request: web.Request, bound: Bound, store: Store, form: Form) -> web.StreamResponse:
    """Stream the changes until the time is up, the client leaves or the server stops.

    Raises:
        StatusError: before the stream begins: 400, 422, 504. (410 comes in the stream, as an event.)
    """
    view = _View(bound, form)
    over = False
    try:
        first = _first_lines(bound, store, view)
    except StatusError as error:
        if error.code != 410:
            raise
        over = True
        first = dump({"type": "ERROR", "object": error.as_json()}) + b"\n"
    watcher = store.subscribe(bound.resource.key)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    try:
        await response.prepare(request)
        if first:
            await response.write(first)
        if not over:
            await _follow(response, bound, store, watcher, view)
    except ConnectionError:
        pass  # the client has left
    finally:
        store.unsubscribe(bound.resource.key, watcher)
    return response


def _first_lines(bound: Bound, store: Store, view: _View) -> bytes:
    """Return what happened up to now, as far as the client asked for it."""
    query, key = bound.call.query, bound.resource.key
    initial = query.flag("sendInitialEvents")
    _check_initial(bound, initial)
    since = future(query, store)
    if initial or (since == 0 and not query.has("sendInitialEvents")):
        lines = view.initial(store.select(key, bound.namespace))
        return lines + (view.bookmark(store.revision, initial_end=True) if initial else b"")
    return view.lines(store.since(key, since)) if since else b""


def _check_initial(bound: Bound, initial: bool) -> None:
    query = bound.call.query
    if not query.has("sendInitialEvents"):
        return
    if query.text("resourceVersionMatch") != "NotOlderThan" or (initial and not query.flag("allowWatchBookmarks")):
        message = "sendInitialEvents needs resourceVersionMatch=NotOlderThan and allowWatchBookmarks=true"
        found = cause("FieldValueForbidden", message, "sendInitialEvents")
        raise invalid("ListOptions", "meta.k8s.io", "", [found])


async def _follow(response: web.StreamResponse, bound: Bound, store: Store, watcher: Watcher, view: _View) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + (bound.call.query.number("timeoutSeconds") or DEFAULT_TIMEOUT_S)
    bookmarks = bound.call.query.flag("allowWatchBookmarks")
    while (now := loop.time()) < end:
        try:
            async with asyncio.timeout_at(min(end, now + BOOKMARK_EVERY_S)):
                change = await watcher.queue.get()
        except TimeoutError:
            if bookmarks:
                await response.write(view.bookmark(store.revision))
            continue
        changes = [change]
        while not watcher.queue.empty():
            changes.append(watcher.queue.get_nowait())
        lines = view.lines(c for c in changes if c is not None)
        if lines:
            await response.write(lines)
        if None in changes:
            return
