"""Show how far an experiment is, from what `chaos run` prints: a live line on a terminal, plain lines elsewhere."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.status import Status

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"\[\S+ \S+ (INFO|WARNING|ERROR|CRITICAL)\]\s(.*)")
_STEP = re.compile(
    r"(?:Action|Probe|Rollback|Steady state hypothesis): .*|Let's rollback\.\.\.|.*: seeing the platform's reaction.*"
)


class Progress:
    """Reads a growing log file and tells what is new in it."""

    def __init__(self, log: Path, name: str, status: Status | None, console: Console | None) -> None:
        self.log, self.name, self.status, self.console = log, name, status, console
        self._read_bytes = 0
        self._rest = b""

    def look(self) -> None:
        """Tell what came since the last look."""
        with suppress(OSError):  # a log that cannot be read now; the run goes on
            for level, message in self._news():
                self._tell(level, message)

    def _news(self) -> Iterator[tuple[str, str]]:
        with self.log.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        self._read_bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            match = _LINE.match(_COLOUR.sub("", line.decode("utf-8", errors="replace")))
            if match:
                yield match[1], match[2]

    def _tell(self, level: str, message: str) -> None:
        if self.status is not None:
            self.status.update(f"{self.name}: {message}", spinner_style="cyan")
        elif self.console is not None and (level != "INFO" or _STEP.fullmatch(message)):
            self.console.print(f"  {message}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress(log: Path, name: str, *, quiet: bool) -> Iterator[Progress]:
    """Tell on stderr how far a run is; nothing if quiet."""
    console = Console(stderr=True)
    if quiet:
        yield Progress(log, name, None, None)
    elif console.is_terminal:
        with console.status(name) as status:
            yield Progress(log, name, status, None)
    else:
        yield Progress(log, name, None, console)
