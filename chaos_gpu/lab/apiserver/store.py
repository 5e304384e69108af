"""The objects, their revisions, and what watchers are told. In memory; used from one event loop only."""

import asyncio
import bisect
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from chaos_gpu.lab.apiserver.clock import Stamp, stamp
from chaos_gpu.lab.apiserver.resources import Key
from chaos_gpu.lab.apiserver.status import Json, expired

HISTORY_EVENTS = 5000  # kept per resource; a watch from further back gets 410
BACKLOG_EVENTS = 20000  # a watcher that lags further is cut off and has to list again

Name = tuple[str, str]  # namespace ("" if cluster-wide) and name
Predicate = Callable[[Json], bool]


def dump(value: object) -> bytes:
    """Encode compactly; ASCII, so that a lone surrogate from a hostile client is still valid JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


class Stored:
    """One object at one revision. `data` is shared and never changed; `thaw` gives a copy of one's own."""

    __slots__ = ("data", "raw", "revision")

    def __init__(self, data: Json, revision: int) -> None:
        self.data = data
        self.raw = dump(data)
        self.revision = revision

    def thaw(self) -> Json:
        """Return a copy that may be changed."""
        copy: Json = json.loads(self.raw)
        return copy


@dataclass(slots=True)
class Change:
    """What happened to one object: `old` is None when it was added; `new` of a deletion is its last state."""

    type: str  # ADDED, MODIFIED, DELETED
    new: Stored
    old: Stored | None
    wire: dict[str, bytes] = field(default_factory=dict)  # encodings that watchers share, by apiVersion

    @property
    def revision(self) -> int:
        """The revision that this change made."""
        return self.new.revision


class Watcher:
    """A queue of changes of one resource. None ends it: the server stops, or the reader lagged too far behind."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Change | None] = asyncio.Queue()

    def tell(self, change: Change) -> bool:
        """Queue a change; False, and the end, if the backlog is full."""
        if self.queue.qsize() >= BACKLOG_EVENTS:
            self.queue.put_nowait(None)
            return False
        self.queue.put_nowait(change)
        return True


@dataclass
class _Table:
    objects: dict[Name, Stored] = field(default_factory=dict)
    names: list[Name] = field(default_factory=list)  # sorted
    history: deque[Change] = field(default_factory=deque)
    forgotten: int = 0  # revision of the newest change that left the history
    watchers: set[Watcher] = field(default_factory=set)


class Store:
    """Tables of objects by resource, under one revision counter."""

    def __init__(self) -> None:
        self.revision = 1
        self.changed: Stamp = stamp()  # when the last change was stored
        self._uids: dict[str, tuple[Key, Name]] = {}
        self._tables: defaultdict[Key, _Table] = defaultdict(_Table)
        self._dependents: defaultdict[str, set[tuple[Key, Name]]] = defaultdict(set)

    def get(self, key: Key, namespace: str, name: str) -> Stored | None:
        """Return the object, if there is one."""
        return self._tables[key].objects.get((namespace, name))

    def count(self, key: Key) -> int:
        """Return how many objects of that resource there are."""
        return len(self._tables[key].objects)

    def put(self, key: Key, data: Json) -> Stored:
        """Add or replace an object; sets its resourceVersion and tells the watchers."""
        meta = data["metadata"]
        name = (meta.get("namespace") or "", meta["name"])
        table = self._tables[key]
        old = table.objects.get(name)
        self.revision += 1
        meta["resourceVersion"] = str(self.revision)
        new = table.objects[name] = Stored(data, self.revision)
        if old is None:
            bisect.insort(table.names, name)
        self._uids[meta["uid"]] = (key, name)
        self._note_owners(key, name, old, new)
        self._tell(table, Change("ADDED" if old is None else "MODIFIED", new, old))
        return new

    def remove(self, key: Key, namespace: str, name: str) -> Stored:
        """Take the object out; returns its last state, under the revision of its deletion."""
        table = self._tables[key]
        old = table.objects.pop((namespace, name))
        table.names.pop(bisect.bisect_left(table.names, (namespace, name)))
        self.revision += 1
        last = old.thaw()
        last["metadata"]["resourceVersion"] = str(self.revision)
        gone = Stored(last, self.revision)
        self._uids.pop(last["metadata"]["uid"], None)
        self._note_owners(key, (namespace, name), old, None)
        self._tell(table, Change("DELETED", gone, old))
        return gone

    def select(
        self, key: Key, namespace: str = "", matches: Predicate | None = None, after: Name | None = None
    ) -> Iterator[Stored]:
        """Yield the objects in order of namespace and name, from behind `after`; the store may change meanwhile."""
        table = self._tables[key]
        start = bisect.bisect_right(table.names, after) if after else bisect.bisect_left(table.names, (namespace, ""))
        for name in table.names[start:] if not namespace else self._within(table, namespace, start):
            stored = table.objects.get(name)
            if stored is not None and (matches is None or matches(stored.data)):
                yield stored

    def in_namespace(self, namespace: str) -> list[tuple[Key, Stored]]:
        """Return everything that is in a namespace."""
        return [(key, stored) for key in list(self._tables) for stored in self.select(key, namespace)]

    def by_uid(self, uid: str) -> tuple[Key, Name] | None:
        """Return where the object of that UID is, if there is one."""
        return self._uids.get(uid)

    def dependents(self, uid: str) -> list[tuple[Key, Name]]:
        """Return which objects name the object of that UID as an owner."""
        return sorted(self._dependents.get(uid, ()))

    def subscribe(self, key: Key) -> Watcher:
        """Return a queue of all changes of that resource from now on."""
        watcher = Watcher()
        self._tables[key].watchers.add(watcher)
        return watcher

    def unsubscribe(self, key: Key, watcher: Watcher) -> None:
        """Stop telling this watcher."""
        self._tables[key].watchers.discard(watcher)

    def since(self, key: Key, revision: int) -> list[Change]:
        """Return the changes after that revision.

        Raises:
            StatusError: 410, the history does not reach back that far.
        """
        table = self._tables[key]
        if revision < table.forgotten:
            raise expired(f"too old resource version: {revision} ({table.forgotten})")
        return [change for change in table.history if change.revision > revision]

    def close(self) -> None:
        """End all watchers."""
        for table in self._tables.values():
            for watcher in table.watchers:
                watcher.queue.put_nowait(None)
            table.watchers.clear()

    @staticmethod
    def _within(table: _Table, namespace: str, start: int) -> list[Name]:
        return table.names[start : bisect.bisect_left(table.names, (namespace + "\0", ""))]

    def _tell(self, table: _Table, change: Change) -> None:
        self.changed = stamp()
        if len(table.history) >= HISTORY_EVENTS:
            table.forgotten = table.history.popleft().revision
        table.history.append(change)
        table.watchers -= {watcher for watcher in table.watchers if not watcher.tell(change)}

    def _note_owners(self, key: Key, name: Name, old: Stored | None, new: Stored | None) -> None:
        before, after = owner_uids(old), owner_uids(new)
        for uid in before - after:
            self._dependents[uid].discard((key, name))
            if not self._dependents[uid]:
                del self._dependents[uid]
        for uid in after - before:
            self._dependents[uid].add((key, name))


def owner_uids(stored: Stored | None) -> set[str]:
    """Return the UIDs of the object's owners."""
    if stored is None:
        return set()
    return {owner["uid"] for owner in stored.data["metadata"].get("ownerReferences") or ()}
