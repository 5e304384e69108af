"""The product on the cluster, through the commands that a user has: install, deploy the platform, run experiments."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from chaos_gpu.cli.lab import SHORT_LIMITS
from chaos_gpu.lab.platform.health import NAMESPACE
from chaos_gpu.lab.platform.health_manifests import ADMITTED, MARK_OF_ADMISSION, SOURCE
from tests.cluster import deployment
from tests.cluster.images import TOOLS
from tests.cluster.kubectl import Kubectl, until
from tests.cluster.layout import CONTEXT, write_atomic
from tests.cluster.lifecycle import Cluster
from tests.cluster.pki import kubeconfig

Json = dict[str, Any]
PROGRAM = [sys.executable, "-P", "-m", "chaos_gpu"]
ENVIRONMENT = "cluster-tier"
REPO = Path(__file__).parents[2]
READING_RECORDS = re.findall(r"```yaml\n(.*?)```", (REPO / "docs/records.md").read_text(), re.DOTALL)[0]
"""What the documentation tells a site to apply."""
FATAL = REPO / "experiments/device/xid-fatal-cordons-node.yaml"
OURS = "chaos-gpu"
RUNNER = "chaos-gpu-runner"
LEASE_S = 5
RUN_LIMIT_S = 240.0
DIAGNOSES = {"CHAOS_GPU_DIAGNOSIS_S": "30", "CHAOS_GPU_UNCORDON_S": "20"}
"""A diagnosis is a pod of two containers, which a busy machine starts within seconds, and a node waits for it."""
OPEN = "chaos-gpu/ledger"


@dataclass(frozen=True)
class Done:
    """A `chaos-gpu run` that has ended."""

    code: int
    run: Json
    journal: Json
    said: str

    @property
    def reasons(self) -> str:
        """Why it did not pass."""
        return "; ".join(each["reason"] for each in self.run.get("reasons", []))

    def outcome(self, criterion: str) -> str:
        """Return a criterion's outcome, or the run's where the criterion was not reached."""
        found = (each["outcome"] for each in self.run["criteria"] if each["id"] == criterion)
        return str(next(found, self.run["outcome"]))


@dataclass(frozen=True)
class Site:
    """The product, installed."""

    cluster: Cluster
    environment: dict[str, str]
    folder: Path

    @classmethod
    def install(cls, cluster: Cluster, folder: Path) -> "Site":
        """Install as the administrator, on nodes with an r2; from then on the product acts as its own runner."""
        admin = cls(cluster, _environment(cluster, cluster.layout.kubeconfig), folder)
        admin.command("install", "--context", CONTEXT, "--environment", ENVIRONMENT)
        marks = (f"{key}={value}" for key, value in ADMITTED.items())
        cluster.kubectl.run("annotate", "nodes", "--all", "--overwrite", *marks)
        cluster.kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        cluster.kubectl.apply_text(READING_RECORDS)
        runner = folder / "runner.kubeconfig"
        write_token_kubeconfig(cluster, runner, OURS, RUNNER)
        return replace(admin, environment=_environment(cluster, runner))

    def in_directory(self, folder: Path) -> "Site":
        """The same with another place for what runs leave."""
        return replace(self, folder=folder)

    def through(self, config: Path) -> "Site":
        """The same by another way to the API server."""
        return replace(self, environment={**self.environment, "KUBECONFIG": str(config)})

    @property
    def kubectl(self) -> Kubectl:
        """The administrator's."""
        return self.cluster.kubectl

    def command(self, *arguments: str, codes: Sequence[int] = (0,)) -> str:
        """Run `chaos-gpu ARGUMENTS` and return what it printed."""
        argv, env = [*PROGRAM, *arguments], self.environment
        done = subprocess.run(argv, env=env, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in codes, f"{arguments} → {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, experiment: str, **settings: str) -> subprocess.Popen[str]:
        """Start `chaos-gpu run` and return it; `settings` are CHAOS_GPU_… variables without that prefix."""
        run = ["run", experiment, "--json", "--run-dir", str(self.folder / "run")]
        return self._start([*PROGRAM, *run], settings)

    def start_bare(self, experiment: str, **settings: str) -> subprocess.Popen[str]:
        """Start `chaos run` itself: what dies when the runner is killed."""
        program = str(Path(sys.executable).with_name("chaos"))
        return self._start([program, "--no-version-check", "run", experiment], settings)

    def _start(self, argv: list[str], settings: dict[str, str]) -> subprocess.Popen[str]:
        env = self.environment | {f"CHAOS_GPU_{key.upper()}": value for key, value in settings.items()}
        output = subprocess.PIPE
        return subprocess.Popen(
            argv, env=env, cwd=self.folder, stdout=output, stderr=output, text=True, start_new_session=True
        )

    def finish(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a run and read what it says."""
        said, errors = process.communicate(timeout=RUN_LIMIT_S)
        runs = json.loads(said)["runs"] if said.strip() else [{}]
        path = self.folder / "run/journal.json"
        journal = json.loads(path.read_text()) if path.exists() else {}
        log = self.folder / "run/chaostoolkit.log"
        return Done(process.returncode, runs[0], journal, errors + (log.read_text()[-3000:] if log.exists() else ""))

    def run(self, experiment: str, **settings: str) -> Done:
        """Run an experiment to its end."""
        return self.finish(self.start(experiment, **settings))

    def one_fault(self) -> str:
        """Write the first fault of the shipped experiment as one of its own, and return the file's name."""
        made: Json = yaml.safe_load(FATAL.read_text())
        made["method"] = [each for each in made["method"] if each["name"].startswith("xid-48")]
        path = self.folder / "one-fault.json"
        path.write_text(json.dumps(made))
        return str(path)

    def deploy(self, defects: Sequence[str] = (), parts: Collection[str] = (deployment.DETECTOR,)) -> None:
        """Put parts of the platform on the cluster, fresh, and take the others away."""
        deployment.deploy(self.kubectl, parts, defects)

    def agent_log(self, node: str) -> list[Json]:
        """Return what the detector on a node says that it did."""
        pods = deployment.pods_of(self.kubectl, deployment.DETECTOR)
        pod = next(each for each in pods if each["spec"]["nodeName"] == node)
        said = self.kubectl.run("logs", pod["metadata"]["name"], f"--namespace={pod['metadata']['namespace']}")
        return [json.loads(line) for line in said.splitlines() if line.startswith("{")]

    def nodes(self) -> dict[str, Json]:
        """Take down what a run must not leave changed."""
        return {node["metadata"]["name"]: _picture(node) for node in self.kubectl.get("nodes")["items"]}

    def clear_conditions(self) -> None:
        """Take back what a detector says of nodes, as a person may."""
        over = {"type": "GpuXidError", "status": "False", "reason": "Healthy", "message": "taken back by hand"}
        for name, node in self.nodes().items():
            if over["type"] in node["raised"]:
                patch = json.dumps({"status": {"conditions": [over]}})
                self.kubectl.run("patch", "node", name, "--subresource=status", f"--patch={patch}")

    def ledgers(self) -> dict[str, str]:
        """Return the state of each run's ledger."""
        found = self.kubectl.get("configmaps", f"--namespace={OURS}", f"--selector={OPEN}")["items"]
        return {each["metadata"]["labels"]["chaos-gpu/run"]: each["metadata"]["labels"][OPEN] for each in found}

    def leftovers(self) -> list[str]:
        """Name what a run may not leave: pods, Jobs, its Lease, a ledger that is not closed."""
        kinds = "pods,jobs.batch,leases.coordination.k8s.io"
        found = self.kubectl.run("get", kinds, f"--namespace={OURS}", "--output=name").split()
        return found + [f"ledger {run} is {state}" for run, state in self.ledgers().items() if state != "closed"]

    def settle(self, limit_s: float) -> None:
        """Wait until nothing of any run is left. Raises ClusterError with what is."""
        until(lambda: not self.leftovers(), limit_s, "a run has left something behind")

    def forget_runs(self) -> None:
        """Delete the ledgers of past runs, so that no budget carries over from one test to the next."""
        self.kubectl.run("delete", "configmaps", f"--namespace={OURS}", f"--selector={OPEN}")


def write_token_kubeconfig(cluster: Cluster, path: Path, namespace: str, account: str) -> None:
    """Write a kubeconfig that is a ServiceAccount, by a token of the API server's."""
    token = cluster.kubectl.run("create", "token", account, f"--namespace={namespace}", "--duration=8h").strip()
    admin = json.loads(cluster.layout.kubeconfig.read_text())["clusters"][0]["cluster"]
    write_atomic(path, kubeconfig(admin["server"], admin["certificate-authority-data"], {"token": token}))


def _environment(cluster: Cluster, config: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{cluster.programs.bin}:{os.environ.get('PATH', os.defpath)}"
    return {
        **SHORT_LIMITS,
        **DIAGNOSES,
        "HOME": os.environ.get("HOME", "/root"),
        "PATH": path,
        "KUBECONFIG": str(config),
        "CHAOS_GPU_CONTEXT": CONTEXT,
        "CHAOS_GPU_ENVIRONMENT": ENVIRONMENT,
        "CHAOS_GPU_IMAGE": TOOLS,
        "CHAOS_GPU_LEASE_S": str(LEASE_S),
        "CHAOS_GPU_RECORDS": json.dumps(SOURCE),
        "CHAOS_GPU_ADMISSION": json.dumps(MARK_OF_ADMISSION),
    }


def _picture(node: Json) -> Json:
    annotations = node["metadata"].get("annotations") or {}
    raised = [each["type"] for each in node["status"]["conditions"] if each["status"] == "True"]
    return {
        "unschedulable": node["spec"].get("unschedulable", False),
        "taints": node["spec"].get("taints", []),
        "annotations": sorted(key for key in annotations if "chaos-gpu" in key or "gpu-health" in key),
        "raised": sorted(raised),
    }
