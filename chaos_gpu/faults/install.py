"""What a cluster must have before experiments run on it: namespace, opt-in, and the least rights that they need."""

from collections.abc import Iterable
from typing import Any

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.errors import Refused
from chaos_gpu.faults.aftermath import is_alive, state_of
from chaos_gpu.faults.ledger import CLOSED, OPEN, ledgers
from chaos_gpu.faults.names import ENABLED, ENVIRONMENT, INJECTOR, NAMESPACE, REVERTER, RUNNER
from chaos_gpu.faults.rights import ASKING, ENGINE, INJECTOR_RIGHTS, REVERTER_RIGHTS, Right, rules

RBAC = "rbac.authorization.k8s.io"
MANAGED = {"app.kubernetes.io/managed-by": "chaos-gpu"}
APPLY = "application/apply-patch+yaml"
APPLY_AS = {"fieldManager": "chaos-gpu", "force": "true"}


def manifests(environment: str) -> list[JsonObject]:
    """Make everything that `install` creates, in order; rights are those that engine and reverter declare."""
    return [
        namespace(environment),
        *(_object("v1", "ServiceAccount", name, NAMESPACE) for name in (RUNNER, REVERTER, INJECTOR)),
        *_grants(RUNNER, (*ENGINE, *ASKING)),
        *_grants(REVERTER, REVERTER_RIGHTS),
        *_grants(INJECTOR, INJECTOR_RIGHTS),
    ]


def namespace(environment: str) -> JsonObject:
    """Make the namespace that opens the cluster; injectors write /dev/kmsg, so its pods may be privileged."""
    made = _object("v1", "Namespace", NAMESPACE)
    made["metadata"]["labels"] = {**MANAGED, "pod-security.kubernetes.io/enforce": "privileged"}
    made["metadata"]["annotations"] = {ENABLED: "true", ENVIRONMENT: environment}
    return made


def install(api: Api, environment: str) -> list[str]:
    """Create or update it all. Returns the names."""
    for manifest in manifests(environment):
        api.request("PATCH", path_of(manifest), APPLY_AS, manifest, APPLY)
    return [name_of(each) for each in manifests(environment)]


def uninstall(api: Api) -> list[str]:
    """Remove it all, ledgers included. Raises as `check_closed` does."""
    check_closed(api)
    return [name_of(each) for each in reversed(manifests("")) if api.delete(path_of(each), background=True)]


def removable(api: Api) -> list[str]:
    """Name what `uninstall` would remove now. Raises as `check_closed` does."""
    check_closed(api)
    return [name_of(each) for each in reversed(manifests("")) if api.find(path_of(each))]


def check_closed(api: Api) -> None:
    """Raise Refused while a run is active or has left something behind, with what ends that."""
    for entry in ledgers(api):
        if entry.state == OPEN and is_alive(api, entry.run):
            raise Refused(
                f"run {entry.run} is {state_of(entry)}",
                remedy=f"wait for it, or: chaos-gpu abort {entry.run}; once chaos-gpu status calls it closed, again",
            )
        if entry.state != CLOSED:
            how = "active, and its runner is gone" if entry.state == OPEN else state_of(entry)
            raise Refused(f"run {entry.run} is {how}", remedy=f"chaos-gpu recover {entry.run} first")


def path_of(manifest: JsonObject) -> str:
    """Where an object of ours is kept."""
    group = manifest["apiVersion"]
    root = f"/api/{group}" if group == "v1" else f"/apis/{group}"
    inside = manifest["metadata"].get("namespace")
    plural = manifest["kind"].lower() + "s"
    return f"{root}/{f'namespaces/{inside}/' if inside else ''}{plural}/{manifest['metadata']['name']}"


def name_of(manifest: JsonObject) -> str:
    """Name an object for people: kind and name."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _grants(account: str, rights: Iterable[Right]) -> list[JsonObject]:
    declared = tuple(rights)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    found = []
    for kind, inside in (("ClusterRole", ""), ("Role", NAMESPACE)):
        granted = rules(declared, namespaced=bool(inside))
        if not granted:
            continue
        role = _object(f"{RBAC}/v1", kind, account, inside)
        role["rules"] = granted
        binding = _object(f"{RBAC}/v1", f"{kind}Binding", account, inside)
        binding |= {"roleRef": {"apiGroup": RBAC, "kind": kind, "name": account}, "subjects": [subject]}
        found += [role, binding]
    return found


def _object(version: str, kind: str, name: str, inside: str = "") -> JsonObject:
    metadata: dict[str, Any] = {"name": name, "labels": dict(MANAGED)}
    if inside:
        metadata["namespace"] = inside
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
