"""raise_application_xid from end to end, on a lab whose nodes have a stand-in for the driver's libraries."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.site import Json, Nursery, Site, activity, defects, experiment, over, unchanged
from tests.lab.conftest import running_lab

PACKAGED = Path(__file__).parents[2] / "experiments" / "device" / "application-xid-keeps-node.yaml"
SHARING = "nvidia.com/gpu.sharing-strategy"


@pytest.fixture(scope="module")
def gpu_site(nursery: Nursery, driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    env = {"CHAOS_GPU_CORDON_S": "2", "LD_LIBRARY_PATH": str(driver)}
    with running_lab(tmp_path_factory.mktemp("gpus") / "lab", env=env) as lab:
        site = Site(lab, nursery, tmp_path_factory.mktemp("runs"))
        code, text = site.cli("install")
        assert code == 0, text
        yield site


def raised(code: int, **more: Any) -> Json:
    action = activity(
        "action", "raise", "chaos_gpu.actions.application", "raise_application_xid", fault="real", code=code, **more
    )
    kept = activity("probe", "kept", "chaos_gpu.probes.device", "node_kept", fault="real")
    return experiment(action, kept, *over("real"), criteria=["DEV-06"], repeats_per_day=20)


def test_the_packaged_experiment_passes(gpu_site: Site) -> None:
    ended = gpu_site.run(PACKAGED)
    assert ended.result.outcome == "pass", ended.text
    raised = [ended.output_of(f"xid-{code}")["output"] for code in (31, 13, 43)]
    assert [len(each["records"]) for each in raised] == [1, 3, 1]
    assert [each["cuda_error"] for each in raised] == [700, 716, 719]
    assert len({(each["node"], each["gpu"]) for each in raised}) == 1, "one GPU, given back each time"
    for verdict in ended.guard["verdicts"]:
        assert verdict["evidence"]["seen_by_detector"], "the lab's detector told of it in an Event"
    assert ended.guard["recovery"]["open"] == []
    gpu_site.forget()


def test_a_platform_that_cordons_for_it_fails(gpu_site: Site) -> None:
    with defects(gpu_site, "detector-cordons-13"):
        ended = gpu_site.run(raised(13))
    assert ended.result.outcome == "fail", ended.text
    assert ended.guard["recovery"]["open"] == []
    gpu_site.forget()


def test_the_ledger_tells_which_gpu_it_was(gpu_site: Site) -> None:
    ended = gpu_site.run(raised(31, node="gpu-node-1"))
    record = gpu_site.ledger(ended.guard["run"])["fault.real"]
    output = ended.output_of("raise")["output"]
    assert (record["state"], record["kind"], record["code"]) == ("landed", "application-xid", 31)
    assert record["gpu"] == {"pci": output["pci"], "uuid": output["gpu"]}
    assert record["seq"] == output["seq"]
    gpu_site.forget()


@pytest.mark.parametrize("strategy", ["time-slicing", "mps"])
def test_a_node_whose_gpus_are_shared_is_refused(gpu_site: Site, strategy: str) -> None:
    path = "api/v1/nodes/gpu-node-2"
    gpu_site.merge(path, {"metadata": {"labels": {SHARING: strategy}}})
    with unchanged(gpu_site):
        ended = gpu_site.run(raised(31, node="gpu-node-2"))
    gpu_site.merge(path, {"metadata": {"labels": {SHARING: None}}})
    assert "are shared" in ended.guard["refused"]["reason"]


def test_a_code_that_no_application_raises_is_refused(gpu_site: Site) -> None:
    with unchanged(gpu_site):
        ended = gpu_site.run(raised(79))
    assert "no program of ours makes the driver report Xid 79" in ended.guard["refused"]["reason"]


def test_a_node_with_foreign_work_is_refused(gpu_site: Site) -> None:
    body = {
        "metadata": {"name": "train"},
        "spec": {
            "nodeName": "gpu-node-3",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "command": ["sleep", "1000"],
                    "resources": {"limits": {"nvidia.com/gpu": "1"}},
                }
            ],
        },
    }
    gpu_site.lab.request("POST", "api/v1/namespaces/default/pods", body)
    with unchanged(gpu_site):
        ended = gpu_site.run(raised(31, node="gpu-node-3"))
    gpu_site.lab.request("DELETE", "api/v1/namespaces/default/pods/train")
    assert "default/train" in ended.guard["refused"]["reason"]


def test_without_the_drivers_library_nothing_is_injected(site: Site) -> None:
    ended = site.run(raised(31))
    assert ended.result.outcome == "inconclusive", ended.text
    record = site.ledger(ended.guard["run"])["fault.real"]
    assert record["state"] == "not landed"
    assert "no libcuda.so.1" in record["reason"]
    assert ended.guard["recovery"]["open"] == []
