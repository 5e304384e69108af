"""Undo and settlement against an API that answers as told: what is ours is restored, what is not is left and said."""

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest

from chaos_gpu.payloads import undo
from chaos_gpu.payloads.endings import WATCH

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]
MARKER = "cgpu-0123abcd"
KEY = "gpu-health.lab/cordoned-by"


class Cluster:
    """Nodes, one ledger and the log of the pod that reads the kernel log, in memory."""

    def __init__(self, *nodes: Json, log: Json | None = None, page: int = 100) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.data: dict[str, str] = {}
        self.state = "open"
        self.log, self.page = log, page
        self.calls: list[tuple[str, str]] = []
        self.on_look: Callable[[Cluster], None] = lambda _: None

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Json]:
        self.calls.append((method, path))
        where, _, query = path.partition("?")
        if "/configmaps/" in where:
            return self._ledger(method, body)
        if where == "/api/v1/nodes":
            self.on_look(self)
            return self._nodes(dict(parse_qsl(query)))
        if where.startswith("/api/v1/nodes/"):
            return self._patch(self.nodes[where.rpartition("/")[2]], body)
        if where.endswith("/log"):
            return (200, self.log) if self.log is not None else (404, {"status": "Failure"})
        if "/pods" in where:
            done = {"metadata": {"name": "scan"}, "status": {"phase": "Succeeded"}}
            return 200, {"items": []} if method == "GET" and where.endswith("/pods") else done
        raise AssertionError(f"unexpected {method} {path}")

    def _ledger(self, method: str, body: Any) -> tuple[int, Json]:
        if method == "PATCH":
            for key, value in body.get("data", {}).items():
                self.data.pop(key, None) if value is None else self.data.update({key: value})
            self.state = body.get("metadata", {}).get("labels", {}).get(undo.LEDGER_LABEL, self.state)
        return 200, {"metadata": {"labels": {undo.LEDGER_LABEL: self.state}}, "data": dict(self.data)}

    def _nodes(self, query: dict[str, str]) -> tuple[int, Json]:
        names = sorted(self.nodes)
        begin = int(query.get("continue", "0"))
        end = begin + min(int(query.get("limit", "1000")), self.page)
        more = {"continue": str(end)} if end < len(names) else {}
        return 200, {"metadata": more, "items": [self.nodes[name] for name in names[begin:end]]}

    @staticmethod
    def _patch(node: Json, patch: list[Json]) -> tuple[int, Json]:
        if {"op": "remove", "path": "/spec/unschedulable"} in patch:
            node["spec"].pop("unschedulable")
        for step in patch:
            if step["op"] == "remove" and step["path"].startswith("/metadata/annotations/"):
                node["metadata"]["annotations"].pop(KEY)
        return 200, node

    @property
    def consequence(self) -> Json:
        return json.loads(self.data["consequence.xid-48"])


def node(name: str, cordoned: bool = False, why: str = "", condition: str = "") -> Json:
    conditions = [{"type": "GpuXidError", "status": "True" if condition else "False", "message": condition}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "annotations": {KEY: why} if why else {}},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"conditions": conditions},
    }


def foresee(cluster: Cluster, **changes: Any) -> Cluster:
    record = {
        "fault": "xid-48", "node": "target", "selector": "gpu=true", "schedulable_before": True, "code": 48,
        "marker": MARKER, "pci": "0000:3b:00", "gpu_uuid": "GPU-1", "conditions": ["GpuXidError"],
        "attribution": [KEY], "reaction_s": 0.0, "uncordon_s": 0.0, "state": "landed",
        "scan": {"metadata": {"name": "scan"}},
    }  # fmt: skip
    cluster.data["consequence.xid-48"] = json.dumps({**record, **changes})
    return cluster


def settle(cluster: Cluster) -> undo.Result:
    return undo.settle(cluster, "chaos-gpu", "r1", pause=lambda _: None)


CLEAN = {"event": "reverted", "foreign": []}


def test_a_cordon_that_names_our_record_is_taken_back() -> None:
    cluster = foresee(Cluster(node("target", cordoned=True, why=f"Xid 48 {MARKER}"), log=CLEAN))
    restored, left = settle(cluster)
    assert not left
    assert restored
    assert "unschedulable" not in cluster.nodes["target"]["spec"]
    assert KEY not in cluster.nodes["target"]["metadata"]["annotations"]
    assert cluster.consequence["state"] == "settled"


@pytest.mark.parametrize(
    "log",
    [
        None,  # no such pod, no such log
        {"text": ""},  # killed before it said a word
        {"text": "no json\n"},
        {"text": "[]\n"},
        {"event": "failed", "reason": "overwritten"},
        {"event": "reverted"},  # no list at all
        {"event": "reverted", "foreign": ["NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."]},
    ],
)
def test_without_a_clean_kernel_log_the_node_stays_as_it_is(log: Json | None) -> None:
    cluster = foresee(Cluster(node("target", cordoned=True, why=f"Xid 48 {MARKER}"), log=log))
    _, left = settle(cluster)
    assert "left as it is" in left[0]
    assert cluster.nodes["target"]["spec"]["unschedulable"] is True
    assert cluster.consequence["state"] == "open"


def test_another_node_is_never_restored_by_us_even_if_its_cordon_names_our_record() -> None:
    cluster = foresee(Cluster(node("target"), node("other", cordoned=True, why=f"Xid 48 {MARKER}"), log=CLEAN))
    _, left = settle(cluster)
    assert left[0].startswith("other cordoned: left as it is")
    assert cluster.nodes["other"]["spec"]["unschedulable"] is True


def test_a_target_cordoned_without_a_reason_is_not_called_no_reaction() -> None:
    cluster = foresee(Cluster(node("target", cordoned=True), log=CLEAN))
    _, left = settle(cluster)
    assert "nothing says that our record was why" in left[0]
    assert cluster.nodes["target"]["spec"]["unschedulable"] is True


def test_another_node_cordoned_without_a_reason_is_nobodys_business() -> None:
    cluster = foresee(Cluster(node("target"), node("other", cordoned=True), log=CLEAN))
    restored, left = settle(cluster)
    assert not left
    assert "no reaction" in restored[0]


def test_a_condition_that_came_and_went_does_not_end_the_wait_for_a_cordon() -> None:
    """The first look shows a condition, the second nothing, the third the cordon that follows late."""
    cluster = foresee(
        Cluster(node("target", condition=f"Xid 48 {MARKER}"), log=CLEAN), reaction_s=60.0, uncordon_s=60.0
    )
    later = [node("target"), node("target", cordoned=True, why=f"Xid 48 {MARKER}"), node("target")]

    def change(looked: Cluster) -> None:
        if sum(call == ("GET", looked.calls[-1][1]) for call in looked.calls) > 1 and later:
            looked.nodes["target"] = later.pop(0)

    cluster.on_look = change
    restored, left = settle(cluster)
    assert not left
    assert not later
    assert "cordoned" in restored[0]


def test_a_fleet_is_looked_through_page_by_page() -> None:
    fleet = [node(f"n{number:03}") for number in range(450)]
    cluster = foresee(Cluster(node("target"), *fleet, node("z", cordoned=True, why=MARKER), log=CLEAN))
    _, left = settle(cluster)
    looks = [path for method, path in cluster.calls if path.startswith("/api/v1/nodes?")]
    assert all("limit=" in path for path in looks)
    assert left[0].startswith("z cordoned")


def test_recovery_calls_the_run_off_before_it_lists_injectors() -> None:
    cluster = Cluster(node("target"), log=CLEAN)
    cluster.data = {undo.GO: "{}", "run": "{}"}
    assert undo.recover(cluster, "chaos-gpu", "r1", "recover") == ([], [])
    methods = [method for method, _ in cluster.calls]
    assert methods[0] == "PATCH"
    assert undo.GO not in cluster.data
    assert cluster.state == "closed"


@pytest.mark.parametrize("answer", [[], None, "text", {"items": [{}]}, {"items": None}, {"metadata": 3}])
def test_an_answer_of_an_unexpected_shape_ends_no_more_than_its_own_step(answer: Any) -> None:
    cluster = foresee(Cluster(node("target"), log=CLEAN))

    def odd(method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Any]:
        return (200, answer) if path.startswith("/api/v1/nodes?") else cluster(method, path, body, content_type)

    restored, left = undo.settle(odd, "chaos-gpu", "r1", pause=lambda _: None)
    assert restored or left


class Dying(Cluster):
    """A cluster whose pods go, one step with each list, once they were deleted."""

    def __init__(self, *pods: tuple[Json, list[Json]]) -> None:
        super().__init__(node("target"), log={"event": "failed", "reason": "field 84 of GPU 3"})
        self.pods = {pod["metadata"]["name"]: (pod, states) for pod, states in pods}
        self.deleted: list[str] = []
        self.selectors: list[str] = []

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Json]:
        where, _, query = path.partition("?")
        if method == "GET" and where.endswith("/pods"):
            self.selectors.append(dict(parse_qsl(query))["labelSelector"])
            return 200, {"items": [self._step(name) for name in list(self.pods)]}
        if method == "DELETE" and "/pods/" in where:
            self.deleted.append(where.rpartition("/")[2])
            return 200, {}
        return super().__call__(method, path, body, content_type)

    def _step(self, name: str) -> Json:
        pod, states = self.pods[name]
        if name in self.deleted and len(states) == 1:
            del self.pods[name]
        state = states.pop(0) if name in self.deleted and len(states) > 1 else states[0]
        return {**pod, "status": {"containerStatuses": [{"state": state}]}}


def pod(name: str, role: str = "injector") -> Json:
    labels = {"chaos-gpu/role": role, "chaos-gpu/fault": "bad"}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}}


RUNNING: Json = {"running": {}}


def ended(code: int) -> Json:
    return {"terminated": {"exitCode": code}}


@pytest.mark.parametrize("states", [[ended(4)], [RUNNING, ended(4)]])
def test_an_injector_that_could_not_undo_its_fault_is_not_called_ended(states: list[Json]) -> None:
    cluster = Dying((pod("injector"), states))
    restored, left = undo.undo(cluster, "chaos-gpu", "r1", "bad")
    assert cluster.deleted == ["injector"]
    assert not restored
    assert "injector pod injector could not undo its fault (exit 4): field 84 of GPU 3" in left[0]
    assert undo.undo(cluster, "chaos-gpu", "r1")[1] == left, "its pod is gone, what it left is not"
    assert undo.recover(cluster, "chaos-gpu", "r1", "reverter")[1] == left
    assert cluster.state == "stuck"
    assert undo.recover(cluster, "chaos-gpu", "r1", "recover")[1] == []
    assert cluster.state == "closed"


def test_it_is_deleted_although_the_ledger_cannot_be_written() -> None:
    cluster = Dying((pod("injector"), [ended(4)]))

    def no_ledger(method: str, path: str, *more: Any) -> tuple[int, Json]:
        return (404, {}) if "/configmaps/" in path and method == "PATCH" else cluster(method, path, *more)

    left = undo.end_injectors(no_ledger, "chaos-gpu", "r1")[1]
    assert "could not undo" in left[0]
    assert cluster.deleted == ["injector"]


@pytest.mark.parametrize("code", [0, 3, 143])
def test_an_injector_that_ends_otherwise_has_ended(code: int) -> None:
    cluster = Dying((pod("injector"), [RUNNING, ended(code)]))
    assert undo.undo(cluster, "chaos-gpu", "r1") == (["injector pod injector ended"], [])


class Vanishing(Dying):
    """A cluster whose pods are gone before they are looked at again; what is asked of the past, it tells as told."""

    def __init__(self, gone: Json, *answers: tuple[int, Json]) -> None:
        super().__init__((gone, [RUNNING]))
        self.answers = list(answers)
        self.watched: list[Json] = []

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Json]:
        where, _, query = path.partition("?")
        if method == WATCH:
            self.watched.append(dict(parse_qsl(query)))
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if self.deleted and where.endswith("/log"):
            return 404, {"message": "gone"}
        status, found = super().__call__(method, path, body, content_type)
        self.pods = {} if self.deleted else self.pods
        return status, {"metadata": {"resourceVersion": "7"}, **found} if where.endswith("/pods") else found


def deleted(gone: Json, state: Json) -> Json:
    return {"type": "DELETED", "object": {**gone, "status": {"containerStatuses": [{"state": state}]}}}


GONE = pod("injector")
LAST = deleted(GONE, ended(4))


@pytest.mark.parametrize(
    "answers",
    [
        [(200, LAST)],
        [(200, {"type": "MODIFIED", "object": GONE}), (200, deleted(pod("other"), ended(0))), (200, LAST)],
        [(200, {"text": ""}), (200, LAST)],  # the server's cache is a little behind
    ],
)
def test_an_exit_code_that_no_look_came_in_time_for_is_learnt_all_the_same(answers: list[tuple[int, Json]]) -> None:
    cluster = Vanishing(GONE, *answers)
    restored, left = undo.undo(cluster, "chaos-gpu", "r1")
    assert (restored, len(left)) == ([], 1)
    assert "injector pod injector could not undo its fault (exit 4)" in left[0]
    assert {each["resourceVersion"] for each in cluster.watched} == {"7"}, "of the list in which it was"
    assert "could not undo" in cluster.data["left.bad"]


@pytest.mark.parametrize("state", [ended(0), RUNNING, {}], ids=["undid it", "ended by force", "never started"])
def test_one_that_was_gone_at_once_and_has_no_such_exit_code_has_ended(state: Json) -> None:
    assert undo.undo(Vanishing(GONE, (200, deleted(GONE, state))), "chaos-gpu", "r1") == (
        ["injector pod injector ended"],
        [],
    )


@pytest.mark.parametrize(
    "answer",
    [(410, {"message": "too old"}), (200, {"type": "ERROR", "object": {"code": 410}})],
    ids=["status", "event"],
)
def test_what_the_server_has_forgotten_is_not_called_undone(answer: tuple[int, Json]) -> None:
    restored, left = undo.undo(Vanishing(GONE, answer), "chaos-gpu", "r1")
    assert not restored
    assert left == ["injector pod injector is gone, and nothing says whether it undid its fault"]
    assert undo.undo(Vanishing(pod("r", "reader"), answer), "chaos-gpu", "r1") == (["reader pod r ended"], [])


class Training(Cluster):
    """A cluster with one training, whose pod takes all the time that it is given."""

    def __init__(self, ends_in_s: float) -> None:
        super().__init__(node("target"))
        path = "/apis/batch/v1/namespaces/chaos-gpu/jobs/r1-bad-sub"
        job = {"what": "Job r1-bad-sub", "kind": "delete", "path": path, "uid": "u", "state": "planned"}
        self.data["change.bad.2"] = json.dumps(job)
        self.ends_in_s = ends_in_s
        self.pod = pod("sub", "training")
        self.pods: list[Json] = [self.pod]
        self.selectors: list[str] = []

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Json]:
        where, _, query = path.partition("?")
        if method == "DELETE" and "/jobs/" in where:
            self.pod["metadata"]["deletionGracePeriodSeconds"] = 3600  # its own
            return 200, {}
        if method == "GET" and where.endswith("/pods"):
            self.selectors.append(dict(parse_qsl(query))["labelSelector"])
            return 200, {"items": self.pods if "training" in self.selectors[-1] else []}
        if method == "DELETE" and where.endswith("/pods/sub"):
            assert body["preconditions"] == {"uid": "uid-sub"}
            self.pod["metadata"]["deletionGracePeriodSeconds"] = body["gracePeriodSeconds"]
            self.pods = [] if body["gracePeriodSeconds"] >= self.ends_in_s else self.pods
            return 200, {}
        return super().__call__(method, path, body, content_type)


def test_a_training_is_not_undone_before_its_pods_are_gone() -> None:
    cluster = Training(ends_in_s=0.5)
    restored, left = undo.recover(cluster, "chaos-gpu", "r1", "reverter")
    assert (restored, left) == (["Job r1-bad-sub: undone", "training pod sub ended"], [])
    first, *_, last = cluster.selectors
    assert first == "chaos-gpu/run=r1,chaos-gpu/role in (training)"
    assert last == "chaos-gpu/run=r1,chaos-gpu/role in (injector,reader)", "it removes what they have saved"
    assert cluster.state == "closed"


def test_a_training_that_does_not_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos_gpu.payloads.endings.GONE_S", 0.3)
    cluster = Training(ends_in_s=60.0)
    for by in ("reverter", "recover"):  # its Job is undone by then, its pod is still looked for
        left = undo.recover(cluster, "chaos-gpu", "r1", by)[1]
        assert left == ["training pod sub does not end: is its node lost?"]
        assert cluster.state == "stuck"


def test_readers_of_a_run_are_ended_with_it_and_those_of_the_kernel_log_are_not() -> None:
    cluster = Dying((pod("r", "reader"), [RUNNING, ended(4)]))
    assert undo.undo(cluster, "chaos-gpu", "r1") == (["reader pod r ended"], [])
    assert cluster.deleted == ["r"]
    assert set(cluster.selectors) == {"chaos-gpu/run=r1,chaos-gpu/role in (injector,reader)"}
