"""Signals while an experiment runs: interrupt an activity once, never an undo.

chaoslib 1.44 swallows the exception of its own SIGTERM handler inside an activity, and every version drops the
rollbacks that a signal hits. So the guard takes TERM, INT and HUP itself: KeyboardInterrupt is an exception that no
version swallows, and it is raised only while an activity of hypothesis or method is running.
"""

import signal
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class SignalWatch:
    """Takes the signals. `interruptible` says whether one may raise now; each other one is only noted."""

    def __init__(self, noted: Callable[[str], None]) -> None:
        self._noted = noted
        self._raised = False
        self.interruptible = False
        self.seen = ""

    def install(self) -> None:
        """Take the signals, to the end of the process: nothing may cut the journal short either."""
        for number in SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.seen = self.seen or signal.Signals(number).name
        self._noted(self.seen)
        if self.interruptible and not self._raised:
            self._raised = True
            raise KeyboardInterrupt(self.seen)
