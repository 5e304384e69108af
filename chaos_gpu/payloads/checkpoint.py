"""Read one checkpoint in a process of its own, with limits on memory and CPU time, and print what it is.

Spec (JSON):
    path       file or directory
    against    another checkpoint to compare with, or ""
    deep       read all bytes

Events: reading {bytes, total}, then answer {document}, or failed {reason}. Exit 0 answered, 3 it cannot be judged.
"""

import json
import os
import resource
import sys
import time
from typing import List

from chaos_gpu.payloads.checkpoint_document import inspect
from chaos_gpu.payloads.checkpoint_files import CheckpointError, Files
from chaos_gpu.payloads.events import say

MEMORY_LIMIT_BYTES = 2 << 30
CPU_LIMIT_S = 15
CPU_LIMIT_S_PER_GIB = 3
TELL_EVERY_S = 0.1


class Progress:
    """Tells how many bytes were read, not too often."""

    def __init__(self, total: int) -> None:
        self.total, self.bytes, self.told_at = total, 0, time.monotonic()

    def tick(self, count: int) -> None:
        """Count more bytes."""
        self.bytes += count
        now = time.monotonic()
        if now - self.told_at > TELL_EVERY_S:
            self.told_at = now
            say("reading", bytes=self.bytes, total=self.total)


def bytes_on_disk(paths: List[str]) -> int:
    """Return how many bytes these take up; holes take none. What cannot be listed counts as nothing."""
    total = 0
    for path in filter(None, paths):
        try:
            for name in Files(path).sizes(path):
                full = os.path.join(path, name) if os.path.isdir(path) else path
                total += os.stat(full).st_blocks * 512
        except (OSError, ValueError, CheckpointError):
            continue
    return total


def limit_this_process(size: int) -> None:
    """Cap memory and CPU time for good: what a file makes us do beyond them ends the process."""
    seconds = CPU_LIMIT_S + CPU_LIMIT_S_PER_GIB * size // (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec, or on standard input for `-`."""
    source = argv[argv.index("--spec") + 1]
    if source == "-":
        spec = json.load(sys.stdin)
    else:
        with open(source, encoding="utf-8") as file:  # noqa: PTH123  pathlib takes longer to import than this to run
            spec = json.load(file)
    against, deep = spec.get("against", ""), spec.get("deep", True)
    size = bytes_on_disk([spec["path"], against])
    limit_this_process(size)
    try:
        document = inspect(spec["path"], against, deep, Progress(size if deep else 0).tick)
    except CheckpointError as error:
        say("failed", reason=str(error))
        return 3
    say("answer", document=document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
