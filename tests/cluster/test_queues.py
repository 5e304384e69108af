"""Kueue's queues with real jobs: quota is held, granted and borrowed; and every misconfiguration changes what is seen.

Each scenario is played on healthy queues and on each misconfiguration that shows in it.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.cluster import queues
from tests.cluster.errors import ClusterError
from tests.cluster.kubectl import Kubectl, until
from tests.cluster.lifecycle import Cluster
from tests.cluster.queues import BORROWING_LIMIT, QUOTA, TEAMS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

A, B = TEAMS
LIMIT_S = 30.0
UNUSED = "insufficient unused quota for nvidia.com/gpu"


class Job(NamedTuple):
    """A job of one pod."""

    team: str
    name: str
    gpus: int
    priority: str = "low"


class Scenario(NamedTuple):
    """Jobs, submitted one after the other, and what each comes to: the queue that admits it, or why it is held."""

    jobs: tuple[Job, ...]
    healthy: tuple[str, ...]
    misconfigured: dict[str, tuple[str, ...]]


OWN, MORE = Job(A, "own", QUOTA), Job(A, "more", BORROWING_LIMIT)
PREEMPTED = "Preempted"
SCENARIOS = {
    "within-quota": Scenario(
        (OWN,),
        (A,),
        {
            "queues-swapped": (B,),
            "queues-count-another-resource": ("resource nvidia.com/gpu unavailable in ClusterQueue",),
            "queues-name-no-flavor": (f"ClusterQueue {A} is inactive",),
            "queues-on-hold": (f"ClusterQueue {A} is inactive",),
        },
    ),
    "borrows": Scenario(
        (OWN, MORE),
        (A, A),
        {"queues-without-cohort": (A, UNUSED), "queues-never-borrow": (A, UNUSED)},
    ),
    "borrows-past-the-limit": Scenario(
        (OWN, Job(A, "too-much", BORROWING_LIMIT + 1)),
        (A, f"{UNUSED} in flavor gpu-node, 1 more needed"),
        {"queues-borrow-without-limit": (A, A), "queues-borrow-too-much": (A, A)},
    ),
    "owner-comes": Scenario(
        (Job(A, "own", QUOTA, "high"), MORE, Job(B, "owner", QUOTA)),
        (A, f"{PREEMPTED} InCohortReclamation", B),
        {"queues-never-reclaim": (A, A, UNUSED)},
    ),
    "priority": Scenario(
        (OWN, Job(A, "urgent", QUOTA, "high")),
        (f"{PREEMPTED} InClusterQueue", A),
        {"queues-ignore-priority": (A, UNUSED)},
    ),
}
CASES = [(name, "") for name in SCENARIOS]
CASES += [(name, defect) for name, scenario in SCENARIOS.items() for defect in scenario.misconfigured]


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster) -> Iterator[Kubectl]:
    """The cluster's administrator; afterwards the queues are healthy and empty again."""
    yield cluster.kubectl
    queues.deploy(cluster.kubectl)


def test_the_cluster_has_them(cluster: Cluster) -> None:
    for kind, names in (("clusterqueues", TEAMS), ("localqueues", (queues.LOCAL_QUEUE,) * len(TEAMS))):
        found = cluster.kubectl.get(f"{kind}.{queues.LABEL}", "--all-namespaces")["items"]
        assert tuple(each["metadata"]["name"] for each in found) == names
        assert all(each["status"]["conditions"][0]["status"] == "True" for each in found)


@pytest.mark.parametrize(("name", "misconfiguration"), CASES, ids=[" ".join(each).strip() for each in CASES])
def test_what_becomes_of_jobs(kubectl: Kubectl, name: str, misconfiguration: str) -> None:
    scenario = SCENARIOS[name]
    queues.deploy(kubectl, misconfiguration)
    for job in scenario.jobs:
        queues.submit(kubectl, *job)
        until(lambda job=job: fate(kubectl, job), LIMIT_S, f"{job.name} is not decided on")
    wanted = scenario.misconfigured[misconfiguration] if misconfiguration else scenario.healthy
    for job, expected in zip(scenario.jobs, wanted, strict=True):
        until_so(lambda job=job: fate(kubectl, job), expected)
        until_so(lambda job=job: pods(kubectl, job), "Running" if expected in TEAMS else "")


def fate(kubectl: Kubectl, job: Job) -> str:
    """Return what Kueue has decided: the queue that admits a job, or why not; "" if nothing yet."""
    found = queues.workload(kubectl, job.team, job.name).get("status", {})
    conditions = {each["type"]: each for each in found.get("conditions", [])}
    if conditions.get("Preempted", {}).get("status") == "True":
        return f"{PREEMPTED} {conditions['Preempted']['reason']}"
    reserved = conditions.get("QuotaReserved", {})
    return str(found["admission"]["clusterQueue"] if reserved.get("status") == "True" else reserved.get("message", ""))


def pods(kubectl: Kubectl, job: Job) -> str:
    """Return the phase of a job's pod, "" if it has none."""
    found = kubectl.get("pods", f"--namespace={job.team}", f"--selector=job-name={job.name}")["items"]
    return " ".join(each["status"]["phase"] for each in found)


def until_so(look: Callable[[], str], expected: str) -> None:
    """Wait to see what is expected: a decision of the queues may still change."""
    seen = []
    with contextlib.suppress(ClusterError):
        until(lambda: seen.append(look()) or matches(seen[-1], expected), LIMIT_S, "")
    assert matches(seen[-1], expected), f"expected {expected!r}, saw {seen[-1]!r}"


def matches(seen: str, expected: str) -> bool:
    """Whether a message holds the expected part of it; anything shorter must be equal."""
    return expected in seen if " " in expected else expected == seen
