"""`python -m tests.cluster`: a real Kubernetes cluster with GPU nodes that are not real, on this one machine.

capable  say whether this machine can run it; exit 4 if not
fetch    download what it is built from, into the caches; exit 4 if that cannot be had
build    build what it needs, into the cache; nothing to do the second time
up       start it, or say that it runs
status   say what runs
down     end it and remove all of it
node     run a command inside a node
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.cluster import builds, capable, lifecycle
from tests.cluster.errors import ClusterError
from tests.cluster.layout import CONTEXT, NODES, Layout, default_directory


def main() -> int:
    """Run a command; exit 4 where this machine cannot."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=Path, help="state directory; default: $CHAOS_GPU_CLUSTER_DIR, else the cache")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("capable", "fetch", "build", "up", "status", "down"):
        commands.add_parser(name)
    node = commands.add_parser("node")
    node.add_argument("name", choices=NODES)
    node.add_argument("argv", nargs="+")
    arguments = parser.parse_args()
    layout = Layout((arguments.dir or default_directory()).absolute())
    if obstacle := capable.obstacle():
        builds.to_stderr(f"not on this machine: {obstacle}")
        return 4
    try:
        return int(COMMANDS[arguments.command](layout, arguments))
    except ClusterError as error:
        builds.to_stderr(str(error))
        return 1


def _capable(_layout: Layout, _arguments: argparse.Namespace) -> int:
    missing = builds.missing()
    print(f"yes; to be built first: {', '.join(missing)}" if missing else "yes")
    return 0


def _fetch(_layout: Layout, _arguments: argparse.Namespace) -> int:
    try:
        builds.fetch(builds.to_stderr)
    except ClusterError as error:
        builds.to_stderr(f"not on this machine: {error}")
        return 4
    return 0


def _build(_layout: Layout, _arguments: argparse.Namespace) -> int:
    builds.ensure(builds.to_stderr)
    return 0


def _up(layout: Layout, _arguments: argparse.Namespace) -> int:
    lifecycle.up(layout, builds.to_stderr)
    print(f"export KUBECONFIG={layout.kubeconfig} CHAOS_GPU_CONTEXT={CONTEXT}")
    print("chaos-gpu install --environment cluster")
    return 0


def _status(layout: Layout, _arguments: argparse.Namespace) -> int:
    pid = lifecycle.guardian(layout)
    if pid is None:
        print(f"no cluster runs in {layout.root}")
        return 4
    cluster = lifecycle.attach(layout)
    print(f"guardian {pid}; export KUBECONFIG={layout.kubeconfig}")
    print(cluster.kubectl.run("get", "nodes", "--output=wide"), end="")
    print(cluster.kubectl.run("get", "pods", "--all-namespaces", "--output=wide"), end="")
    return 0


def _down(layout: Layout, _arguments: argparse.Namespace) -> int:
    print("cluster ended" if lifecycle.down(layout) else f"no cluster was running in {layout.root}")
    return 0


def _node(layout: Layout, arguments: argparse.Namespace) -> int:
    pid = lifecycle.node_pid(layout, arguments.name)
    inside = ["nsenter", f"--target={pid}", "--mount", "--pid", "--net", "--uts", "--"]
    return subprocess.run([*inside, *arguments.argv], check=False).returncode


COMMANDS = {
    "capable": _capable,
    "fetch": _fetch,
    "build": _build,
    "up": _up,
    "status": _status,
    "down": _down,
    "node": _node,
}

if __name__ == "__main__":
    sys.exit(main())
