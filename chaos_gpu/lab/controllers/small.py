"""Three small controllers: ServiceAccounts of namespaces, the taint of cordoned nodes, disruption budgets."""

import math

from chaos_gpu.lab.client import Api, ApiFailure, Informer, Key, key_of
from chaos_gpu.lab.controllers.loop import Loop
from chaos_gpu.lab.controllers.objects import Json, is_finished, is_ready, selects
from chaos_gpu.lab.controllers.placement import UNSCHEDULABLE
from chaos_gpu.lab.times import rfc3339

NODES = "api/v1/nodes"
SERVICE_ACCOUNTS = "api/v1/serviceaccounts"
BUDGETS = "apis/policy/v1/poddisruptionbudgets"


class NamespaceController:
    """Gives every namespace its ServiceAccount `default`."""

    def __init__(self, api: Api, namespaces: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._namespaces = api, namespaces
        self.loop: Loop[str] = Loop(self._reconcile)
        namespaces.on_event(lambda kind, obj: self._on_event(kind, obj))

    def _on_event(self, kind: str, namespace: Json) -> None:
        if kind == "ADDED":
            self.loop.add(namespace["metadata"]["name"])

    async def _reconcile(self, name: str) -> None:
        namespace = self._namespaces.objects.get(("", name))
        if namespace is None or namespace["metadata"].get("deletionTimestamp"):
            return
        account: Json = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        }
        try:
            await self._api.create(SERVICE_ACCOUNTS, account)
        except ApiFailure as failure:
            if failure.code not in (403, 404, 409):  # there already, or the namespace is on its way out
                raise


class CordonTaintController:
    """Keeps the taint `node.kubernetes.io/unschedulable` equal to spec.unschedulable."""

    def __init__(self, api: Api, nodes: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._nodes = api, nodes
        self.loop: Loop[Key] = Loop(self._reconcile)
        nodes.on_event(lambda _kind, obj: self.loop.add(key_of(obj)))

    async def _reconcile(self, key: Key) -> None:
        node = self._nodes.objects.get(key)
        if node is None:
            return
        spec = node.get("spec") or {}
        others = [taint for taint in spec.get("taints") or [] if not _is_cordon(taint)]
        wanted = list(others)
        if spec.get("unschedulable"):
            known = [taint for taint in spec.get("taints") or [] if _is_cordon(taint)]
            wanted += known[:1] or [{**UNSCHEDULABLE, "timeAdded": rfc3339()}]
        if wanted != (spec.get("taints") or []):
            version = node["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted or None}}
            await self._api.patch(NODES, key, patch)


def _is_cordon(taint: Json) -> bool:
    return bool(taint["key"] == UNSCHEDULABLE["key"] and taint["effect"] == UNSCHEDULABLE["effect"])


class DisruptionController:
    """Counts for every budget how many pods may be evicted now."""

    def __init__(self, api: Api, budgets: Informer, pods: Informer) -> None:
        """Start to listen; `loop.run` does the work."""
        self._api, self._budgets, self._pods = api, budgets, pods
        self.loop: Loop[Key] = Loop(self._reconcile)
        budgets.on_event(lambda _kind, obj: self.loop.add(key_of(obj)))
        pods.on_event(self._on_pod)

    def _on_pod(self, _kind: str, pod: Json) -> None:
        for key in self._budgets.objects:
            if key[0] == pod["metadata"]["namespace"]:
                self.loop.add(key)

    async def _reconcile(self, key: Key) -> None:
        budget = self._budgets.objects.get(key)
        if budget is None:
            return
        pods = [
            pod
            for pod in self._pods.objects.values()
            if pod["metadata"]["namespace"] == key[0]
            and selects(budget["spec"].get("selector"), pod["metadata"].get("labels"))
            and not is_finished(pod)
        ]
        status = budget_status(budget, pods)
        known = budget.get("status") or {}
        if any(known.get(name) != value for name, value in status.items()):
            await self._api.patch(BUDGETS, key, {"status": status}, "merge", "status")


def budget_status(budget: Json, pods: list[Json]) -> Json:
    """Return the numbers of a budget's status; the expected count is that of the pods, not of their controllers."""
    spec = budget["spec"]
    expected = len(pods)
    healthy = sum(is_ready(pod) and not pod["metadata"].get("deletionTimestamp") for pod in pods)
    if "maxUnavailable" in spec:
        desired = max(0, expected - _share(spec["maxUnavailable"], expected))
    else:
        desired = _share(spec.get("minAvailable", 1), expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
    }


def _share(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    return math.ceil(int(value.removesuffix("%")) * total / 100)
