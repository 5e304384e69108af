"""The control plane's own namespaces: `link` enters a new network, `run` is process 1 in it. Stdlib only.

Started by the guardian as `unshare --net --mount python control_init.py link PLAN`.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import network
import supervisor


def main(step: str, file: str) -> None:
    """Do a step of the plan in a file."""
    plan: dict[str, Any] = json.loads(Path(file).read_text())
    if step == "run":
        supervisor.supervise(Path(plan["run"]), plan["services"])
    network.set_up_control_plane(plan["gateway"], plan["api_service"], plan["routes"])
    own = [sys.executable, "-B", __file__, "run", file]
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--", *own])


if __name__ == "__main__":
    main(*sys.argv[1:])
