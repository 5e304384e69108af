"""The trainings of a run: what a manifest becomes, and that they are gone whatever becomes of the runner."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from chaos_gpu.actions.checkpoint import kill_during_save
from chaos_gpu.errors import NotLanded, Refused, UsageError
from chaos_gpu.faults.checkpoint import KillArguments, PreemptArguments, plan_kill, plan_preempt
from chaos_gpu.faults.manifest import gpus_of, load
from chaos_gpu.faults.planning import Aim
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.faults.targets import Target
from chaos_gpu.faults.training import trainings
from chaos_gpu.lab.trainer.manifest import write_manifest
from tests.engine.site import Ended, Json, Site, activity, experiment, over

DEADLINE_S = 60.0
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"a": "b"}}
KEY = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "code", "key": "a"}}}
OTHER = {"name": "Y", "valueFrom": {"configMapKeyRef": {"name": "theirs", "key": "a"}}}
JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "trainer", "namespace": "team", "annotations": {"chaos-gpu/store": "/ckpt/"}},
    "spec": {
        "suspend": True,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"app": "trainer"}},
            "spec": {
                "restartPolicy": "OnFailure",
                "containers": [{"name": "a", "image": "x", "env": [KEY, OTHER]}, {"name": "b", "image": "y"}],
                "volumes": [{"name": "code", "configMap": {"name": "code"}}],
            },
        },
    },
}


def with_pod(**changed: Any) -> Json:
    return {**JOB, "spec": {"template": {"spec": {**JOB["spec"]["template"]["spec"], **changed}}}}


def manifest(path: Path, *objects: Any) -> str:
    path.write_text(yaml.safe_dump_all(objects))
    return str(path)


def test_two_jobs_and_their_configuration_are_made(tmp_path: Path) -> None:
    config, subject, reference = trainings(manifest(tmp_path / "a", CONFIG, JOB), "r1", "kill", "gpu-node-1")
    assert config["metadata"]["name"] == "r1-kill-code"
    assert config["data"] == CONFIG["data"]
    assert {each["metadata"]["namespace"] for each in (config, subject, reference)} == {"chaos-gpu"}
    assert subject["metadata"]["name"] != reference["metadata"]["name"]
    for job, role in ((subject, "subject"), (reference, "reference")):
        template = job["spec"]["template"]
        labels = {"app": "trainer", "chaos-gpu/run": "r1", "chaos-gpu/fault": "kill", "chaos-gpu/training": role}
        assert labels.items() <= template["metadata"]["labels"].items()
        first, second = template["spec"]["containers"]
        env = {each["name"]: each for each in first["env"]}
        assert env["CHAOS_GPU_TRAINING"]["value"] == f"r1.kill.{role}"
        assert env["CHAOS_GPU_STORE"]["value"] == f"/ckpt/r1-kill-{role}"
        assert list(env) == ["CHAOS_GPU_TRAINING", "CHAOS_GPU_STORE", "CHAOS_GPU_POD", "X", "Y"], (
            "the last may use ours"
        )
        assert "env" not in second, "what is not the training is not killed"
        assert env["X"]["valueFrom"]["configMapKeyRef"]["name"] == "r1-kill-code"
        assert env["Y"]["valueFrom"]["configMapKeyRef"]["name"] == "theirs"
        assert template["spec"]["volumes"][0]["configMap"]["name"] == "r1-kill-code"
        assert "gpu-node-1" in json.dumps(template["spec"]["affinity"])
        assert job["spec"]["suspend"] is False
        assert "selector" not in job["spec"]


@pytest.mark.parametrize(
    "objects",
    [
        (),
        (CONFIG,),
        (JOB, JOB),
        (JOB, {"kind": "Secret"}),
        ("text",),
        ({**JOB, "metadata": {"name": "x"}},),
        ({**JOB, "metadata": {"name": "x", "annotations": {"chaos-gpu/store": "relative"}}},),
        ({**JOB, "metadata": None},),
        ({**JOB, "metadata": {**JOB["metadata"], "annotations": ["chaos-gpu/store"]}},),
        ({**JOB, "spec": None},),
        ({**JOB, "spec": {"template": {"spec": {"containers": []}}}},),
        ({**JOB, "spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}},),
        (with_pod(containers=[{"name": "a", "env": ["X=1"]}]),),
        (with_pod(containers=[{"name": "a", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]),),
        (with_pod(terminationGracePeriodSeconds="long"),),
        ({**CONFIG, "metadata": {}}, JOB),
        ({**CONFIG, "metadata": None}, JOB),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, objects: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError):
        load(manifest(tmp_path / "a", *objects))


def test_a_training_ends_and_has_one_pod_at_a_time(tmp_path: Path) -> None:
    """Whatever becomes of the run; and while one that was told to end saves, no other takes its place."""
    path = manifest(tmp_path / "a", JOB)
    for made in trainings(path, "r1", "kill", "gpu-node-1", longest_s=90.4):
        assert made["spec"]["activeDeadlineSeconds"] == 90
        assert made["spec"]["podReplacementPolicy"] == "Failed"
    path = manifest(tmp_path / "a", {**JOB, "spec": {**JOB["spec"], "activeDeadlineSeconds": 5}})
    assert trainings(path, "r1", "kill", "gpu-node-1")[0]["spec"]["activeDeadlineSeconds"] == 5


def holding(gpus: int, **spec: Any) -> Json:
    wants = {"resources": {"limits": {"nvidia.com/gpu": str(gpus), "memory": "1Gi"}}}
    job = with_pod(containers=[{"name": "a", **wants}, {"name": "b"}, {"name": "c", "resources": None}])
    return {**job, "spec": {**job["spec"], **spec}}


@pytest.mark.parametrize(("spec", "gpus"), [({}, 3), ({"parallelism": 2}, 6)])
def test_the_gpus_of_a_training_are_counted(spec: Json, gpus: int) -> None:
    assert gpus_of(holding(3, **spec)) == gpus
    assert gpus_of(JOB) == 0


class Planned:
    """All that a plan of this kind asks for."""

    def __init__(self, job: str, gpus: int, references: int = 1) -> None:
        self.settings, self.guard, self.run = Settings(job=job, references=references), GuardArguments(gpus=gpus), "r1"

    def aim(self, wanted: Any) -> Aim:
        return Aim(Target(node="gpu-node-1", node_uid="u", gpu={"uuid": "GPU-1"}), [], {})


@pytest.mark.parametrize(("gpus", "refused"), [(1, True), (2, False)])
def test_two_trainings_that_hold_more_gpus_than_allowed_are_refused(tmp_path: Path, gpus: int, refused: bool) -> None:
    planning: Any = Planned(manifest(tmp_path / "a", holding(1)), gpus)
    if refused:
        with pytest.raises(Refused, match="would hold 2 GPUs, 1 may"):
            plan_kill(planning, KillArguments(fault="kill"))
    else:
        assert len(plan_kill(planning, KillArguments(fault="kill")).objects) == 2
    assert len(plan_preempt(planning, PreemptArguments(fault="evict")).objects) == 1, "it has no reference"


def test_several_references_are_watched_each(tmp_path: Path) -> None:
    """Two of them show what differs by chance; they take GPUs as well."""
    planning: Any = Planned(manifest(tmp_path / "a", holding(1)), 3, references=2)
    plan = plan_kill(planning, KillArguments(fault="kill"))
    assert [each["metadata"]["name"] for each in plan.objects] == ["r1-kill-sub", "r1-kill-ref", "r1-kill-ref-2"]
    assert [each["metadata"]["labels"]["chaos-gpu/training"] for each in plan.objects][2] == "reference-2"
    assert plan.pod is not None
    spec = json.loads(plan.pod["metadata"]["annotations"]["chaos-gpu/spec"])
    assert spec["references"] == ["r1.kill.reference", "r1.kill.reference-2"]
    with pytest.raises(Refused, match="would hold 3 GPUs, 2 may"):
        plan_kill(cast("Any", Planned(planning.settings.job, 2, references=2)), KillArguments(fault="kill"))


@pytest.mark.parametrize(("means", "grace_s"), [("evict", 30.0), ("force", 0.0)])
def test_who_is_removed_by_force_has_no_grace_to_judge(tmp_path: Path, means: str, grace_s: float) -> None:
    planning: Any = Planned(manifest(tmp_path / "a", JOB), 1)
    plan = plan_preempt(planning, PreemptArguments(fault="evict", means=means))
    assert plan.pod is not None
    assert json.loads(plan.pod["metadata"]["annotations"]["chaos-gpu/spec"])["grace_s"] == grace_s


def test_without_a_training_nothing_is_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_kill(cast("Any", Planned("", 1)), KillArguments(fault="kill"))
    run = SimpleNamespace(planned=lambda fault: plan)
    monkeypatch.setattr("chaos_gpu.actions.checkpoint.armed_run", lambda configuration: run)
    monkeypatch.setattr("chaos_gpu.faults.engine.inject", lambda *_: pytest.fail("it was injected"))
    with pytest.raises(NotLanded, match="no training is given"):
        kill_during_save({}, "kill")


def test_a_manifest_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "none"))
    (tmp_path / "broken").write_text("a: [")
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(tmp_path / "broken"))


def killing(job: str, **more: Any) -> Json:
    def change(made: Json) -> None:
        made["configuration"]["job"] = job

    kill = activity("action", "kill", "chaos_gpu.actions.checkpoint", "kill_during_save", fault="kill", **more)
    wait = activity("action", "wait", "chaos_gpu.actions.run", "hold", seconds=60)
    return experiment(kill, wait, *over("kill"), change=change)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"phase": "never"}, "no phase 'never'"),
        ({"means": "hammer"}, "no means 'hammer'"),
        ({"fraction": 1.0}, "between 0 and 1"),
        ({"fraction": "half"}, "fraction"),
        ({"bytes": -1}, "between 0 and 1"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_made(
    site: Site, tmp_path: Path, wrong: Json, said: str
) -> None:
    ended = site.run(killing(str(write_manifest(tmp_path, [])), **wrong))
    assert said in ended.guard["refused"]["reason"]
    assert not jobs(site)


def jobs(site: Site) -> list[str]:
    found = site.items("apis/batch/v1/namespaces/chaos-gpu/jobs")
    return [job["metadata"]["name"] for job in found if job["metadata"]["labels"].get("chaos-gpu/role") == "training"]


def pods(site: Site) -> list[str]:
    found = site.items("api/v1/namespaces/chaos-gpu/pods")
    return [pod["metadata"]["name"] for pod in found if pod["metadata"]["labels"].get("chaos-gpu/role") != "reverter"]


def until(reached: Any, what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def landed(site: Site, ended: Ended) -> bool:
    ledgers = site.items("api/v1/namespaces/chaos-gpu/configmaps")
    states = [json.loads(each["data"]["fault.kill"])["state"] for each in ledgers if "fault.kill" in each["data"]]
    assert ended.process.code == 0, ended.text
    return "landed" in states


def stubborn(path: Path) -> str:
    """Give a training a container that never ends by itself, and an hour to do so."""
    config, job = yaml.safe_load_all(path.read_text())
    pod = job["spec"]["template"]["spec"]
    ignores = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"]
    pod["containers"].append({"name": "stubborn", "image": "any", "command": ignores})
    pod["terminationGracePeriodSeconds"] = 3600
    return manifest(path, config, job)


def closed(site: Site) -> bool:
    return any(
        each["metadata"].get("labels", {}).get("chaos-gpu/ledger") == "closed"
        for each in site.items("api/v1/namespaces/chaos-gpu/configmaps")
    )


def test_a_run_that_is_killed_leaves_no_training(site: Site, tmp_path: Path) -> None:
    """The reverter deletes what the ledger names, with its pods; what it does not name goes with the reverter."""
    ended = site.start(killing(stubborn(write_manifest(tmp_path, []))))
    until(lambda: landed(site, ended), f"it did not land:\n{ended.text}")
    assert len(jobs(site)) == 2
    ended.process.kill()
    until(lambda: closed(site), "its ledger is not closed")
    assert (jobs(site), pods(site)) == ([], []), "its trainings are still there"
    assert list((tmp_path / "checkpoints").iterdir()) == [], "their checkpoints are still there"
