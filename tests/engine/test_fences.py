"""No run begins, and none goes on, without somebody in the cluster who will undo it."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.payloads import undo
from tests.engine.site import Ended, Json, Site, experiment, inject, over
from tests.engine.traces import look
from tests.lab.conftest import ApiError
from tests.support.proxy import Proxy, answer, delay, request

LEASES = "apis/coordination.k8s.io/v1/namespaces/chaos-gpu/leases"
RUN = "fenced"


@pytest.fixture
def proxy(site: Site, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(site.lab.kubeconfig, tmp_path / "kubeconfig") as proxy:
        yield proxy


def run(site: Site, proxy: Proxy, made: Json) -> Ended:
    return site.run(made, KUBECONFIG=str(proxy.kubeconfig), CHAOS_GPU_RUN=RUN)


def check_nothing_happened(site: Site, ended: Ended) -> None:
    markers = [plan["facts"]["marker"] for plan in ended.guard["plans"]]
    kernel_logs = [path.read_text() for path in (site.lab.root / "nodes").glob("*/kmsg")]
    assert not any(marker in text for marker in markers for text in kernel_logs)
    assert ended.guard["recovery"]["open"] == []
    left = look(site, RUN, processes=True)
    assert (left.changes, left.reactions, [each for each in left.helpers if "lease" in each]) == ([], [], [])


def test_a_reverter_that_waited_in_vain_lets_the_run_begin_no_more(site: Site, proxy: Proxy) -> None:
    proxy.on(request("POST", "/leases$"), delay(9.5))  # it waits for twice the Lease of 4 s
    ended = run(site, proxy, experiment())
    assert ended.result.exit_code == 4
    check_nothing_happened(site, ended)
    assert site.ledger(RUN)["recovery"]["by"] == "reverter"


def test_after_a_fault_that_could_not_be_secured_no_other_is_injected(site: Site, proxy: Proxy) -> None:
    proxy.on(request("POST", "/configmaps$"), answer(403))
    ended = run(site, proxy, experiment(inject(), inject("more"), *over(), *over("more")))
    assert [each["status"] for each in ended.journal["run"]] == ["failed"] * 6
    assert "could not be secured" in ended.text
    check_nothing_happened(site, ended)


def test_a_lease_that_a_dead_run_left_is_taken_away(site: Site, proxy: Proxy) -> None:
    spec = {"holderIdentity": "ghost", "leaseDurationSeconds": 1}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "chaos-gpu-run"}}
    site.lab.request("POST", LEASES, {**body, "spec": spec})
    ended = run(site, proxy, experiment())
    assert ended.guard["refused"] is None
    assert ended.journal["deviated"] is False
    with pytest.raises(ApiError, match="404"):
        site.lab.get(f"{LEASES}/chaos-gpu-run")


# --- undo, on its own ------------------------------------------------------------------------------------------------

MARK = {"what": "mark", "kind": "patch", "path": "/api/v1/nodes/n", "uid": "u", "undo": [], "state": "planned"}
Answers = dict[tuple[str, str], list[tuple[int, Json]]]


def server(ledger: dict[str, str], answers: Answers) -> tuple[Callable[..., Any], list[tuple[str, str, Any]]]:
    """Make a `call` that knows a ledger and gives the answers set for a method and path, one after the other."""
    asked: list[tuple[str, str, Any]] = []

    def call(method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Json]:
        asked.append((method, path.partition("?")[0], body))
        if answers.get((method, path)):
            return answers[method, path].pop(0)
        if "configmaps" in path and method == "GET":
            return 200, {"metadata": {"labels": {"chaos-gpu/ledger": "open"}}, "data": ledger}
        return 200, {"items": []}

    return call, asked


def states(asked: list[tuple[str, str, Any]]) -> list[str]:
    """Return the states that were written to the ledger: of records, and its own."""
    written = [str(body) for method, path, body in asked if method == "PATCH" and "configmaps" in path]
    return [found for text in written for found in re.findall(r"(?:\"state\"|ledger'): [\"'](\w+)", text)]


def test_a_patch_that_met_another_change_is_sent_again() -> None:
    call, asked = server({"change.x.1": json.dumps(MARK)}, {("PATCH", "/api/v1/nodes/n"): [(409, {}), (409, {})]})
    assert undo.undo(call, "ns", "r") == (["mark: undone"], [])
    assert states(asked) == ["undone"]


def test_what_is_not_ours_is_left_and_tried_once_more_only_when_asked() -> None:
    foreign = {"change.x.1": json.dumps({**MARK, "state": "foreign"})}
    call, asked = server(foreign, {})
    assert undo.undo(call, "ns", "r") == ([], [])
    assert undo.undo(call, "ns", "r", again=True) == (["mark: undone"], [])
    assert states(asked) == ["undone"]


def test_a_record_that_cannot_be_read_keeps_nothing_else_from_being_undone() -> None:
    call, asked = server({"change.x.1": json.dumps(MARK), "change.x.2": "{half a rec"}, {})
    restored, left = undo.recover(call, "ns", "r", "test")
    assert "mark: undone" in restored
    assert len(left) == 1
    assert states(asked) == ["undone", "stuck"]


def test_a_run_is_called_off_before_its_injectors_are_looked_for() -> None:
    call, asked = server({}, {})
    undo.recover(call, "ns", "r", "test")
    called_off = next(n for n, (method, _, body) in enumerate(asked) if body == {"data": {undo.GO: None}})
    assert called_off < next(n for n, (_, path, _body) in enumerate(asked) if path.endswith("/pods"))
