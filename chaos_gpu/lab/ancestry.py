"""What the kernel does for a process when its parent or its children's parents die. Linux only, stdlib only."""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int, signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent dies; end at once if that has happened already."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(128 + signal_number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, instead of process 1."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
