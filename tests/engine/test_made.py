"""Objects that a run makes are in its ledger before they are made, and are undone by what is known of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from chaos_gpu.errors import ApiUnavailable, Conflict
from chaos_gpu.faults import engine
from chaos_gpu.payloads.undo import undo_change

Json = dict[str, Any]
JOB: Json = {"kind": "Job", "metadata": {"name": "r1-kill-sub", "namespace": "chaos-gpu"}}
PATH = "/apis/batch/v1/namespaces/chaos-gpu/jobs/r1-kill-sub"


class Cluster:
    """An API server, and the ledger's records as they stood when it was asked to make the object."""

    def __init__(self, answer: Json | Exception) -> None:
        self.answer = answer
        self.records: Json = {}
        self.ahead: Json = {}

    def get(self, path: str) -> Json:
        return {"metadata": {"name": "reverter", "uid": "u-0"}}

    def find(self, path: str) -> None:
        """Say that it is not there."""

    def create(self, collection: str, body: Json) -> Json:
        self.ahead = dict(self.records)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {**body, **self.answer}

    def write(self, records: Json) -> None:
        self.records.update(records)


def make(cluster: Cluster) -> None:
    run: Any = SimpleNamespace(id="r1", api=cluster, ledger=SimpleNamespace(write=cluster.write, token="t"))
    plan: Any = SimpleNamespace(fault="kill", objects=(JOB,), changes=())
    engine._make(run, plan)


def test_the_undo_is_written_ahead() -> None:
    cluster = Cluster({"metadata": {"name": "r1-kill-sub", "uid": "u-1"}})
    make(cluster)
    (ahead,) = cluster.ahead.values()
    assert (ahead["kind"], ahead["path"], ahead["uid"], ahead["state"]) == ("delete", PATH, "", "planned")
    (after,) = cluster.records.values()
    assert after == {**ahead, "uid": "u-1"}


def test_an_answer_that_was_lost_leaves_its_undo() -> None:
    cluster = Cluster(ApiUnavailable("no answer"))
    with pytest.raises(ApiUnavailable):
        make(cluster)
    assert [record["state"] for record in cluster.records.values()] == ["planned"]


def test_what_somebody_else_has_made_is_not_undone() -> None:
    cluster = Cluster(Conflict("exists", 409))
    with pytest.raises(Conflict):
        make(cluster)
    assert [record["state"] for record in cluster.records.values()] == ["foreign"]


@pytest.mark.parametrize(("uid", "preconditions"), [("u-1", {"uid": "u-1"}), ("", None)])
@pytest.mark.parametrize(("status", "state"), [(200, "undone"), (404, "gone"), (409, "foreign")])
def test_it_is_deleted_by_its_uid_or_else_by_its_name(
    uid: str, preconditions: Json | None, status: int, state: str
) -> None:
    asked: list[tuple[Any, ...]] = []

    def call(*arguments: Any) -> tuple[int, Json]:
        asked.append(arguments)
        return (status if arguments[0] == "DELETE" else 200), {}

    record = {"what": "Job r1-kill-sub", "kind": "delete", "path": PATH, "uid": uid, "state": "planned"}
    undo_change(call, "chaos-gpu", "r1", "change.kill.2", record)
    method, path, options = asked[0]
    assert (method, path) == ("DELETE", PATH)
    assert options.get("preconditions") == preconditions
    assert options["propagationPolicy"] == "Background"
    assert f'"state": "{state}"' in str(asked[1][2]["data"]["change.kill.2"])
