"""Who may do what: RBAC rules evaluated over the Roles and Bindings that are stored."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from chaos_gpu.lab.apiserver.calls import Call, User, named_by_selector
from chaos_gpu.lab.apiserver.shapes import RBAC
from chaos_gpu.lab.apiserver.status import Json, StatusError, forbidden
from chaos_gpu.lab.apiserver.store import Store

_CLUSTER_ROLES = (RBAC, "clusterroles")
_ROLES = (RBAC, "roles")
_CLUSTER_BINDINGS = (RBAC, "clusterrolebindings")
_BINDINGS = (RBAC, "rolebindings")


class Ask(NamedTuple):
    """One right: to do `verb` on a resource, or on a page of the server (`path`)."""

    verb: str
    group: str = ""
    resource: str = ""  # plural, with "/subresource" if there is one
    namespace: str = ""
    name: str = ""
    path: str = ""


def ask_of(call: Call) -> Ask:
    """Return the right that a call needs."""
    target = call.target
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    name = target.name or (named_by_selector(call.query) if call.verb in ("list", "watch", "deletecollection") else "")
    namespace = target.name if (target.group, target.plural) == ("", "namespaces") else target.namespace
    return Ask(call.verb, target.group, resource, namespace, name)


def allowed(store: Store, user: User, ask: Ask) -> bool:
    """Say whether the user has that right."""
    return user.is_admin or any(rule_grants(rule, ask) for rule in rules_for(store, user, ask.namespace))


def authorize(store: Store, user: User, ask: Ask) -> None:
    """Pass a user who has the right.

    Exec over a websocket comes as GET; the real server asks for the verb `get` there, newer ones for `create`.
    Either is enough here.

    Raises:
        StatusError: 403, in the words of the real server.
    """
    streams = ask.resource in ("pods/exec", "pods/attach", "pods/portforward") and ask.verb == "get"
    if allowed(store, user, ask) or (streams and allowed(store, user, ask._replace(verb="create"))):
        return
    raise denied(user, ask)


def denied(user: User, ask: Ask) -> StatusError:
    """403: the user lacks the right."""
    if ask.path:
        message = f'forbidden: User "{user.name}" cannot {ask.verb} path "{ask.path}"'
        return StatusError(403, "Forbidden", message)
    scope = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    why = f'User "{user.name}" cannot {ask.verb} resource "{ask.resource}" in API group "{ask.group}" {scope}'
    return forbidden(ask.resource.partition("/")[0], ask.group, ask.name, why)


def rules_for(store: Store, user: User, namespace: str) -> Iterator[Json]:
    """Yield the rules that hold for a user, cluster-wide and in that namespace ("" for cluster-wide only)."""
    for binding in store.select(_CLUSTER_BINDINGS):
        if _binds(binding.data, user, ""):
            yield from _role_rules(store, binding.data.get("roleRef") or {}, "")
    for binding in store.select(_BINDINGS, namespace) if namespace else ():
        if _binds(binding.data, user, namespace):
            yield from _role_rules(store, binding.data.get("roleRef") or {}, namespace)


def _binds(binding: Json, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "ServiceAccount":
            where = subject.get("namespace") or namespace
            if user.name == f"system:serviceaccount:{where}:{name}":
                return True
        elif (kind == "User" and name == user.name) or (kind == "Group" and name in user.groups):
            return True
    return False


def _role_rules(store: Store, reference: Json, namespace: str) -> Iterator[Json]:
    name = reference.get("name", "")
    if reference.get("kind") == "ClusterRole":
        role = store.get(_CLUSTER_ROLES, "", name)
    else:
        role = store.get(_ROLES, namespace, name) if namespace else None
    yield from (role.data.get("rules") or ()) if role else ()


def rule_grants(rule: Json, ask: Ask) -> bool:
    """Say whether one rule of a Role grants the right."""
    if not _has(rule.get("verbs"), ask.verb):
        return False
    if ask.path:
        return any(_covers(pattern, ask.path) for pattern in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames")
    if names and ask.name not in names:
        return False
    return _has(rule.get("apiGroups"), ask.group) and _has_resource(rule.get("resources") or (), ask.resource)


def _has(values: list[str] | None, wanted: str) -> bool:
    return "*" in (values or ()) or wanted in (values or ())


def _has_resource(resources: Sequence[str], wanted: str) -> bool:
    _, _, subresource = wanted.partition("/")
    return "*" in resources or wanted in resources or (bool(subresource) and f"*/{subresource}" in resources)


def _covers(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern[:-1]))
