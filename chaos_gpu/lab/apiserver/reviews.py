"""Questions about rights: SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectReview, SubjectAccessReview."""

from chaos_gpu.lab.apiserver.calls import User
from chaos_gpu.lab.apiserver.clock import rfc3339
from chaos_gpu.lab.apiserver.rbac import Ask, allowed, rules_for
from chaos_gpu.lab.apiserver.resources import Resource
from chaos_gpu.lab.apiserver.status import Json, bad_request
from chaos_gpu.lab.apiserver.store import Store

_EVERYTHING = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


def review(resource: Resource, body: Json, user: User, store: Store) -> Json:
    """Answer a review of valid shape.

    Raises:
        StatusError: 400, it does not ask anything.
    """
    spec = body.get("spec") or {}
    status = {
        "SubjectAccessReview": _access_of_another,
        "SelfSubjectAccessReview": _access,
        "SelfSubjectRulesReview": _rules,
        "SelfSubjectReview": _identity,
    }[resource.kind](spec, user, store)
    meta = {"creationTimestamp": rfc3339()}
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def _access(spec: Json, user: User, store: Store) -> Json:
    wanted, page = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (wanted is None) == (page is None):
        raise bad_request("spec needs either resourceAttributes or nonResourceAttributes")
    if wanted is None:
        ask = Ask((page or {}).get("verb", ""), path=(page or {}).get("path", ""))
    else:
        subresource = wanted.get("subresource")
        resource = wanted.get("resource", "") + (f"/{subresource}" if subresource else "")
        ask = Ask(
            wanted.get("verb", ""),
            wanted.get("group", ""),
            resource,
            wanted.get("namespace", ""),
            wanted.get("name", ""),
        )
    return {"allowed": allowed(store, user, ask)}


def _access_of_another(spec: Json, _user: User, store: Store) -> Json:
    if not spec.get("user") and not spec.get("groups"):
        raise bad_request("spec needs a user or groups")
    return _access(spec, User(spec.get("user", ""), tuple(spec.get("groups") or ())), store)


def _rules(spec: Json, user: User, store: Store) -> Json:
    if not spec.get("namespace"):
        raise bad_request("spec.namespace is required")
    rules = _EVERYTHING if user.is_admin else list(rules_for(store, user, spec["namespace"]))
    return {
        "resourceRules": [rule for rule in rules if rule.get("resources")],
        "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": False,
    }


def _identity(_spec: Json, user: User, _store: Store) -> Json:
    return {"userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups)}}
