"""Start `chaos` and `chaos-gpu` as processes of their own without their import time, about a second each.

A child of this program has everything imported already when it is forked, and then runs the command line's own main
function in its own session, directory and environment. Requests come as JSON lines on stdin: {argv, env, cwd, output};
answers go out as JSON lines: {started: pid}, {ended: pid, code}. It ends with its stdin, and its children with it.
"""

import json
import os
import selectors
import signal
import sys
from typing import Any, NoReturn

import kubernetes.config.kube_config as kube_config
from chaostoolkit.__main__ import cli as chaos

import chaos_gpu.actions.run
import chaos_gpu.actions.xid
import chaos_gpu.cli.doctor
import chaos_gpu.cli.install
import chaos_gpu.cli.plan
import chaos_gpu.cli.run
import chaos_gpu.cli.runs
import chaos_gpu.cli.verdict
import chaos_gpu.probes.device
import chaos_gpu.probes.platform  # noqa: F401
from chaos_gpu.cli.main import main as chaos_gpu_main


def child(request: dict[str, Any]) -> NoReturn:
    """Become the command."""
    os.setsid()
    os.chdir(request["cwd"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(request["env"])
    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = os.environ.get("KUBECONFIG", "~/.kube/config")  # read at import
    sys.argv = request["argv"]
    code: Any = 1
    try:
        code = chaos() if sys.argv[0] == "chaos" else chaos_gpu_main(sys.argv[1:])
    except SystemExit as ending:
        code = ending.code
    except BaseException as error:  # noqa: BLE001 - as the interpreter does it
        sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def reap(children: set[int]) -> None:
    """Report the children that have ended."""
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.discard(pid)
            say(ended=pid, code=os.waitstatus_to_exitcode(status))


def serve() -> None:
    """Answer requests until stdin ends."""
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: set[int] = set()
    events = selectors.DefaultSelector()
    events.register(sys.stdin, selectors.EVENT_READ)
    events.register(wake, selectors.EVENT_READ)
    rest = b""
    while True:
        for key, _ in events.select():
            if key.fd == wake:
                os.read(wake, 4096)
                reap(children)
                continue
            data = os.read(0, 65536)
            if not data:
                for pid in children:
                    os.kill(pid, signal.SIGKILL)
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    child(json.loads(line))
                children.add(pid)
                say(started=pid)


if __name__ == "__main__":
    say(ready=os.getpid())
    serve()
