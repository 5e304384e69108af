"""Which resources are served: the built-in ones, and those that CustomResourceDefinitions add at run time."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
READ_VERBS = ("get", "list")

Key = tuple[str, str]  # group and plural: where objects of all versions are kept


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource in one version, as served."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)  # field selector → path in the object
    verbs: tuple[str, ...] = ALL_VERBS
    categories: tuple[str, ...] = ()
    singular: str = ""
    stored_as: Key | None = None
    columns: Sequence[Mapping[str, Any]] | None = None  # of a CRD; None means a built-in resource
    schema: Mapping[str, Any] = field(default_factory=dict)  # of a CRD

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> Key:
        """Where the objects are kept."""
        return self.stored_as or (self.group, self.plural)

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition made it."""
        return self.columns is not None


EVENTS: Key = ("", "events")
NAMESPACES: Key = ("", "namespaces")
NODES: Key = ("", "nodes")
PODS: Key = ("", "pods")
SERVICE_ACCOUNTS: Key = ("", "serviceaccounts")
CRDS: Key = ("apiextensions.k8s.io", "customresourcedefinitions")
JOBS: Key = ("batch", "jobs")
LEASES: Key = ("coordination.k8s.io", "leases")
PDBS: Key = ("policy", "poddisruptionbudgets")
PRIORITY_CLASSES: Key = ("scheduling.k8s.io", "priorityclasses")


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_POD_FIELDS = _same(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = {f"involvedObject.{f}": f"involvedObject.{f}" for f in _REFERENCE} | {
    "reason": "reason",
    "type": "type",
    "reportingComponent": "reportingComponent",
    "source": "source.component",
}
_EVENT_V1_FIELDS = {f"regarding.{f}": f"involvedObject.{f}" for f in _REFERENCE} | {
    "reason": "reason",
    "type": "type",
    "reportingController": "reportingComponent",
}


def _group(group: str, version: str, *rows: Resource) -> list[Resource]:
    return [Resource(**{**vars(row), "group": group, "version": version}) for row in rows]


def _row(plural: str, kind: str, *short: str, subs: str = "", cluster: bool = False, **more: Any) -> Resource:
    return Resource(
        "",
        "",
        plural,
        kind,
        not cluster,
        short,
        tuple(subs.split()),
        singular=more.pop("singular", kind.lower()),
        **more,
    )


_CORE = _group(
    "",
    "v1",
    _row("pods", "Pod", "po", subs="status log exec eviction binding", fields=_POD_FIELDS, categories=("all",)),
    _row("nodes", "Node", "no", subs="status", cluster=True, fields=_same("spec.unschedulable")),
    _row("namespaces", "Namespace", "ns", subs="status finalize", cluster=True, fields=_same("status.phase")),
    _row("events", "Event", "ev", fields=_EVENT_FIELDS),
    _row("services", "Service", "svc", subs="status", categories=("all",), fields=_same("spec.clusterIP", "spec.type")),
    _row("configmaps", "ConfigMap", "cm"),
    _row("secrets", "Secret", fields=_same("type")),
    _row("serviceaccounts", "ServiceAccount", "sa", subs="token"),
    _row("endpoints", "Endpoints", "ep"),
    _row("persistentvolumes", "PersistentVolume", "pv", subs="status", cluster=True),
    _row("persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subs="status"),
    _row(
        "replicationcontrollers",
        "ReplicationController",
        "rc",
        subs="status scale",
        categories=("all",),
        fields=_same("status.replicas"),
    ),
    _row("resourcequotas", "ResourceQuota", "quota", subs="status"),
    _row("limitranges", "LimitRange", "limits"),
)
_APPS = _group(
    "apps",
    "v1",
    _row("deployments", "Deployment", "deploy", subs="status scale", categories=("all",)),
    _row("daemonsets", "DaemonSet", "ds", subs="status", categories=("all",)),
    _row("replicasets", "ReplicaSet", "rs", subs="status scale", categories=("all",), fields=_same("status.replicas")),
    _row("statefulsets", "StatefulSet", "sts", subs="status scale", categories=("all",)),
    _row("controllerrevisions", "ControllerRevision"),
)
_OTHERS = [
    *_group(
        "batch",
        "v1",
        _row("jobs", "Job", subs="status", categories=("all",), fields={"status.successful": "status.succeeded"}),
        _row("cronjobs", "CronJob", "cj", subs="status", categories=("all",)),
    ),
    *_group("coordination.k8s.io", "v1", _row("leases", "Lease")),
    *_group("policy", "v1", _row("poddisruptionbudgets", "PodDisruptionBudget", "pdb", subs="status")),
    *_group("events.k8s.io", "v1", _row("events", "Event", "ev", fields=_EVENT_V1_FIELDS, stored_as=EVENTS)),
    *_group("discovery.k8s.io", "v1", _row("endpointslices", "EndpointSlice")),
    *_group(
        "networking.k8s.io",
        "v1",
        _row("networkpolicies", "NetworkPolicy", "netpol"),
        _row("ingresses", "Ingress", "ing", subs="status"),
    ),
    *_group("scheduling.k8s.io", "v1", _row("priorityclasses", "PriorityClass", "pc", cluster=True)),
    *_group("storage.k8s.io", "v1", _row("storageclasses", "StorageClass", "sc", cluster=True)),
    *_group("node.k8s.io", "v1", _row("runtimeclasses", "RuntimeClass", cluster=True)),
    *_group(
        "autoscaling",
        "v2",
        _row("horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", subs="status", categories=("all",)),
    ),
    *_group(
        "rbac.authorization.k8s.io",
        "v1",
        _row("roles", "Role"),
        _row("rolebindings", "RoleBinding"),
        _row("clusterroles", "ClusterRole", cluster=True),
        _row("clusterrolebindings", "ClusterRoleBinding", cluster=True),
    ),
    *_group(
        "authorization.k8s.io",
        "v1",
        _row("subjectaccessreviews", "SubjectAccessReview", cluster=True, verbs=("create",)),
        _row("selfsubjectaccessreviews", "SelfSubjectAccessReview", cluster=True, verbs=("create",)),
        _row("selfsubjectrulesreviews", "SelfSubjectRulesReview", cluster=True, verbs=("create",)),
    ),
    *_group(
        "authentication.k8s.io",
        "v1",
        _row("selfsubjectreviews", "SelfSubjectReview", cluster=True, verbs=("create",)),
    ),
    *_group(
        "apiextensions.k8s.io",
        "v1",
        _row("customresourcedefinitions", "CustomResourceDefinition", "crd", "crds", subs="status", cluster=True),
    ),
    *_group(
        "metrics.k8s.io",
        "v1beta1",
        _row("nodes", "NodeMetrics", cluster=True, verbs=READ_VERBS, singular=""),
        _row("pods", "PodMetrics", verbs=READ_VERBS, singular=""),
    ),
]


class Registry:
    """The resources served now, found by group, version and plural."""

    def __init__(self, resources: Iterable[Resource] = (*_CORE, *_APPS, *_OTHERS)) -> None:
        self._served = {(r.group, r.version, r.plural): r for r in resources}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource served under that path, if there is one."""
        return self._served.get((group, version, plural))

    def of(self, key: Key) -> Resource:
        """Return the resource, in its first served version, whose objects are kept under `key`."""
        return next(r for r in self._served.values() if r.key == key)

    def versions(self) -> dict[tuple[str, str], list[Resource]]:
        """Return the resources by group and version, in the order of first appearance."""
        found: dict[tuple[str, str], list[Resource]] = {}
        for resource in self._served.values():
            found.setdefault((resource.group, resource.version), []).append(resource)
        return found

    def serve(self, resources: Iterable[Resource]) -> None:
        """Serve these too, or in their new form."""
        self._served |= {(r.group, r.version, r.plural): r for r in resources}

    def withdraw(self, group: str, plural: str) -> None:
        """Serve no version of this resource any longer."""
        self._served = {k: r for k, r in self._served.items() if r.key != (group, plural)}


def custom_resources(definition: Mapping[str, Any]) -> list[Resource]:
    """Return the resources that a CustomResourceDefinition of valid shape makes, one per served version."""
    spec = definition["spec"]
    return [_custom(spec, version) for version in spec["versions"] if version.get("served")]


def _custom(spec: Mapping[str, Any], version: Mapping[str, Any]) -> Resource:
    names = spec["names"]
    selectable = [str(f.get("jsonPath", "")).lstrip(".") for f in version.get("selectableFields", ())]
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short=tuple(names.get("shortNames") or ()),
        subresources=tuple(version.get("subresources") or ()),
        fields=_same(*selectable),
        categories=tuple(names.get("categories") or ()),
        singular=names.get("singular") or names["kind"].lower(),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
    )
