"""Become another program that is told to stop when its parent dies: `python -m chaos_gpu.cli.leash PARENT PROGRAM…`.

A runner that is killed cannot relay anything; the kernel can. The program then gets SIGTERM, as if it had been relayed.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for the signal, see that it is not too late, and become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before we asked
        sys.exit(f"the parent process {parent} is gone")
    os.execv(program[0], program)  # noqa: S606 - no shell, and nothing to come back to


if __name__ == "__main__":
    main()
