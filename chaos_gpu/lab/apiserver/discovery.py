"""What this server serves, told to clients that ask: versions, groups, resources, and the least of OpenAPI v3. Pure."""

from typing import Any

from chaos_gpu.lab.apiserver.resources import Registry, Resource
from chaos_gpu.lab.apiserver.status import Json, no_such_path

SERVER_VERSION = "v1.36.0"
# An OpenAPI v2 document, in protobuf, that says `swagger: "2.0"` and defines nothing: kubectl validates a List against
# it, and passes over kinds that it does not find.
OPENAPI_V2 = b"\x0a\x032.0"
OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_SUBRESOURCES: dict[str, tuple[tuple[str, ...], Json]] = {
    "status": (("get", "patch", "update"), {}),
    "scale": (("get", "patch", "update"), {"group": "autoscaling", "version": "v1", "kind": "Scale"}),
    "eviction": (("create",), {"group": "policy", "version": "v1", "kind": "Eviction"}),
    "binding": (("create",), {"kind": "Binding"}),
    "token": (("create",), {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}),
    "exec": (("create", "get"), {"kind": "PodExecOptions"}),
    "log": (("get",), {}),
}


def page(parts: list[str], registry: Registry) -> Json:
    """Return the discovery document at a path, given as its segments.

    Raises:
        StatusError: 404, there is none.
    """
    match parts:
        case ["version"]:
            return _version()
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            groups = dict.fromkeys(group for group, _ in registry.versions() if group)
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(g, registry) for g in groups]}
        case ["api", version]:
            return _resources("", version, registry)
        case ["apis", group]:
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(group, registry)
        case ["apis", group, version]:
            return _resources(group, version, registry)
        case ["openapi", "v3"]:
            return _openapi_index(registry)
        case ["openapi", "v3", "api", version]:
            return _openapi("", version, registry)
        case ["openapi", "v3", "apis", group, version]:
            return _openapi(group, version, registry)
    raise no_such_path()


def _version() -> Json:
    major, minor, _ = SERVER_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"{SERVER_VERSION}+lab",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "lab/lab",
    }


def _group(group: str, registry: Registry) -> Json:
    versions = [
        {"groupVersion": f"{g}/{version}", "version": version} for g, version in registry.versions() if g == group
    ]
    if not versions:
        raise no_such_path()
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _served(group: str, version: str, registry: Registry) -> list[Resource]:
    found = registry.versions().get((group, version))
    if not found:
        raise no_such_path()
    return found


def _resources(group: str, version: str, registry: Registry) -> Json:
    rows = [row for resource in _served(group, version, registry) for row in _rows(resource)]
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": rows}


def _rows(resource: Resource) -> list[Json]:
    main: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    main |= {k: list(v) for k, v in (("shortNames", resource.short), ("categories", resource.categories)) if v}
    rows = [main]
    for name in resource.subresources:
        verbs, other = _SUBRESOURCES.get(name, (("get",), {}))
        row = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        rows.append({**row, "kind": resource.kind, "verbs": list(verbs), **other})
    return rows


def _path(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else f"api/{resource.version}"


def _openapi_index(registry: Registry) -> Json:
    paths = {_path(resources[0]) for resources in registry.versions().values()}
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in sorted(paths)}}


def _openapi(group: str, version: str, registry: Registry) -> Json:
    """Return just enough for kubectl: which kinds there are, and that they take `fieldValidation` and dry runs."""
    resources = _served(group, version, registry)
    return {
        "openapi": "3.0.0",
        "info": {"title": "chaos-gpu lab", "version": SERVER_VERSION},
        "paths": {_object_path(resource): _operations(resource) for resource in resources},
        "components": {"schemas": {_schema_name(resource): _schema(resource) for resource in resources}},
    }


def _object_path(resource: Resource) -> str:
    namespace = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"/{_path(resource)}{namespace}/{resource.plural}/{{name}}"


def _operations(resource: Resource) -> Json:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    operation = {
        "parameters": parameters,
        "responses": {},
        "x-kubernetes-group-version-kind": _gvk(resource),
    }
    return {"get": {**operation, "parameters": []}, "patch": operation}


def _gvk(resource: Resource) -> Json:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema_name(resource: Resource) -> str:
    domain = ".".join(reversed(resource.group.split("."))) if resource.group else "core"
    return f"{domain}.{resource.version}.{resource.kind}"


def _schema(resource: Resource) -> Json:
    """Return a CRD's own schema; for a built-in kind, its outline."""
    text: Json = {"type": "string"}
    outline: dict[str, Any] = {"apiVersion": text, "kind": text}
    outline |= {part: {"type": "object"} for part in ("metadata", "spec", "status")}
    schema: Json = {**resource.schema} if resource.schema else {"type": "object", "properties": outline}
    return schema | {"x-kubernetes-group-version-kind": [_gvk(resource)]}
