"""Watch a checkpoint store by its files alone: which save is being written, how far it is, when it was all there.

No format is known here. A save is the set of files that appear, or are written anew, together; it is over when the
next one begins (the same kind of name comes again) or when nothing has changed for a while; when it then does go on, it
had only been interrupted. What a finished save looks
like (names with their numbers taken out, bytes, time, size of one write) is what the next one is measured against.
Times are CLOCK_MONOTONIC in nanoseconds; a change is seen at most one look after it happened.
"""

import os
import re
import stat
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

POINTER_BYTES = 1024
"""A file of the store's top level that is no larger is a pointer or a marker, not data."""
WHOLE = 0.98
"""A save with this share of the last one's bytes has all its data: logs and counters vary in length."""
AROUND = 0.1
"""The share of a save over which its pace at a place is taken."""
MOMENT_NS = 1_000_000
QUIET_NS = 500_000_000
MOST_FILES = 100_000
AGAIN = 3
"""So often a store is listed where what was listed is gone: by then a rename is over."""
NAMELESS = "tmp"
"""What has no name of its own yet."""
_TEMPORARY = re.compile(r"\.?tmp[^/]*")
_MARKED = re.compile(r"^\.?tmp[-._]|[-._](orbax-checkpoint-)?(tmp|partial)[^/]*$|^\.tmp\w*$")
_LOG = re.compile(r"\.log$|\.jsonl$|tfevents")
"""Files that grow all the time belong to no save."""
_DIGITS = re.compile(r"\d+")


class Seen(NamedTuple):
    """One file at one look."""

    size: int
    allocated: int
    inode: int
    mtime_ns: int

    def same(self, other: "Optional[Seen]") -> bool:
        """Whether nothing was written between two looks; blocks may be allocated long after."""
        return other is not None and other._replace(allocated=self.allocated) == self


def picture(root: str) -> Dict[str, Seen]:
    """Return the regular files and links below a directory, by relative name; what is removed meanwhile is left out.

    What is gone between its listing and a look at it may have been renamed: then it is looked for again.
    """
    for _ in range(AGAIN):
        found, vanished = _listed(root)
        if not vanished:
            break
    return found


def _listed(root: str) -> Tuple[Dict[str, Seen], bool]:
    found: Dict[str, Seen] = {}
    waiting, vanished = [""], False
    while waiting and len(found) < MOST_FILES:
        below = waiting.pop()
        try:
            entries = list(os.scandir(f"{root}/{below}"))
        except OSError:
            vanished = vanished or below != ""
            continue
        for entry in entries:
            name = below + entry.name
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                vanished = True
                continue
            if stat.S_ISDIR(info.st_mode):
                waiting.append(name + "/")
            elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                found[name] = Seen(info.st_size, info.st_blocks * 512, info.st_ino, info.st_mtime_ns)
    return found, vanished


def kind_of_name(name: str) -> str:
    """Take out of a name what differs from one save to the next: numbers, and what is random in a temporary one."""
    return _DIGITS.sub("#", _TEMPORARY.sub("tmp", name))


def member_of(name: str) -> str:
    """Return which checkpoint a file belongs to: its part in the top level, without what marks it as temporary."""
    return _MARKED.sub("", name.split("/", 1)[0]) or NAMELESS


def is_temporary(name: str) -> bool:
    """Whether a file is to have another name once it is whole."""
    top = name.split("/", 1)[0]
    return bool(_TEMPORARY.search(name)) or member_of(top) != top


class Track:
    """One data file of a save, followed by its inode through renames."""

    def __init__(self, name: str, seen: Seen, preallocated: bool) -> None:
        """Begin with what was seen first; a preallocated file has its full size from the start."""
        self.name, self.seen, self.preallocated, self.gone = name, seen, preallocated, False

    @property
    def written(self) -> int:
        """Bytes that were written so far."""
        return min(self.seen.size, self.seen.allocated) if self.preallocated else self.seen.size


class Save:
    """One save, from its first byte on."""

    def __init__(self, now_ns: int) -> None:
        """Begin."""
        self.begun_ns = self.changed_ns = now_ns
        self.pointed_ns = 0
        self.begun_unseen = False
        """Whether a part of it was there when the watch began: then it is none to measure others by."""
        self.tracks: List[Track] = []
        self.members: Set[str] = set()
        self.ladder: List[Rung] = []
        self.removed: List[str] = []
        """Files of earlier ones that went after it had committed."""

    @property
    def written(self) -> int:
        """Bytes that are there."""
        return sum(track.written for track in self.tracks if not track.gone)

    def pace(self, now_ns: int) -> float:
        """Return bytes per second since the last look that saw more, a moment ago or longer; 0 before there was one."""
        for rung in reversed(self.ladder):
            if rung.at_ns <= now_ns - MOMENT_NS:
                return 1e9 * (self.written - rung.size) / (now_ns - rung.at_ns)
        return 0.0

    @property
    def names(self) -> FrozenSet[str]:
        """The kinds of name that its files have now, or had when they were removed."""
        return frozenset(kind_of_name(track.name) for track in self.tracks)

    @property
    def whole(self) -> bool:
        """Whether none of its files was removed since."""
        return bool(self.tracks) and not any(track.gone for track in self.tracks)

    @property
    def durable_s(self) -> float:
        """From the first byte seen to the last change that was no removal, seconds."""
        return (self.changed_ns - self.begun_ns) / 1e9


class Rung(NamedTuple):
    """How many bytes of a save were there at a look that saw more of them than the one before."""

    size: int
    at_ns: int


class Learned(NamedTuple):
    """What a finished save looked like."""

    names: FrozenSet[str]
    size: int
    duration_s: float
    ladder: Tuple[Rung, ...]
    points: bool
    """Whether a pointer was written."""
    data: int
    """Its bytes without those of a marker: a small file that comes last."""

    def record_at(self, place: float) -> int:
        """Return the bytes of the write in which a place lies, as far as the looks could tell one from the next."""
        steps = [0, *(rung.size for rung in self.ladder)]
        return next((high - low for low, high in zip(steps, steps[1:]) if low < place <= high), 0)

    def pace_at(self, place: float) -> float:
        """Return bytes per second around a place, pauses between writes included; 0 where no two looks tell."""
        if not self.ladder:
            return 0.0
        around = self.size * AROUND / 2
        low = [rung for rung in self.ladder if rung.size <= place - around][-1:] or self.ladder[:1]
        end = max(place + around, low[0].size + 1)
        high = [rung for rung in self.ladder if rung.size >= end][:1] or self.ladder[-1:]
        grown, took_ns = high[0].size - low[0].size, high[0].at_ns - low[0].at_ns
        return 1e9 * grown / took_ns if took_ns > 0 else 0.0


class StoreWatch:
    """Follows one store; call `look` as often as precision is wanted."""

    def __init__(self, root: str) -> None:
        """Take what is there already as the past."""
        self.root = root
        self.learned: Optional[Learned] = None
        self._learned_before: Optional[Learned] = None
        self.current: Optional[Save] = None
        self.finished: List[Save] = []
        self.pointers: Dict[str, Seen] = {}
        self._tracks: Dict[int, Track] = {}
        self._past: Dict[str, Seen] = {}
        for name, seen in picture(root).items():
            if self._is_pointer(name, seen):
                self.pointers[name] = seen
            else:
                self._past[name] = seen

    def look(self, now_ns: int) -> Optional[Save]:
        """Take in what changed; return the save that is going on, or None."""
        found = picture(self.root)
        inodes = set()
        for name, seen in sorted(found.items(), key=lambda each: each[1].mtime_ns):
            if seen.same(self._past.get(name)) or _LOG.search(name):
                continue
            if self._is_pointer(name, seen):
                self._point(name, seen, now_ns)
                continue
            inodes.add(seen.inode)
            self._follow(name, seen, now_ns)
        for inode in set(self._tracks) - inodes:
            self._remove(self._tracks.pop(inode))
        self._past = {name: seen for name, seen in self._past.items() if seen.same(found.get(name))}
        if self.current and now_ns - self.current.changed_ns > max(QUIET_NS, self._patience_ns(self.current)):
            self._close()
        return self.current

    def _remove(self, track: Track) -> None:
        track.gone, save = True, self.current
        if save and track not in save.tracks and self.committed(save):
            save.removed.append(track.name)

    def _patience_ns(self, save: Save) -> int:
        known_s = self.learned.duration_s if self.learned else save.durable_s
        return int(min(known_s, 60.0) * 1e9)

    def _is_pointer(self, name: str, seen: Seen) -> bool:
        if "/" in name or seen.size > POINTER_BYTES:
            return False
        known = self._tracks.get(seen.inode)  # a data file that has only begun is small too
        return known is None and _looks_like_pointer(name)

    def _point(self, name: str, seen: Seen, now_ns: int) -> None:
        if not seen.same(self.pointers.get(name)) and "tmp" not in name:
            self.pointers[name] = seen
            save = self.current
            if save:
                save.pointed_ns = save.changed_ns = now_ns

    def _follow(self, name: str, seen: Seen, now_ns: int) -> None:
        track = self._tracks.get(seen.inode)
        if track is None or seen.size < track.seen.size:
            if track is not None:
                track.gone = True
            self._begin(name, seen, now_ns, anew=track is not None)
            return
        before, old, renamed = track.written, track.name, name != track.name
        track.seen, track.name = seen, name
        last = self.finished[-1] if self.finished else None
        if last and track in last.tracks and (track.written > before or (renamed and is_temporary(old))):
            self._reopen()
        save = self.current
        if save and track in save.tracks and (renamed or track.written > before):
            save.changed_ns = now_ns
            save.members.add(member_of(name))
            if track.written > before:
                save.ladder.append(Rung(save.written, now_ns))

    def _begin(self, name: str, seen: Seen, now_ns: int, anew: bool) -> None:
        member = member_of(name)
        earlier = None if anew else self._checkpoint_of(name, member)
        if earlier and not (earlier is self.finished[-1] and self._reopen()):
            self._tracks[seen.inode] = Track(name, seen, preallocated=False)
            earlier.tracks.append(self._tracks[seen.inode])
            return
        current = self.current
        known = {kind_of_name(each) for each in current.members} if current else set()
        if current is None or (anew if member in current.members else kind_of_name(member) in known):
            self._close()
            current = self.current = Save(now_ns)
            current.begun_unseen = member != NAMELESS and member in map(member_of, self._past)
        current.begun_unseen = current.begun_unseen or name in self._past
        whole = self.learned.size if self.learned else 0
        track = Track(name, seen, preallocated=whole > 0 and seen.size >= WHOLE * whole and seen.allocated < seen.size)
        self._tracks[seen.inode] = track
        current.tracks.append(track)
        current.members.add(member)
        current.changed_ns = now_ns
        if track.written:
            current.ladder.append(Rung(current.written, now_ns))

    def _checkpoint_of(self, name: str, member: str) -> Optional[Save]:
        """Return the save that has ended to whose checkpoint a file is added; None for one that is written anew."""
        if "/" not in name or member == NAMELESS or (self.current and member in self.current.members):
            return None
        known = next((save for save in reversed(self.finished) if member in save.members), None)
        again = known and any(_TEMPORARY.sub("", track.name) == _TEMPORARY.sub("", name) for track in known.tracks)
        return None if again else known

    def _reopen(self) -> bool:
        """Take back that the last save is over, unless there is another, or it was all there: it had only waited."""
        if self.current or (self._learned_before and _has_all(self.finished[-1], self._learned_before)):
            return False
        self.current, self.learned = self.finished.pop(), self._learned_before
        return True

    def _close(self) -> None:
        save, self.current = self.current, None
        if save is None:
            return
        self.finished.append(save)
        self._learned_before = self.learned
        if save.begun_unseen:
            return
        sizes = [track.seen.size for track in save.tracks]
        size, last = sum(sizes), sizes[-1]
        data = size - last if last <= (1 - WHOLE) * size else size
        self.learned = Learned(save.names, size, save.durable_s, tuple(save.ladder), bool(save.pointed_ns), data)

    def cut(self) -> None:
        """Say that the save that is going on was interrupted: it is none to measure others by, and now of the past."""
        for track in self.current.tracks if self.current else ():
            if self._tracks.pop(track.seen.inode, None) is track:
                self._past[track.name] = track.seen
        self.current = None

    # what it means

    def committed(self, save: Save) -> Optional[bool]:
        """Whether a save has all names and bytes of the one before; None when there is none to compare with."""
        if self.learned is None:
            return None
        return _has_all(save, self.learned)

    def complete(self) -> List[Save]:
        """Return the finished saves of which all files are there."""
        going = [self.current] if self.current and self.committed(self.current) else []
        return [save for save in self.finished if save.whole] + going

    def garbage(self) -> Dict[str, int]:
        """Return the files (name → bytes) that belong to no finished save and to none that is going on."""
        kept = {track.name for save in self.finished for track in save.tracks}
        kept |= {track.name for track in self.current.tracks} if self.current else set()
        found = picture(self.root)
        return {
            name: seen.size
            for name, seen in found.items()
            if name not in {*kept, *self.pointers} and not _LOG.search(name)
        }


def _has_all(save: Save, learned: Learned) -> bool:
    return learned.names <= save.names and save.written >= WHOLE * learned.size


def _looks_like_pointer(name: str) -> bool:
    """A data file has a number or an ending of its own; `latest`, `last`, `*.txt`, `*.json` and links point."""
    return bool(re.search(r"(^|[._-])(latest|last)([._-]|$)|\.txt$|\.json$|^LATEST$|-unfinished$", name))
