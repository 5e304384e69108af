"""Who is found to watch over the GPUs of a cluster, and by what."""

import json
from typing import Any

import pytest

from chaos_gpu.faults.detectors import find_watchers

Json = dict[str, Any]
PROFILE = {"conditions": ["Sick"], "actions": ["cordon"], "dcgm": True}


class Cluster:
    """An API server that shows these workloads, each under its kind."""

    def __init__(self, **workloads: list[Json]) -> None:
        self._workloads = workloads

    def items(self, path: str) -> list[Json]:
        return self._workloads.get(path.rpartition("/")[2], [])


def workload(name: str, profile: Json | None = None) -> Json:
    marks: Json = {}
    if profile is not None:
        marks = {
            "labels": {"chaos-gpu/detector": name},
            "annotations": {"chaos-gpu/detector-profile": json.dumps(profile)},
        }
    meta = {"name": name, "namespace": "n", **marks}
    return {"metadata": meta, "spec": {"selector": {"matchLabels": {"app": name}}}}


@pytest.mark.parametrize("kind", ["daemonsets", "deployments"])
def test_a_detector_that_declares_itself_may_be_of_either_kind(kind: str) -> None:
    found = find_watchers(Cluster(**{kind: [workload("ours", PROFILE)]}))  # type: ignore[arg-type]
    (detector,) = found.detectors
    assert (detector.name, detector.profile.dcgm, detector.profile.transport) == ("ours", True, "")
    assert found.conditions() == ("Sick",)
    assert found.readers() == ()
    assert [(each.name, each.actions) for each in found.remediators] == [("ours", ("cordon",))]


def test_a_deployment_is_no_detector_by_its_name_alone() -> None:
    assert find_watchers(Cluster(deployments=[workload("gpud")])).detectors == ()  # type: ignore[arg-type]


def test_nvsentinels_monitor_watches_dcgm_and_no_kernel_log() -> None:
    (detector,) = find_watchers(Cluster(daemonsets=[workload("gpu-health-monitor-dcgm-4.x")])).detectors  # type: ignore[arg-type]
    assert detector.profile.dcgm
    assert detector.profile.transport == ""
    assert "GpuMemWatch" in detector.profile.conditions


def test_a_reader_of_the_kernel_log_is_not_taken_for_one_of_dcgm() -> None:
    (detector,) = find_watchers(Cluster(daemonsets=[workload("gpud")])).detectors  # type: ignore[arg-type]
    assert not detector.profile.dcgm
