"""The reverter Job: kept off every target, whatever the nodes' hostname labels say."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.faults.pods import reverter_job
from chaos_gpu.faults.settings import Settings
from chaos_gpu.lab.controllers.placement import matches_affinity

Json = dict[str, Any]
NAMES = [f"n{number}" for number in range(5)]


def node(name: str, hostname: str) -> Json:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": hostname}}}


@given(st.sets(st.sampled_from(NAMES), min_size=1), st.permutations(NAMES))
def test_it_may_run_on_every_node_but_the_targets(targets: set[str], hostnames: list[str]) -> None:
    pod = reverter_job(Settings(), "r", sorted(targets), {})["spec"]["template"]["spec"]
    fleet = [node(name, hostname) for name, hostname in zip(NAMES, hostnames, strict=True)]
    assert {each["metadata"]["name"] for each in fleet if matches_affinity(pod, each)} == {*NAMES} - targets
    fields = [
        field
        for term in pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        for field in term["matchFields"]
    ]
    assert all(len(field["values"]) == 1 for field in fields), "an API server takes one name a requirement"
