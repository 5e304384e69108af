"""Objects as rows: what `kubectl get` prints. Pure, but for the ages."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from chaos_gpu.lab.apiserver.clock import parse_rfc3339, utc_now
from chaos_gpu.lab.apiserver.conversion import served
from chaos_gpu.lab.apiserver.jsonpath import find
from chaos_gpu.lab.apiserver.resources import EVENTS, NAMESPACES, NODES, PDBS, PODS, Key, Resource
from chaos_gpu.lab.apiserver.status import Json

Row = Callable[[Json], list[Any]]
_NONE = "<none>"


def age(timestamp: Any, now: datetime | None = None) -> str:
    """Return how long ago a time was, in kubectl's short form: `45s`, `3m10s`, `5h`, `12d`."""
    at = parse_rfc3339(timestamp) if isinstance(timestamp, str) else None
    if at is None:
        return "<unknown>"
    seconds = max(0, int(((now or utc_now()) - at).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 600 and seconds % 60:
        return f"{seconds // 60}m{seconds % 60}s"
    for limit, unit, size in ((10800, "m", 60), (172800, "h", 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def table(
    resource: Resource, objects: Iterable[Json], meta: Json, *, include: str = "Metadata", headers: bool = True
) -> Json:
    """Return objects, as stored, as a Table.

    Args:
        resource: whose columns to show.
        objects: the rows.
        meta: the list's metadata.
        include: what each row carries: None, Metadata or Object.
        headers: whether to define the columns (a watch does so once).
    """
    columns, row = _layout(resource)
    rows = [
        {"cells": row(obj)} | ({} if include == "None" else {"object": _carried(resource, obj, include)})
        for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": meta,
        "columnDefinitions": columns if headers else None,
        "rows": rows,
    }


def partial(obj: Json) -> Json:
    """Return an object's metadata alone."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _carried(resource: Resource, obj: Json, include: str) -> Json:
    return served(resource, obj) if include == "Object" else partial(obj)


def _column(name: str, kind: str = "string", priority: int = 0, form: str = "") -> Json:
    return {"name": name, "type": kind, "format": form, "description": name, "priority": priority}


def _columns(names: str, wide: str = "") -> list[Json]:
    plain = [_column(n.replace("_", " "), form="name" if n == "Name" else "") for n in names.split()]
    return plain + [_column(n.replace("_", " "), priority=1) for n in wide.split()]


def _layout(resource: Resource) -> tuple[list[Json], Row]:
    if resource.columns is None:
        return _LAYOUTS.get(resource.key, (_columns("Name Age"), _plain))
    shown = resource.columns
    dates = {"date"}
    columns = [_column(c["name"], "string" if c["type"] in dates else c["type"], c.get("priority", 0)) for c in shown]
    if not shown:
        return _columns("Name Age"), _plain

    def row(obj: Json) -> list[Any]:
        values = [find(obj, c["jsonPath"]) for c in shown]
        cells = [age(v) if c["type"] == "date" else v for c, v in zip(shown, values, strict=True)]
        return [obj["metadata"]["name"], *cells]

    return [*_columns("Name"), *columns], row


def _plain(obj: Json) -> list[Any]:
    return [obj["metadata"]["name"], _age_of(obj)]


def _age_of(obj: Json) -> str:
    return age(obj["metadata"].get("creationTimestamp"))


def _part(obj: Json, name: str) -> Json:
    value = obj.get(name)
    return value if isinstance(value, dict) else {}


def _pod(pod: Json) -> list[Any]:
    spec, status = _part(pod, "spec"), _part(pod, "status")
    containers: Sequence[Json] = status.get("containerStatuses") or ()
    ready = f"{sum(1 for c in containers if c.get('ready'))}/{len(spec.get('containers') or ())}"
    restarts = sum(_number(c.get("restartCount")) for c in containers)
    where = [status.get("podIP") or _NONE, spec.get("nodeName") or _NONE, status.get("nominatedNodeName") or _NONE]
    return [pod["metadata"]["name"], ready, _pod_state(pod), str(restarts), _age_of(pod), *where, _NONE]


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _pod_state(pod: Json) -> str:
    status = _part(pod, "status")
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    state = status.get("reason") or status.get("phase") or "Unknown"
    for container in status.get("containerStatuses") or ():
        for kind in ("waiting", "terminated"):
            state = _part(_part(container, "state"), kind).get("reason") or state
    return str(state)


def _node(node: Json) -> list[Any]:
    status, meta = _part(node, "status"), node["metadata"]
    conditions = status.get("conditions") or ()
    ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    state = "Ready" if ready else "NotReady"
    if _part(node, "spec").get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(k.removeprefix(prefix) for k in meta.get("labels") or () if k.startswith(prefix)))
    info = _part(status, "nodeInfo")
    address = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    return [
        meta["name"],
        state,
        roles or _NONE,
        _age_of(node),
        info.get("kubeletVersion", ""),
        address.get("InternalIP") or _NONE,
        address.get("ExternalIP") or _NONE,
        info.get("osImage", ""),
        info.get("kernelVersion", ""),
        info.get("containerRuntimeVersion", ""),
    ]


def _event(event: Json) -> list[Any]:
    about = _part(event, "involvedObject")
    seen = _part(event, "series").get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    subject = f"{about.get('kind', '').lower()}/{about.get('name', '')}"
    when = age(seen or event["metadata"].get("creationTimestamp"))
    return [when, event.get("type", ""), event.get("reason", ""), subject, event.get("message", "")]


def _scaled(obj: Json) -> list[Any]:
    spec, status = _part(obj, "spec"), _part(obj, "status")
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 1)}"
    counts = [status.get("updatedReplicas", 0), status.get("availableReplicas", 0)]
    return [obj["metadata"]["name"], ready, *counts, _age_of(obj)]


def _replica_set(obj: Json) -> list[Any]:
    status = _part(obj, "status")
    counts = [_part(obj, "spec").get("replicas", 1), status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [obj["metadata"]["name"], *counts, _age_of(obj)]


def _daemon_set(obj: Json) -> list[Any]:
    status = _part(obj, "status")
    fields = ("desired", "current")
    counts = [status.get(f"{f}NumberScheduled", 0) for f in fields]
    counts += [status.get(f, 0) for f in ("numberReady", "updatedNumberScheduled", "numberAvailable")]
    selector = _part(_part(_part(_part(obj, "spec"), "template"), "spec"), "nodeSelector")
    told = ",".join(f"{k}={v}" for k, v in selector.items()) or _NONE
    return [obj["metadata"]["name"], *counts, told, _age_of(obj)]


def _job(obj: Json) -> list[Any]:
    spec, status = _part(obj, "spec"), _part(obj, "status")
    done = {c.get("type") for c in status.get("conditions") or () if c.get("status") == "True"}
    state = next((s for s in ("Complete", "Failed", "Suspended") if s in done), "Running")
    completions = f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}"
    return [obj["metadata"]["name"], state, completions, _age_of(obj)]


def _namespace(obj: Json) -> list[Any]:
    return [obj["metadata"]["name"], _part(obj, "status").get("phase", "Active"), _age_of(obj)]


def _lease(obj: Json) -> list[Any]:
    return [obj["metadata"]["name"], _part(obj, "spec").get("holderIdentity", ""), _age_of(obj)]


def _data(obj: Json) -> list[Any]:
    return [obj["metadata"]["name"], len(_part(obj, "data")) + len(_part(obj, "binaryData")), _age_of(obj)]


def _secret(obj: Json) -> list[Any]:
    return [obj["metadata"]["name"], obj.get("type", ""), len(_part(obj, "data")), _age_of(obj)]


def _budget(obj: Json) -> list[Any]:
    spec = _part(obj, "spec")
    limits = [str(spec.get(f, "N/A")) for f in ("minAvailable", "maxUnavailable")]
    return [obj["metadata"]["name"], *limits, _part(obj, "status").get("disruptionsAllowed", 0), _age_of(obj)]


_LAYOUTS: dict[Key, tuple[list[Json], Row]] = {
    PODS: (_columns("Name Ready Status Restarts Age", "IP Node Nominated_Node Readiness_Gates"), _pod),
    NODES: (
        _columns("Name Status Roles Age Version", "Internal-IP External-IP OS-Image Kernel-Version Container-Runtime"),
        _node,
    ),
    EVENTS: (_columns("Last_Seen Type Reason Object Message"), _event),
    NAMESPACES: (_columns("Name Status Age"), _namespace),
    PDBS: (_columns("Name Min_Available Max_Unavailable Allowed_Disruptions Age"), _budget),
    ("", "configmaps"): (_columns("Name Data Age"), _data),
    ("", "secrets"): (_columns("Name Type Data Age"), _secret),
    ("apps", "deployments"): (_columns("Name Ready Up-to-date Available Age"), _scaled),
    ("apps", "replicasets"): (_columns("Name Desired Current Ready Age"), _replica_set),
    ("apps", "daemonsets"): (
        _columns("Name Desired Current Ready Up-to-date Available Node_Selector Age"),
        _daemon_set,
    ),
    ("batch", "jobs"): (_columns("Name Status Completions Age"), _job),
    ("coordination.k8s.io", "leases"): (_columns("Name Holder Age"), _lease),
}
