"""The queues of the cluster: two teams share its GPUs in one cohort; and the misconfigurations that can be planted.

Each team has a namespace, a LocalQueue `gpus` in it and a ClusterQueue with its own name. A misconfiguration is what
somebody may well have typed: Kueue accepts it, and only what it admits tells.
"""

from typing import Any, NamedTuple

from chaos_gpu.lab.kubelet.devices import GPU_RESOURCE, GPUS_PER_NODE
from tests.cluster.images import TOOLS
from tests.cluster.kubectl import Json, Kubectl, until

API = "kueue.x-k8s.io/v1beta2"
TEAMS = ("team-a", "team-b")
LOCAL_QUEUE, FLAVOR, COHORT = "gpus", "gpu-node", "all-teams"
QUOTA, BORROWING_LIMIT = GPUS_PER_NODE, 4
"""GPUs of a team; and how many more it may use while the other team leaves them idle."""
PRIORITIES = {"low": 10, "high": 1000}
LABEL = "kueue.x-k8s.io"
GONE_S = 60.0


class Queues(NamedTuple):
    """How the queues are configured; the defaults are the healthy ones."""

    cohort: str = COHORT
    borrowing_limit: int | None = BORROWING_LIMIT
    resource: str = GPU_RESOURCE
    flavor: str = FLAVOR
    reclaim: str = "Any"
    within: str = "LowerPriority"
    stop: str = "None"
    behind: tuple[str, str] = TEAMS
    """The ClusterQueue behind the LocalQueue of each team."""


MISCONFIGURATIONS = {
    "queues-without-cohort": Queues(cohort="", borrowing_limit=None),
    "queues-borrow-without-limit": Queues(borrowing_limit=None),
    "queues-borrow-too-much": Queues(borrowing_limit=2 * BORROWING_LIMIT),
    "queues-never-borrow": Queues(borrowing_limit=0),
    "queues-never-reclaim": Queues(reclaim="Never"),
    "queues-ignore-priority": Queues(within="Never"),
    "queues-swapped": Queues(behind=(TEAMS[1], TEAMS[0])),
    "queues-count-another-resource": Queues(resource=f"{GPU_RESOURCE}s"),
    "queues-name-no-flavor": Queues(flavor="gpu-nodes"),
    "queues-on-hold": Queues(stop="Hold"),
}


def objects(queues: Queues) -> list[Json]:
    """Return what makes these queues, in an order that can be applied."""
    made = [_object("ResourceFlavor", FLAVOR, spec={"nodeLabels": {"nvidia.com/gpu.present": "true"}})]
    made += [_object("WorkloadPriorityClass", name, value=value) for name, value in PRIORITIES.items()]
    for team, behind in zip(TEAMS, queues.behind, strict=True):
        made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        made.append(_object("ClusterQueue", team, spec=_cluster_queue(queues)))
        made.append(_object("LocalQueue", LOCAL_QUEUE, team, spec={"clusterQueue": behind}))
    return made


def deploy(kubectl: Kubectl, misconfiguration: str = "") -> None:
    """Put the queues on the cluster, fresh and without any job. Raises ClusterError when the old ones do not go."""
    _delete(kubectl, "jobs", f"--selector={LABEL}/queue-name={LOCAL_QUEUE}", "--cascade=foreground")
    until(lambda: not _workloads(kubectl), GONE_S, "the jobs of the teams do not end")
    _delete(kubectl, f"localqueues.{LABEL}", "--all")  # which ClusterQueue is behind one cannot be changed
    _delete(kubectl, f"clusterqueues.{LABEL}", "--all")
    kubectl.apply(objects(MISCONFIGURATIONS[misconfiguration] if misconfiguration else Queues()))


def submit(kubectl: Kubectl, team: str, name: str, gpus: int, priority: str = "low") -> None:
    """Submit a job of one pod that runs until it is told to end."""
    container = {
        "name": "main",
        "image": TOOLS,
        "command": ["sleep", "infinity"],
        "resources": {"limits": {GPU_RESOURCE: gpus}},
    }
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    labels = {f"{LABEL}/queue-name": LOCAL_QUEUE, f"{LABEL}/priority-class": priority}
    meta = {"name": name, "namespace": team, "labels": labels}
    kubectl.apply([{"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": {"spec": pod}}}])


def workload(kubectl: Kubectl, team: str, job: str) -> Json:
    """Return what Kueue thinks of a job; {} until it thinks anything."""
    owned = [each for each in _workloads(kubectl) if each["metadata"]["namespace"] == team]
    return next((each for each in owned if each["metadata"]["ownerReferences"][0]["name"] == job), {})


def _workloads(kubectl: Kubectl) -> list[Json]:
    found: list[Json] = kubectl.get(f"workloads.{LABEL}", "--all-namespaces")["items"]
    return found


def _delete(kubectl: Kubectl, kind: str, *which: str) -> None:
    everywhere = [] if kind.startswith("clusterqueues") else ["--all-namespaces"]
    kubectl.run("delete", kind, *which, *everywhere, f"--timeout={GONE_S:.0f}s")


def _cluster_queue(queues: Queues) -> Json:
    quota: Json = {"name": queues.resource, "nominalQuota": QUOTA}
    if queues.borrowing_limit is not None:
        quota["borrowingLimit"] = queues.borrowing_limit
    flavor = {"name": queues.flavor, "resources": [quota]}
    spec = {
        "namespaceSelector": {},
        "stopPolicy": queues.stop,
        "preemption": {"withinClusterQueue": queues.within, "reclaimWithinCohort": queues.reclaim},
        "resourceGroups": [{"coveredResources": [queues.resource], "flavors": [flavor]}],
    }
    return {**spec, "cohortName": queues.cohort} if queues.cohort else spec


def _object(kind: str, name: str, namespace: str = "", **fields: Any) -> Json:
    meta = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": API, "kind": kind, "metadata": meta, **fields}
