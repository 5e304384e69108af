"""Read files of a checkpoint that nobody vouches for: only regular ones, only inside their store, never past a limit.

Shared by the modules of the checkpoint reader, which a pod gets as one file; their top-level names are unique.
"""

import os
import re
import stat
import zlib
from contextlib import contextmanager, suppress
from typing import Callable, Dict, Iterator, List, Optional

CHUNK_BYTES = 1 << 19
"""What stays in a processor's second cache between the read and the checksum."""

HELD = re.compile(r"/proc/self/fd/\d+(?![^/])")
"""A directory that this process holds open: its name may say something in another container's mounts alone."""
MOST_LINKS = 40

Tick = Callable[[int], None]


class CheckpointError(Exception):
    """The declared error: it cannot be judged, because it is hostile, unsupported, out of bounds, or not there."""


class Strange(CheckpointError):
    """The bytes are none of the format that the name promises."""


class Torn(Exception):
    """Bytes are missing or damaged: an answer, once it is known of which file."""


def no_tick(count: int) -> None:
    """Take no notice of progress."""


class Span:
    """A range of an open file, read by position."""

    def __init__(self, fd: int, start: int, size: int, tick: Tick = no_tick) -> None:
        self.fd, self.start, self.size, self.tick = fd, start, size, tick

    def part(self, offset: int, size: int) -> "Span":
        """Return a range within this one. Raises Torn where it leaves it."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Torn(f"{size} bytes at {offset} are beyond its {self.size}")
        return Span(self.fd, self.start + offset, size, self.tick)

    def at(self, offset: int, count: int) -> bytes:
        """Read exactly `count` bytes. Raises Torn where they are not there."""
        part = self.part(offset, count)
        read = os.pread(self.fd, count, part.start)
        if len(read) != count:
            raise Torn(f"{count} bytes at {offset} were expected, {len(read)} came")
        self.tick(count)
        return read

    def head(self, limit: int) -> bytes:
        """Read the first bytes, at most `limit`."""
        return self.at(0, min(limit, self.size))

    def crc(self, crc: int = 0) -> int:
        """Return the CRC-32 of all bytes, read in small pieces. Raises Torn where the file ends before."""
        buffer = memoryview(bytearray(min(CHUNK_BYTES, max(1, self.size))))
        done = 0
        while done < self.size:
            piece = buffer[: min(len(buffer), self.size - done)]
            count = os.preadv(self.fd, [piece], self.start + done)
            if not count:
                raise Torn(f"it ends {self.size - done} bytes too soon")
            crc = zlib.crc32(piece[:count], crc)
            done += count
            self.tick(count)
        return crc

    def hole(self) -> Optional[int]:
        """Return where the first range begins that was never written (a sparse file keeps its size), or None."""
        try:
            hole = os.lseek(self.fd, self.start, os.SEEK_HOLE)
        except OSError:
            return None
        return hole - self.start if hole < self.start + self.size else None


class Files:
    """Opens files below one root, and notices those that change while they are read.

    Args:
        root: directory that no link may lead out of.
        tick: told of every byte that is read.

    `changed` names those that did; `expected` says how many bytes a file asks for, where it could be read so far.
    """

    def __init__(self, root: str, tick: Tick = no_tick) -> None:
        self.root = real_path(root)
        self.tick = tick
        self.changed: List[str] = []
        self.expected: Dict[str, int] = {}

    def inside(self, path: str) -> str:
        """Return the path with links resolved. Raises CheckpointError where it leads out of the root."""
        try:
            real = real_path(path)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{shown(path)} is no path: {error}") from None
        if real != self.root and not real.startswith(self.root.rstrip("/") + "/"):
            raise CheckpointError(f"{shown(path)} leads out of the store")
        return real

    @contextmanager
    def open(self, path: str) -> Iterator[Span]:
        """Open a regular file inside the root for reading.

        Raises:
            CheckpointError: it is a pipe, a device, outside the root, or may not be read.
            Torn: there is no such file.
        """
        real = self.inside(path)
        try:
            fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
        except FileNotFoundError:
            raise Torn(f"{shown(os.path.basename(path))} is missing") from None
        except OSError as error:
            raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}") from None
        try:
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise CheckpointError(f"{shown(path)} is no regular file")
            yield Span(fd, 0, before.st_size, self.tick)
            after = os.fstat(fd)
            if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                self.changed.append(os.path.basename(path))
        except OSError as error:
            raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}") from None
        finally:
            os.close(fd)

    def text(self, path: str, limit: int = 1 << 20) -> str:
        """Read a small text. Raises as `open`, and CheckpointError where it is longer than `limit` bytes."""
        with self.open(path) as span:
            if span.size > limit:
                raise CheckpointError(f"{shown(path)} is longer than {limit} bytes")
            return span.head(limit).decode("utf-8", errors="replace")

    def sizes(self, path: str) -> Dict[str, int]:
        """Return {relative name: bytes} of all files below a directory, or of the file itself; none of what vanished.

        Raises:
            CheckpointError: it cannot be listed, or holds more than 200,000 files.
        """
        found: Dict[str, int] = {}
        if not os.path.isdir(path):
            with suppress(FileNotFoundError):
                found[os.path.basename(path)] = os.stat(path).st_size
            return found
        for folder, _, names in os.walk(path, onerror=_unlisted):
            for name in names:
                full = os.path.join(folder, name)
                try:
                    found[os.path.relpath(full, path)] = os.stat(full).st_size
                except OSError:
                    found[os.path.relpath(full, path)] = 0
            if len(found) > 200_000:
                raise CheckpointError(f"{shown(path)} holds more than 200,000 files")
        return found


def real_path(path: str) -> str:
    """Resolve links as `os.path.realpath` does; below a directory that is held open, by that and not by its name.

    Raises: CheckpointError where a link leads out of a directory held open; OSError where there is none.
    """
    held = HELD.match(path)
    if not held or not os.path.isdir(held[0]):
        return os.path.realpath(path)
    home, waiting = os.readlink(held[0]), path[held.end() :].split("/")[::-1]
    done: List[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part == ".." and not done:
            raise CheckpointError(f"{shown(path)} leads out of the store")
        if part in ("", ".", ".."):
            done = done[:-1] if part == ".." else done
            continue
        try:
            target = os.readlink("/".join([held[0], *done, part]))
        except OSError:
            done.append(part)
            continue
        links += 1
        if links > MOST_LINKS or target.startswith("/") and not f"{target}/".startswith(f"{home}/"):
            raise CheckpointError(f"{shown(path)} leads out of the store")
        done = [] if target.startswith("/") else done
        waiting += (target[len(home) :] if target.startswith("/") else target).split("/")[::-1]
    return "/".join([held[0], ".", *done])


def names_in(path: str) -> List[str]:
    """Return the sorted names in a directory. Raises CheckpointError where it cannot be listed."""
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be listed: {error.strerror}") from None


def shown(text: str) -> str:
    """Return a foreign text fit for one line of a message."""
    return "".join(each if each.isprintable() else "?" for each in text[:200])


def _unlisted(error: OSError) -> None:
    raise CheckpointError(f"{shown(str(error.filename))} cannot be listed: {error.strerror}")
