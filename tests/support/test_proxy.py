"""The proxy itself: what tests put on cue really happens to a real client of a real lab."""

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos_gpu.cluster.client import Api, Deadlines, connect
from chaos_gpu.cluster.exec import Exec
from chaos_gpu.errors import ApiUnavailable, Conflict, Forbidden, Gone
from tests.lab.conftest import Lab, running_lab
from tests.support.proxy import AFTER, Proxy, answer, at, cut, delay, drop, hang, request, send_signal

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("lab")) as running:
        yield running


@pytest.fixture
def proxy(lab: Lab, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(lab.kubeconfig, tmp_path / "kubeconfig") as proxy:
        yield proxy


@pytest.fixture
def api(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(proxy.kubeconfig))
    return connect("lab", Deadlines(connect_s=1, read_s=1, total_s=0.5))


def configmap(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def test_passes_requests_and_counts_them(api: Api, proxy: Proxy) -> None:
    assert len(list(api.items("/api/v1/nodes", labels="nvidia.com/gpu.present=true"))) == 4
    api.get("/api/v1/nodes/gpu-node-0")
    api.get("/api/v1/nodes/gpu-node-0")
    seen = [(each.ordinal, each.method, each.path, each.nth, each.status) for each in proxy.exchanges]
    assert seen == [
        (1, "GET", "/api/v1/nodes", 1, 200),
        (2, "GET", "/api/v1/nodes/gpu-node-0", 1, 200),
        (3, "GET", "/api/v1/nodes/gpu-node-0", 2, 200),
    ]
    assert proxy.exchanges[0].query["labelSelector"] == "nvidia.com/gpu.present=true"


def test_passes_a_watch_on_as_it_comes(api: Api, proxy: Proxy) -> None:
    version = api.get(CONFIGMAPS)["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": 5}
    events = api.watch(CONFIGMAPS, query, read_s=5)
    writer = threading.Thread(target=api.create, args=(CONFIGMAPS, configmap("watched")))
    writer.start()
    assert next(events)["object"]["metadata"]["name"] == "watched"
    writer.join()


def test_passes_exec_through(api: Api, lab: Lab) -> None:
    lab.run_pod("echo", "sleep", "600")
    lab.wait_phase("echo", "Running")
    with Exec(api, "default", "echo", ["cat"]) as session:
        session.send_line("to and fro")
        assert session.read_line() == "to and fro"


@pytest.mark.parametrize(("status", "error"), [(403, Forbidden), (409, Conflict), (410, Gone), (500, ApiUnavailable)])
def test_answers_instead_of_the_server(api: Api, proxy: Proxy, status: int, error: type[Exception]) -> None:
    proxy.on(request("GET", "/nodes$"), answer(status))
    with pytest.raises(error):
        api.get("/api/v1/nodes")
    assert proxy.exchanges[0].status == 0, "the server was not asked"


def test_drops_the_answer_to_what_the_server_did(api: Api, proxy: Proxy) -> None:
    proxy.on(request("POST", "/configmaps$", nth=1), drop, stage=AFTER)
    with pytest.raises(Conflict):  # the client's second try meets what its first has made
        api.create(CONFIGMAPS, configmap("dropped"))
    assert [each.status for each in proxy.exchanges] == [201, 409]


def test_cuts_a_stream_in_the_middle(api: Api, proxy: Proxy) -> None:
    proxy.on(request("GET", stream=True), cut(10), stage=AFTER)
    query = {"watch": "true", "timeoutSeconds": 5}
    with pytest.raises((ApiUnavailable, ValueError)):  # a broken connection, or half a line of JSON
        list(api.watch("/api/v1/nodes", query, read_s=5))


def test_hangs_and_delays(api: Api, proxy: Proxy) -> None:
    proxy.on(at(1), hang)
    with pytest.raises(ApiUnavailable):
        api.get("/api/v1/nodes")
    proxy.clear()
    proxy.on(request("GET", "/nodes/"), delay(0.1))
    before = time.monotonic()
    api.get("/api/v1/nodes/gpu-node-1")
    assert time.monotonic() - before >= 0.1


def test_cuts_the_cluster_off_and_restores_it(api: Api, proxy: Proxy) -> None:
    api.get("/api/v1/nodes")
    proxy.cut_off()
    with pytest.raises(ApiUnavailable):
        api.get("/api/v1/nodes")
    proxy.restore()
    assert api.get("/api/v1/nodes")["items"]


def test_kills_a_process_at_its_request(api: Api, proxy: Proxy) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as victim:
        proxy.on(request("POST"), send_signal(lambda: victim.pid, signal.SIGKILL))
        with pytest.raises(ApiUnavailable):
            api.create(CONFIGMAPS, configmap("never"))
        assert victim.wait(5) == -signal.SIGKILL
    assert all(each.status == 0 for each in proxy.exchanges), "the request of a killed client goes nowhere"
