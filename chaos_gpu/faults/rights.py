"""Which rights a run needs: declared where they are used, granted by `install`, checked by the guard."""

from collections.abc import Iterable
from typing import NamedTuple

from chaos_gpu.cluster.client import Api
from chaos_gpu.faults.names import NAMESPACE


class Right(NamedTuple):
    """Verbs on one kind of object, in our namespace or (namespaced=False) on the whole cluster."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    namespaced: bool = True

    def __str__(self) -> str:
        where = f"in namespace {NAMESPACE}" if self.namespaced else "cluster-wide"
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{','.join(self.verbs)} {kind} {where}"


ENGINE = (
    Right("", "namespaces", ("get",), namespaced=False),
    Right("", "nodes", ("get", "list", "watch", "patch"), namespaced=False),
    Right("", "pods", ("list",), namespaced=False),
    Right("", "events", ("create", "list"), namespaced=False),
    Right("apps", "daemonsets", ("list",), namespaced=False),
    Right("apps", "deployments", ("list",), namespaced=False),
    Right("apps", "statefulsets", ("list",), namespaced=False),
    Right("batch", "cronjobs", ("list",), namespaced=False),
    Right("", "pods", ("create", "get", "list", "watch", "delete")),
    Right("", "pods/log", ("get",)),
    Right("", "pods/exec", ("create", "get")),
    Right("", "configmaps", ("create", "get", "list", "watch", "patch", "delete")),
    Right("coordination.k8s.io", "leases", ("create", "get", "patch", "delete")),
    Right("batch", "jobs", ("create", "get", "list", "delete")),
)

REVERTER_RIGHTS = (
    Right("", "nodes", ("list", "patch"), namespaced=False),
    Right("", "pods", ("create", "get", "list", "watch", "delete")),
    Right("", "pods/log", ("get",)),
    Right("", "configmaps", ("create", "get", "patch")),
    Right("batch", "jobs", ("delete",)),
    Right("coordination.k8s.io", "leases", ("get", "patch", "delete")),
)

ASKING = (Right("authorization.k8s.io", "subjectaccessreviews", ("create",), namespaced=False),)
"""For the runner, to ask beforehand what the injectors may do."""

_DELETE, _EVICT = Right("", "pods", ("delete",)), Right("", "pods/eviction", ("create",))
INJECTOR_RIGHTS_BY = {"delete": (_DELETE,), "force": (_DELETE,), "evict": (_EVICT,)}
"""How an injector ends a pod through the API → what it must be allowed, where a run's trainings are: our namespace."""
INJECTOR_RIGHTS = (_DELETE, _EVICT)


def missing_rights(api: Api, rights: Iterable[Right], account: str = "") -> list[Right]:
    """Ask the API server, verb by verb, what may not be done. Returns the missing rights, one verb each.

    Args:
        api: the connection.
        rights: that are needed.
        account: ServiceAccount of our namespace that needs them; "" for the user of the connection.
    """
    return [
        Right(right.group, right.resource, (verb,), right.namespaced)
        for right in rights
        for verb in right.verbs
        if not allowed(api, right, verb, account)
    ]


def allowed(api: Api, right: Right, verb: str, account: str = "") -> bool:
    """Ask one access review: of ourselves, or of a ServiceAccount of our namespace."""
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"]
    subject = {"user": f"system:serviceaccount:{NAMESPACE}:{account}", "groups": groups} if account else {}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": kind,
        "spec": {"resourceAttributes": attributes(right, verb), **subject},
    }
    answer = api.create(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", review)
    return bool((answer.get("status") or {}).get("allowed"))


def attributes(right: Right, verb: str) -> dict[str, str]:
    """Say one verb of a right as a SelfSubjectAccessReview asks for it."""
    resource, _, subresource = right.resource.partition("/")
    asked = {"group": right.group, "resource": resource, "subresource": subresource, "verb": verb}
    return {**asked, "namespace": NAMESPACE} if right.namespaced else asked


def rules(rights: Iterable[Right], namespaced: bool) -> list[dict[str, list[str]]]:
    """Make the RBAC rules that grant these rights, of one scope."""
    return [
        {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
        for right in rights
        if right.namespaced == namespaced
    ]
