"""metrics.k8s.io for `kubectl top`: plausible, constant figures for the nodes and running pods that there are."""

from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.clock import rfc3339
from chaos_gpu.lab.apiserver.reading import predicate
from chaos_gpu.lab.apiserver.resources import NODES, PODS
from chaos_gpu.lab.apiserver.status import Json, not_found
from chaos_gpu.lab.apiserver.store import Store

GROUP = "metrics.k8s.io"
_NODE_USAGE = {"cpu": "2500m", "memory": "48Gi"}
_CONTAINER_USAGE = {"cpu": "100m", "memory": "256Mi"}


def read_metrics(bound: Bound, store: Store) -> Json:
    """Return the usage of one node or pod, or a list of them.

    Raises:
        StatusError: 400, a selector that cannot be read; 404, no such node or running pod.
    """
    key = NODES if bound.resource.plural == "nodes" else PODS
    found = [s.data for s in store.select(key, bound.namespace, predicate(bound))]
    items = [_usage(bound, obj) for obj in found if key == NODES or _runs(obj)]
    if not bound.name:
        meta = {"resourceVersion": str(store.revision)}
        kind = f"{bound.resource.kind}List"
        return {"kind": kind, "apiVersion": bound.resource.api_version, "metadata": meta, "items": items}
    if not items:
        raise not_found(bound.resource.plural, GROUP, bound.name)
    return items[0]


def _runs(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def _usage(bound: Bound, obj: Json) -> Json:
    meta = {k: obj["metadata"][k] for k in ("name", "namespace", "labels") if k in obj["metadata"]}
    about = {"kind": bound.resource.kind, "apiVersion": bound.resource.api_version, "metadata": meta}
    usage: Json = {"usage": _NODE_USAGE}
    if bound.resource.plural == "pods":
        containers = (obj.get("spec") or {}).get("containers") or ()
        usage = {"containers": [{"name": c["name"], "usage": _CONTAINER_USAGE} for c in containers]}
    return {**about, "timestamp": rfc3339(), "window": "15s", **usage}
