"""Hold GPUs of a node, as a job does, until told to go: for what a platform must do while a job runs.

It computes nothing. It says which GPUs it was given, and which the node has.

Spec (JSON):
    deadline_s  end after so many seconds in any case

Environment: NVIDIA_VISIBLE_DEVICES, as device plugin or runtime set it; NVIDIA_PROC_PATH (see `node`).
"""

import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

from chaos_gpu.payloads.events import say
from chaos_gpu.payloads.node import gpus_of_node, when_told_to_go

UNSAID = ("all", "none", "void", "")


def hold(spec: Dict[str, Any], told_to_go: int) -> int:
    """Say what we were given, then stay."""
    before = time.monotonic_ns()
    gpus = gpus_of_node()
    devices = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    say("started", gpus=gpus, node=os.uname().nodename)
    given = [] if devices in UNSAID else devices.split(",")
    own = [gpu for gpu in gpus if gpu["uuid"] in given]
    place = {"gpu": own[0]} if len(own) == 1 else {}
    evidence = {"given": given, "gpus": gpus, "text": "holds GPU {}".format(", ".join(given) or "of an unsaid name")}
    say("landed", evidence={**evidence, **place, "between_ns": [before, time.monotonic_ns()]})
    say("holding", deadline_s=spec["deadline_s"])
    ready, _, _ = select.select([told_to_go], [], [], spec["deadline_s"])
    say("reverted", undo="the job has ended", why="told to" if ready else "deadline")
    return 0


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec."""
    told_to_go = when_told_to_go()
    return hold(json.loads(Path(argv[argv.index("--spec") + 1]).read_text()), told_to_go)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
