"""A training pod killed in the middle of a save on real containers: what the product says, against what others say."""

import json
import os

import pytest

from chaos_gpu.lab.trainer.manifest import GRACE_S
from tests.cluster import training
from tests.cluster.kubectl import Json
from tests.cluster.layout import NODES
from tests.cluster.product import Done, Site

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

KILLED = "job/killed-in-mid-save-resumes"
PREEMPTED = "job/preempted-saves-in-grace"
SIGKILLED, STOPPED = 137, 143
EVERYTHING = os.environ.get("CHAOS_GPU_CLUSTER_CELLS") == "all"
MEANS = ("delete", "evict")
CASES = ((0.1, NODES[1], "cgroup v1"), (0.5, NODES[0], "cgroup v2"), (0.9, NODES[1], "cgroup v1"))


@pytest.mark.parametrize(("fraction", "node", "freezer"), CASES)
def test_it_is_killed_at_a_fraction_of_a_save_and_resumes(site: Site, fraction: float, node: str, freezer: str) -> None:
    experiment = training.variant(site.folder, KILLED, fraction=fraction)
    with training.watched(site, node) as seen:
        done = site.run(experiment, node=node, **training.give(site.folder))
    assert done.code == 0, f"{done.reasons}\n{done.said}"
    assert {done.outcome(f"CKPT-0{number}") for number in range(1, 5)} == {"pass"}
    kill = kill_of(done)
    assert kill["frozen_by"] == freezer
    assert_the_kubelet_restarted_it(seen)
    assert_the_save_was_cut(seen, kill, fraction)
    assert_states_are_equal(site, seen, done)


@pytest.mark.parametrize("means", MEANS)
def test_it_goes_on_in_another_pod_when_the_api_ends_it_in_mid_save(site: Site, means: str) -> None:
    """It finishes its save within its grace, as the one that CKPT-01 is about cannot: the rest is judged."""
    experiment = training.variant(site.folder, KILLED, means=means)
    with training.watched(site, NODES[0]) as seen:
        done = site.run(experiment, node=NODES[0], **training.give(site.folder))
    assert done.outcome("CKPT-01") == "inconclusive", f"{done.reasons}\n{done.said}"
    assert {done.outcome(f"CKPT-0{number}") for number in range(2, 5)} == {"pass"}, f"{done.reasons}\n{done.said}"
    assert f"{means} of pod" in kill_of(done)["text"]
    assert_it_was_stopped(seen, pods=2)
    assert_states_are_equal(site, seen, done)


@pytest.mark.parametrize("means", ["init", "rank"])
@pytest.mark.skipif(not EVERYTHING, reason="CHAOS_GPU_CLUSTER_CELLS=all")
def test_the_first_process_takes_the_container_with_it(site: Site, means: str) -> None:
    experiment = training.variant(site.folder, KILLED, means=means)
    with training.watched(site, NODES[1]) as seen:
        done = site.run(experiment, node=NODES[1], **training.give(site.folder))
    assert done.code == 0, f"{done.reasons}\n{done.said}"
    assert_the_kubelet_restarted_it(seen)


@pytest.mark.parametrize("means", MEANS)
def test_it_saves_within_its_real_grace_period(site: Site, means: str) -> None:
    experiment = training.variant(site.folder, PREEMPTED, means=means)
    with training.watched(site, NODES[0]) as seen:
        done = site.run(experiment, node=NODES[0], **training.give(site.folder))
    assert done.code == 0, f"{done.reasons}\n{done.said}"
    evidence = evidence_of(done, "CKPT-07")
    assert 0 < evidence["saved_after_s"] <= evidence["ended_after_s"] < evidence["grace_s"] == GRACE_S
    assert_it_was_stopped(seen, pods=1)
    assert f"step-{evidence['step']}.pt" in seen.sizes


def evidence_of(done: Done, criterion: str) -> Json:
    found: Json = next(each for each in done.journal["chaos_gpu"]["verdicts"] if each["criterion"] == criterion)
    evidence: Json = found["evidence"]
    return evidence


def kill_of(done: Done) -> Json:
    """Return the evidence of the kill."""
    kill: Json = evidence_of(done, "CKPT-01")["kill"]
    return kill


def assert_it_was_stopped(seen: training.Seen, pods: int) -> None:
    """By its grace period, which the API server has given it, and the exit code that the kubelet saw."""
    first, *others = sorted(seen.pods.values(), key=lambda each: str(each["metadata"]["creationTimestamp"]))
    assert len(others) >= pods - 1
    assert seen.graces_s[first["metadata"]["name"]] == GRACE_S
    assert training.container(first)["restartCount"] == 0
    assert training.container(first)["state"]["terminated"]["exitCode"] == STOPPED


def assert_the_kubelet_restarted_it(seen: training.Seen) -> None:
    (pod,) = seen.pods.values()
    assert training.container(pod)["restartCount"] == 1
    assert [(each["exitCode"], each["reason"]) for each in seen.deaths] == [(SIGKILLED, "Error")]


def assert_the_save_was_cut(seen: training.Seen, kill: Json, fraction: float) -> None:
    """By the training's own log, and by the size of what was left in its store."""
    events = [each for each in seen.first_life if "event" in each]
    assert events[-1]["event"] == "saving", events
    saved = [each for each in events if each["event"] == "saved"]
    assert kill["newest_complete"] == {"name": saved[-1]["name"], "step": saved[-1]["step"]}
    (torn,) = kill["files"]
    assert torn.startswith(f"step-{events[-1]['step']}.pt.tmp")
    assert seen.sizes[torn] == kill["written_bytes"]
    whole = seen.sizes[saved[-1]["name"]]
    assert abs(seen.sizes[torn] - fraction * whole) <= kill["record_bytes"] < whole / 10


def assert_states_are_equal(site: Site, seen: training.Seen, done: Done) -> None:
    """What the killed training has saved first and last since, and what the reference has: bit for bit."""
    first = evidence_of(done, "CKPT-03")["step"]
    for name in (f"step-{first}.pt", "step-32.pt"):
        subject, reference = (str(seen.copy_of(role, name)) for role in ("subject", "reference"))
        argv = ("explain", "checkpoint", subject, "--against", reference, "--json")
        told = json.loads(site.command(*argv))
        assert told["complete"] == "yes"
        assert told["differs"] == []
        assert len(told["state_crcs"]) > 20
