"""What every cluster starts with: namespaces, the roles that everyone relies on, two priority classes."""

from typing import Any

from chaos_gpu.lab.apiserver.auth import ADMIN
from chaos_gpu.lab.apiserver.calls import Bound, Call, Query, Target
from chaos_gpu.lab.apiserver.objects import Objects
from chaos_gpu.lab.apiserver.resources import Registry
from chaos_gpu.lab.apiserver.shapes import RBAC
from chaos_gpu.lab.apiserver.status import Json

_SYSTEM_PAGES = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"]
_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_WORK: list[tuple[str, list[str]]] = [
    (
        "",
        [
            "configmaps",
            "endpoints",
            "events",
            "persistentvolumeclaims",
            "pods",
            "pods/log",
            "pods/status",
            "serviceaccounts",
            "services",
        ],
    ),
    ("apps", ["daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets"]),
    ("batch", ["cronjobs", "jobs"]),
    ("policy", ["poddisruptionbudgets"]),
]


def seed(objects: Objects, registry: Registry) -> None:
    """Make what every cluster starts with."""
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        _make(objects, registry, "", "v1", "namespaces", {"metadata": {"name": name}})
    for name, rules in _roles().items():
        role = {"metadata": {"name": name}, "rules": rules}
        _make(objects, registry, RBAC, "v1", "clusterroles", role)
    for role_name, group in (
        ("cluster-admin", "system:masters"),
        ("system:discovery", "system:authenticated"),
        ("system:basic-user", "system:authenticated"),
    ):
        _make(objects, registry, RBAC, "v1", "clusterrolebindings", _bound_to(role_name, group))
    for name, value in (("system-cluster-critical", 2000000000), ("system-node-critical", 2000001000)):
        body = {"metadata": {"name": name}, "value": value}
        _make(objects, registry, "scheduling.k8s.io", "v1", "priorityclasses", body)


def _make(objects: Objects, registry: Registry, group: str, version: str, plural: str, body: Json) -> None:
    resource = registry.find(group, version, plural)
    if resource is None:
        raise LookupError(f"{plural}.{group}")
    call = Call("create", Target(group, version, plural), Query({}), ADMIN, "lab")
    objects.create(Bound(call, resource), body)


def _rule(verbs: list[str], group: str, resources: list[str]) -> Json:
    return {"verbs": verbs, "apiGroups": [group], "resources": resources}


def _roles() -> dict[str, list[Any]]:
    everything = [_rule(["*"], "*", ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}]
    view = [_rule(_READ, group, resources) for group, resources in _WORK]
    edit = [_rule([*_READ, *_WRITE], group, resources) for group, resources in _WORK]
    edit.append(_rule([*_READ, *_WRITE], "", ["pods/exec", "pods/eviction", "secrets"]))
    rights = [_rule([*_READ, *_WRITE], RBAC, ["roles", "rolebindings"])]
    questions = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    identity = _rule(["create"], "authentication.k8s.io", ["selfsubjectreviews"])
    return {
        "cluster-admin": everything,
        "admin": edit + rights,
        "edit": edit,
        "view": view,
        "system:discovery": [{"verbs": ["get"], "nonResourceURLs": [*_SYSTEM_PAGES, "/version", "/version/"]}],
        "system:basic-user": [_rule(["create"], "authorization.k8s.io", questions), identity],
    }


def _bound_to(role: str, group: str) -> Json:
    return {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
    }
