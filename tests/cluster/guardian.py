"""The one process outside: starts the control plane's namespaces, and cleans up behind them when they or it must end.

`python guardian.py ROOT PLAN CGROUP [--tied]`; tied, it ends with the process that started it. Killed itself, it takes
the namespaces with it by PDEATHSIG, and leaves only empty cgroups and files for the next start. Stdlib only.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import cgroups
from layout import ENTRANCE, Layout, write_atomic

PR_SET_PDEATHSIG = 1
CLEAN_UP_S = 20.0
INIT = Path(__file__).with_name("control_init.py")


def start_ticks(pid: int) -> int | None:
    """Return when a live process was started, in kernel ticks: it tells a reused pid from the one that was meant."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def die_with_parent(number: int) -> None:
    """Ask the kernel for a signal when the parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def main(root: str, plan: str, cgroup: str, *options: str) -> None:
    """Guard the cluster until told to end, or until it ended."""
    layout = Layout(Path(root))
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "--tied" in options:
        die_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            return
    entrance = socket.create_server(("127.0.0.1", 0))
    facts = {"guardian": os.getpid(), "start": start_ticks(os.getpid()), "port": entrance.getsockname()[1]}
    write_atomic(layout.state, json.dumps(facts))
    os.dup2(entrance.fileno(), ENTRANCE)
    argv = ["unshare", "--net", "--mount", "--", sys.executable, "-B", str(INIT), "link", plan]
    child = subprocess.Popen(argv, preexec_fn=lambda: die_with_parent(signal.SIGKILL), pass_fds=(ENTRANCE,))
    entrance.close()
    os.close(ENTRANCE)  # inside, it stays open as long as process 1 lives
    try:
        child.wait()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child.kill()
        child.wait()
        clean_up(layout, cgroup)


def clean_up(layout: Layout, cgroup: str) -> bool:
    """Remove what the end of the namespaces leaves: cgroups, as soon as their processes are gone, and files."""
    end = time.monotonic() + CLEAN_UP_S
    while not cgroups.remove(cgroup):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    layout.state.unlink(missing_ok=True)
    shutil.rmtree(layout.root, ignore_errors=True)
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
