"""A training pod killed in the middle of a save on real containers: what the product says, against what others say."""

import json

import pytest

from tests.cluster import training
from tests.cluster.kubectl import Json
from tests.cluster.layout import NODES
from tests.cluster.product import Done, Site

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

KILLED = "job/killed-in-mid-save-resumes"
SIGKILLED = 137
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


def kill_of(done: Done) -> Json:
    """Return the evidence of the kill."""
    found: Json = next(each for each in done.journal["chaos_gpu"]["verdicts"] if each["criterion"] == "CKPT-01")
    kill: Json = found["evidence"]["kill"]
    return kill


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
    """What the killed training has saved last, and what the reference has: bit for bit."""
    subject, reference = seen.of_run(done.journal["chaos_gpu"]["run"])
    names = sorted(path.name for path in subject.glob("step-*.pt"))
    assert len(names) == 2
    for name in names:
        argv = ("explain", "checkpoint", str(subject / name), "--against", str(reference / name), "--json")
        told = json.loads(site.command(*argv))
        assert told["complete"] == "yes"
        assert told["differs"] == []
        assert len(told["state_crcs"]) > 20
