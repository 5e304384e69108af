"""`python -m tests.cluster.conformance`: the same battery of API behaviour on the lab and on the real control plane.

Writes docs/lab-conformance.md: every check that does not come out the same, with what we decided about it. Exits 1 when
a difference has no decision. Needs a cluster of four nodes: CHAOS_GPU_CLUSTER_NODES=4.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster import builds, lifecycle
from tests.cluster.images import TOOLS
from tests.cluster.kubectl import until
from tests.cluster.layout import Layout, default_directory
from tests.cluster.lifecycle import Cluster

REPO = Path(__file__).parents[2]
BATTERY = "tests/lab/battery"
PAGE = REPO / "docs/lab-conformance.md"
DECISIONS = Path(__file__).with_name("conformance.json")
SERVER, IMAGE = "CHAOS_GPU_BATTERY_SERVER", "CHAOS_GPU_BATTERY_IMAGE"
UNDECIDED = "**undecided**"


class Check(NamedTuple):
    """How one check of the battery came out."""

    outcome: str
    said: str


def main() -> int:
    """Run the battery twice and compare."""
    cluster = lifecycle.up(Layout(default_directory()), builds.to_stderr, tied=True)
    restart_api_server(cluster)
    with tempfile.TemporaryDirectory() as scratch, api_without_credentials(cluster, Path(scratch)) as folder:
        real = battery(Path(scratch) / "real.xml", {SERVER: str(folder), IMAGE: TOOLS})
        lab = battery(Path(scratch) / "lab.xml", {})
    decisions: dict[str, str] = json.loads(DECISIONS.read_text())
    PAGE.write_text(page(lab, real, decisions))
    undecided = [name for name in differing(lab, real) if name not in decisions]
    sys.stderr.write(f"{len(differing(lab, real))} of {len(lab)} checks differ, {len(undecided)} without a decision\n")
    return 1 if undecided else 0


def restart_api_server(cluster: Cluster) -> None:
    """Let it forget what there was to watch: the battery asks for what is too long ago."""
    cluster.hold("kube-apiserver")
    cluster.release("kube-apiserver")
    until(lambda: cluster.kubectl.try_raw("/readyz"), 60, "kube-apiserver does not come back")


@contextmanager
def api_without_credentials(cluster: Cluster, scratch: Path) -> Iterator[Path]:
    """Serve the cluster's API as a lab serves its own: on loopback, as the administrator, without a password.

    Yields a directory with `kubeconfig` and `lab.json`, as the tests of a lab expect it.
    """
    folder, log = scratch / "server", scratch / "proxy.log"
    folder.mkdir()
    argv = [str(cluster.programs.bin / "kubectl"), f"--kubeconfig={cluster.layout.kubeconfig}", "proxy", "--port=0"]
    with log.open("w") as output:
        proxy = subprocess.Popen([*argv, "--disable-filter=true"], stdout=output, stderr=output)
    try:
        until(lambda: "Starting to serve" in log.read_text(), 10, "kubectl proxy does not start")
        url = "http://" + log.read_text().split("Starting to serve on ")[1].split()[0]
        config = json.loads(cluster.layout.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {"server": url}
        config["users"][0]["user"] = {}
        (folder / "kubeconfig").write_text(json.dumps(config))
        (folder / "lab.json").write_text(json.dumps({"url": url}))
        yield folder
    finally:
        proxy.terminate()
        proxy.wait()


def battery(report: Path, settings: dict[str, str]) -> dict[str, Check]:
    """Run the battery and return each check's outcome by its name."""
    argv = [sys.executable, "-m", "pytest", "-q", "--timeout=120", f"--junitxml={report}", BATTERY]
    subprocess.run(argv, cwd=REPO, env={**os.environ, **settings}, check=False, stdout=sys.stderr)
    return dict(_checks(report))


def _checks(report: Path) -> Iterator[tuple[str, Check]]:
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it a moment ago
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        wrong = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        said = " ".join((wrong.get("message") or "").split()) if wrong is not None else ""
        yield name, Check("passes" if wrong is None else wrong.tag, _anywhere(said))


def _anywhere(text: str) -> str:
    """Take out of a message what only this machine has: where its programs and temporary files are."""
    text = re.sub(rf"{re.escape(sys.prefix)}/bin/", "", text)
    return re.sub(rf"{re.escape(tempfile.gettempdir())}/[\w-]+", "TMP", text)


def differing(lab: dict[str, Check], real: dict[str, Check]) -> list[str]:
    """Name the checks that did not come out the same."""
    return [name for name, check in lab.items() if real.get(name, Check("missing", "")).outcome != check.outcome]


def page(lab: dict[str, Check], real: dict[str, Check], decisions: dict[str, str]) -> str:
    """Make the documentation's page."""
    names, kubernetes = differing(lab, real), builds.version("kubernetes", "k8s.io/kubernetes")
    lines = [
        "# What the lab does otherwise than a real control plane",
        "",
        "Made by `python -m tests.cluster.conformance`: one battery of checks by kubectl, the Python client and",
        f"chaostoolkit-kubernetes, on the lab and on Kubernetes {kubernetes} with all its programs.",
        "",
        f"{len(lab)} checks, {len(lab) - len(names)} with the same outcome, {len(names)} with another:",
        "",
        "| check | lab | real control plane | decision |",
        "|---|---|---|---|",
    ]
    for name in names:
        found = real.get(name, Check("missing", ""))
        said = found.said[:160].replace("|", "\\|").replace("<", "&lt;")
        decision = decisions.get(name, UNDECIDED)
        lines.append(f"| `{name}` | {lab[name].outcome} | {found.outcome}: {said} | {decision} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
