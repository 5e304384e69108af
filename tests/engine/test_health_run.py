"""The health policy's experiments from end to end: refusals that change nothing, and a runner that is killed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_gpu.lab.platform.health_manifests import MARK_OF_ADMISSION, SOURCE
from tests.engine.site import Json, Nursery, Site, unchanged
from tests.lab.conftest import running_lab

DEVICE = Path(__file__).parents[2] / "experiments" / "device"
ADMISSION, DURING_JOB, WEEKLY = (
    DEVICE / f"{name}.yaml"
    for name in (
        "admission-needs-diagnostics",
        "xid-during-job-runs-diagnostics",
        "idle-nodes-are-diagnosed-weekly",
    )
)
SITE = {
    "CHAOS_GPU_RECORDS": json.dumps(SOURCE),
    "CHAOS_GPU_ADMISSION": json.dumps(MARK_OF_ADMISSION),
    "CHAOS_GPU_DIAGNOSIS_S": "15",
    "CHAOS_GPU_UNCORDON_S": "10",
    "CHAOS_GPU_SKEW_S": "0.05",
}
R2 = MARK_OF_ADMISSION["key"]


@pytest.fixture(scope="module")
def policy(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    parts = [part for name in ("detector", "health-policy", "dcgm-engine") for part in ("--only", name)]
    with running_lab(tmp_path_factory.mktemp("policy") / "lab", parts) as lab:
        site = Site(lab, nursery, tmp_path_factory.mktemp("runs"))
        code, text = site.cli("install")
        assert code == 0, text
        yield site


@pytest.mark.parametrize(
    ("packaged", "lacks", "criteria"),
    [
        (ADMISSION, "CHAOS_GPU_ADMISSION", {"DEV-01"}),
        (ADMISSION, "CHAOS_GPU_RECORDS", {"DEV-01"}),
        (DURING_JOB, "CHAOS_GPU_RECORDS", {"DEV-02", "DEV-03", "DEV-05"}),
        (WEEKLY, "CHAOS_GPU_RECORDS", {"DEV-04"}),
    ],
)
def test_what_cannot_be_judged_is_not_tried(policy: Site, packaged: Path, lacks: str, criteria: set[str]) -> None:
    with unchanged(policy):
        ended = policy.run(packaged, **{**SITE, lacks: ""})
    assert ended.result.outcome == "inconclusive", ended.text
    assert {each["criterion"] for each in ended.guard["verdicts"] if lacks in each["reason"]} == criteria


@pytest.mark.parametrize(
    ("variable", "value"), [("CHAOS_GPU_RECORDS", '{"http": "ftp://x"}'), ("CHAOS_GPU_ADMISSION", '{"place": "spec"}')]
)
def test_what_is_declared_wrongly_is_refused(policy: Site, variable: str, value: str) -> None:
    with unchanged(policy):
        ended = policy.run(ADMISSION, **{**SITE, variable: value})
    assert ended.result.outcome == "refused", ended.text


@pytest.mark.slow
def test_the_packaged_experiments_pass_and_leave_nothing(policy: Site) -> None:
    before = _nodes(policy)
    for packaged in (WEEKLY, ADMISSION, DURING_JOB):
        ended = policy.run(packaged, **SITE)
        assert ended.result.outcome == "pass", ended.text
        assert ended.guard["recovery"]["open"] == []
        policy.forget()
    assert _nodes(policy) == before


@pytest.mark.slow
def test_a_killed_runner_leaves_no_node_without_its_r2(policy: Site) -> None:
    before = _nodes(policy)
    env = {**SITE, "CHAOS_GPU_RUN": "killed", "CHAOS_GPU_NODE": "gpu-node-1", "CHAOS_GPU_HOLD_S": "20"}
    ended = policy.start(ADMISSION, **env, CHAOS_GPU_LEASE_S="2")
    policy.lab.wait("api/v1/nodes", "gpu-node-1", lambda node: node["metadata"]["annotations"][R2] == "none", 60)
    ended.process.kill()
    policy.lab.wait("api/v1/namespaces/chaos-gpu/configmaps", "chaos-gpu-run-killed", _is_closed, 60)
    assert policy.ledger("killed")["recovery"]["by"] == "reverter"
    assert policy.ledger("killed")["recovery"]["open"] == []
    assert _nodes(policy) == before


def _is_closed(found: Json) -> bool:
    return bool(found["metadata"]["labels"]["chaos-gpu/ledger"] == "closed")


def _nodes(site: Site) -> Json:
    return {name: found for name, found in site.objects().items() if "/nodes " in name}
