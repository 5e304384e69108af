"""Choosing in a large fleet: few lists whatever its size, every node is tried, and no node with a past is taken."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

from chaos_gpu.errors import TargetError
from chaos_gpu.faults.detectors import Detector, Profile, Watchers, detectors_by_node
from chaos_gpu.faults.planning import GpuFaultArguments, Planning
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.faults.targets import Target, Unfit, choose_node, unfit

if TYPE_CHECKING:
    from chaos_gpu.cluster.client import Api

Json = dict[str, Any]
FLEET = 50


class Lists:
    """An API that answers lists from what it holds, as the server would select it, and counts them."""

    def __init__(self, pods: list[Json]) -> None:
        self.pods, self.asked = pods, 0

    def items(self, path: str, labels: str = "", fields: str = "") -> Iterator[Json]:
        self.asked += 1
        wanted = dict(each.split("=") for each in labels.split(",") if each)
        node = fields.removeprefix("spec.nodeName=")
        for pod in self.pods:
            meta = pod["metadata"]
            here = f"/namespaces/{meta['namespace']}/" in path and node in ("", pod["spec"].get("nodeName"))
            if here and wanted.items() <= meta["labels"].items():
                yield pod

    def find(self, path: str) -> Json | None:
        return {} if path.endswith("/other") else None


def pod(app: str, node: str, namespace: str = "watch", ready: str = "True") -> Json:
    conditions = [{"type": "Ready", "status": ready}]
    spec = {"nodeName": node} if node else {}
    meta = {"name": f"{app}-{node}", "namespace": namespace, "labels": {"app": app, "more": "x"}}
    return {"metadata": meta, "spec": spec, "status": {"conditions": conditions}}


def detector(app: str, transport: str = "kmsg", **labels: str) -> Detector:
    return Detector(
        name=app, namespace="watch", pod_labels=labels or {"app": app}, profile=Profile(transport=transport)
    )


def test_one_list_a_detector_tells_who_reads_where() -> None:
    names = [f"n{number}" for number in range(FLEET)]
    there = [*(pod("a", name) for name in names), pod("b", "n1"), pod("b", ""), pod("b", "n2", ready="False")]
    api = Lists([*there, pod("b", "n3", namespace="elsewhere"), pod("deaf", "n4")])
    nameless = Detector(name="nameless", namespace="watch", pod_labels={}, profile=Profile(transport="kmsg"))
    watchers = Watchers(detectors=(detector("a"), detector("b"), detector("deaf", transport=""), nameless))
    found = detectors_by_node(cast("Api", api), watchers)
    assert api.asked == 2
    assert {name: [each.name for each in found[name]] for name in found} == {
        name: ["a", "b"] if name == "n1" else ["a"] for name in names
    }
    assert detectors_by_node(cast("Api", api), watchers, "n1") == {"n1": found["n1"]}


def node(name: str = "n", **metadata: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": f"u-{name}", **metadata},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def choose(wanted: str, busy: set[str]) -> Json:
    fleet = [node(f"n{number}") for number in range(FLEET)]

    def why_not(each: Json) -> Unfit | None:
        return Unfit("busy") if each["metadata"]["name"] in busy else None

    return choose_node(cast("Api", Lists([])), fleet, wanted, "seed", why_not)


class Bare(Lists):
    """A cluster without pods."""

    def __init__(self) -> None:
        super().__init__([])


def aimed(had: dict[tuple[str, str, str], int], hits: int, **settings: Any) -> Target:
    """Choose the target of an experiment that hits one GPU so often, in a fleet of four nodes with two GPUs each."""
    fleet = [node(f"n{number}", labels={"nvidia.com/gpu.count": "2"}) for number in range(4)]
    planning = Planning(
        api=cast("Api", Bare()),
        settings=Settings.read(settings),
        guard=GuardArguments(),
        run="run",
        watchers=Watchers(),
        fleet=fleet,
        had=Counter(had),
        times=Counter(),
    )
    arguments = GpuFaultArguments(fault="x")
    planning.times[planning.wanted(arguments)] = hits
    return planning.aim(arguments).target


@pytest.mark.parametrize("gpu", ["", "0"])
@pytest.mark.parametrize("left", range(4))
def test_the_node_with_budget_left_is_found_and_again_under_its_seed(gpu: str, left: int) -> None:
    spent = {(f"u-n{number}", "index", index): 1 for number in range(4) if number != left for index in "01"}
    for seed in "abc":
        target = aimed(spent, 4, gpu=gpu, seed=seed)
        assert target.node == f"n{left}"
        assert target == aimed(spent, 4, gpu=gpu, seed=seed)
        assert aimed(spent, 3, gpu=gpu, seed=seed).node == aimed({}, 3, gpu=gpu, seed=seed).node


ALL = {(f"u-n{n}", "index", "0"): 2 for n in range(4)}
N1 = {("u-n1", "index", "0"): 2, ("u-n1", "index", "1"): 4}


@pytest.mark.parametrize(
    ("had", "hits", "settings", "says", "remedy"),
    [
        (ALL, 3, {"gpu": "0"}, r"n\d: GPU index 0 had 2 injections in 24 h, 3 more would be over 4", "another GPU"),
        (ALL, 3, {"gpu": "0", "node": "n2"}, "n2 is not fit as a target: GPU index 0 had 2", "another node"),
        (N1, 3, {"node": "n1"}, "n1 is not fit as a target: every GPU had", "another node"),
    ],
    ids=["any node", "a named node", "all GPUs of a named node"],
)
def test_a_refusal_for_the_budget_names_the_node_and_what_helps(
    had: dict[tuple[str, str, str], int], hits: int, settings: Json, says: str, remedy: str
) -> None:
    with pytest.raises(TargetError, match=says) as refused:
        aimed(had, hits, **settings)
    assert remedy in refused.value.remedy
    assert "repeats_per_day" in refused.value.remedy
    assert "target=allow" not in refused.value.remedy


@pytest.mark.parametrize("idle", range(0, FLEET, 7))
def test_the_one_idle_node_is_found_among_many_busy_ones(idle: int) -> None:
    names = {f"n{number}" for number in range(FLEET)}
    assert choose("", names - {f"n{idle}"})["metadata"]["name"] == f"n{idle}"
    with pytest.raises(TargetError, match=rf"none of {FLEET} GPU nodes is fit as a target \(n\d+: busy; "):
        choose("", names)


def test_a_named_node_is_taken_or_refused_with_the_reason() -> None:
    assert choose("n7", set())["metadata"]["name"] == "n7"
    for wanted, why in (("n7", "n7 is not fit as a target: busy"), ("other", "does not match"), ("gone", "no node")):
        with pytest.raises(TargetError, match=why):
            choose(wanted, {"n7"})


@pytest.mark.parametrize("place", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("text", "fit"),
    [("anything", False), ('[{"code": 48}]', False), ("", True), (" ", True), ("[]", True), ("{}", True)],
)
def test_a_node_that_still_bears_an_attribution_is_not_fit(place: str, text: str, fit: bool) -> None:
    """The next cordon there, whoever's it is, would be taken for the doing of what the text names."""
    found = node(**{place: {"why": text, "unrelated": "x"}})
    assert unfit(found, (), ["why"]) == ("" if fit else "its why still tells of an earlier incident")
    assert unfit(found, (), ["other"]) == ""
