"""An API server that does not answer while arming is refused; one that only stumbles is not."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engine.site import Ended, Site, experiment, unchanged
from tests.engine.test_refusals import check_refused
from tests.support.proxy import Hook, Proxy, answer, anything, delay, drop, hang, request

DEAD: dict[str, tuple[Hook, str]] = {
    "500": (answer(500), "HTTP 500"),
    "429": (answer(429), "HTTP 429"),
    "503": (answer(503), "HTTP 503"),
    "silent": (hang, "[Tt]imed? ?out"),
    "slow": (delay(11), "[Tt]imed? ?out"),
    "broken": (drop, "ProtocolError|Connection"),
}


@pytest.fixture(scope="module")
def dead(open_lab: Site, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """One run against each dead API server, all at once: each waits for the whole deadline of 30 s."""
    with ExitStack() as proxies, unchanged(open_lab):
        runs = {}
        for name, (hook, _) in DEAD.items():
            file = tmp_path_factory.mktemp(f"dead-{name}") / "kubeconfig"
            proxy = proxies.enter_context(Proxy(open_lab.lab.kubeconfig, file))
            proxy.on(anything, hook)
            runs[name] = open_lab.start(experiment(), KUBECONFIG=str(file))
        for ended in runs.values():
            ended.process.wait()
    return runs


@pytest.mark.parametrize("name", DEAD)
def test_a_dead_api_server_is_refused(dead: dict[str, Ended], name: str) -> None:
    check_refused(dead[name], DEAD[name][1])
    assert "gave up after 30 s" in dead[name].guard["refused"]["reason"]


def test_no_server_at_all(open_lab: Site, dead: dict[str, Ended], tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(open_lab.lab.kubeconfig.read_text().replace(open_lab.lab.url.split("/")[2], "127.0.0.1:9"))
    ended = open_lab.run(experiment(), KUBECONFIG=str(file))
    check_refused(ended, "Connection refused|NewConnectionError")


@pytest.mark.parametrize("hook", [answer(429), answer(500), drop, delay(1)], ids=["429", "500", "broken", "slow"])
def test_what_passes_is_ridden_out(site: Site, hook: Hook, tmp_path: Path) -> None:
    """The first try of each kind of request fails, or is slow; the run goes on all the same."""
    with Proxy(site.lab.kubeconfig, tmp_path / "kubeconfig") as proxy:
        for method in ("GET", "POST", "PATCH", "DELETE"):
            proxy.on(request(method, "", nth=1, stream=False), hook)
        proxy.on(request("GET", "/apis/apps/v1/daemonsets", nth=1), hook)
        proxy.on(request("POST", "/leases", nth=1), hook)
        proxy.on(request("POST", "/configmaps", nth=1), hook)
        ended = site.run(experiment(), KUBECONFIG=str(proxy.kubeconfig))
    assert ended.guard["refused"] is None, ended.text
    assert ended.guard["recovery"]["open"] == []
    assert [each["status"] for each in ended.journal["run"]] == ["succeeded"] * 3, ended.text
