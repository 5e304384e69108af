"""How an injector's end is learnt from a real API server, however late one looks."""

from typing import Any

import pytest

from chaos_gpu.cluster.client import connect
from chaos_gpu.faults.ledger import caller
from chaos_gpu.payloads import undo
from chaos_gpu.payloads.endings import WATCH
from tests.engine.site import Json, Site

PODS = "api/v1/namespaces/chaos-gpu/pods"
DIES = "trap 'exit 4' TERM; echo '{\"event\": \"started\"}'; while :; do sleep 0.05; done"


def injector(run: str, fault: str) -> Json:
    labels = {"chaos-gpu/run": run, "chaos-gpu/role": "injector", "chaos-gpu/fault": fault}
    container = {"name": "payload", "image": "any", "command": ["sh", "-c", DIES]}
    spec = {"restartPolicy": "Never", "nodeName": "gpu-node-1", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{run}-{fault}", "labels": labels}, "spec": spec}


def test_an_exit_code_is_learnt_after_the_pod_is_gone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(site.lab.kubeconfig))
    site.lab.request("POST", PODS, injector("late", "bad"))
    site.lab.wait(PODS, "late-bad", lambda found: found["status"].get("phase") == "Running")
    call = caller(connect("lab"))
    watched: list[str] = []

    def late(method: str, path: str, *more: Any) -> Any:
        answer = call(method, path, *more)
        if method == "DELETE":
            site.lab.wait_gone(PODS, "late-bad")  # only then is it looked at again
        if method == WATCH:
            watched.append(path)
        return answer

    restored, left = undo.end_injectors(late, "chaos-gpu", "late")
    assert (restored, bool(watched)) == ([], True)
    assert "injector pod late-bad could not undo its fault (exit 4)" in left[0]
