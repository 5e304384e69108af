"""Least rights: what `install` grants is enough, each verb of it is needed and asked for, and nothing more is given."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos_gpu.cluster.client import Api, connect
from chaos_gpu.errors import Forbidden, Refused
from chaos_gpu.faults.install import manifests
from chaos_gpu.faults.names import NAMESPACE, REVERTER, RUNNER
from chaos_gpu.faults.preflight import check_opted_in, check_rights
from chaos_gpu.faults.rights import ENGINE, REVERTER_RIGHTS, Right, rules
from chaos_gpu.faults.settings import Settings
from tests.engine.site import Json, Site, experiment, inject, unchanged
from tests.engine.test_refusals import check_refused

EVERYWHERE = {(right.resource, verb) for right in ENGINE for verb in right.verbs if not right.namespaced}
VERBS = [
    (right, verb)
    for right in ENGINE
    for verb in right.verbs
    if not (right.namespaced and (right.resource, verb) in EVERYWHERE)  # then it is had anyway
]
RBAC = "apis/rbac.authorization.k8s.io/v1"
SETTINGS = Settings(context="lab", environment="lab")


def kubeconfig_of(site: Site, account: str, place: Path) -> Path:
    """Write a kubeconfig with a token of a ServiceAccount."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
    token = site.lab.request("POST", path, request)["status"]["token"]
    found = yaml.safe_load(site.lab.kubeconfig.read_text())
    found["users"][0]["user"] = {"token": token}
    file = place / f"kubeconfig-{account}"
    file.write_text(json.dumps(found))
    return file


def api_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
    return connect("lab")


def without(right: Right, verb: str) -> list[Right]:
    """Return the engine's rights but for one verb of one of them."""
    left = right._replace(verbs=tuple(each for each in right.verbs if each != verb))
    return [left if each == right else each for each in ENGINE]


@pytest.fixture(scope="module")
def narrow(open_lab: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Narrow"]:
    """A ServiceAccount whose rights are set by each test."""
    made = [each for each in manifests("lab") if each["metadata"]["name"] == RUNNER and "Role" in each["kind"]]
    name = "narrow"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
    open_lab.lab.request("POST", f"api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    for each in made:
        body: Json = json.loads(json.dumps(each).replace(RUNNER, name))
        open_lab.lab.request("POST", _collection(body), body)
    yield Narrow(open_lab, kubeconfig_of(open_lab, name, tmp_path_factory.mktemp("narrow")))
    for each in made:
        body = json.loads(json.dumps(each).replace(RUNNER, name))
        open_lab.lab.request("DELETE", f"{_collection(body)}/{name}")
    open_lab.lab.request("DELETE", f"api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}")


@dataclasses.dataclass
class Narrow:
    site: Site
    kubeconfig: Path

    def may(self, rights: list[Right]) -> None:
        """Give the account these rights and no others."""
        for path, namespaced in ((f"{RBAC}/clusterroles", False), (f"{RBAC}/namespaces/{NAMESPACE}/roles", True)):
            self.site.merge(f"{path}/narrow", {"rules": rules(rights, namespaced=namespaced)})


def _collection(body: Json) -> str:
    inside = f"namespaces/{NAMESPACE}/" if body["metadata"].get("namespace") else ""
    return f"{RBAC}/{inside}{body['kind'].lower()}s"


def examine(api: Api) -> None:
    """Do what the guard does first."""
    check_opted_in(api, SETTINGS)
    check_rights(api)


@pytest.mark.parametrize(
    ("right", "verb"), VERBS, ids=[f"{verb} {right.resource} {right.namespaced}" for right, verb in VERBS]
)
def test_each_verb_is_asked_for(narrow: Narrow, right: Right, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow.may(without(right, verb))
    api = api_of(narrow.kubeconfig, monkeypatch)
    with unchanged(narrow.site), pytest.raises((Refused, Forbidden)) as refused:
        examine(api)
    assert right.resource.split("/")[0] in refused.value.reason
    assert verb in refused.value.reason
    assert "doctor" in refused.value.remedy


@pytest.mark.parametrize(
    ("resource", "verb"), [("namespaces", "get"), ("nodes", "patch"), ("pods/exec", "create"), ("leases", "patch")]
)
def test_a_run_without_a_right_is_refused(narrow: Narrow, resource: str, verb: str) -> None:
    right = next(each for each in ENGINE if each.resource == resource)
    narrow.may(without(right, verb))
    with unchanged(narrow.site):
        ended = narrow.site.run(experiment(), KUBECONFIG=str(narrow.kubeconfig))
    token = json.loads(narrow.kubeconfig.read_text())["users"][0]["user"]["token"]
    check_refused(ended, resource, token)


def test_without_any_right(narrow: Narrow) -> None:
    narrow.may([])
    with unchanged(narrow.site):
        check_refused(narrow.site.run(experiment(), KUBECONFIG=str(narrow.kubeconfig)), "namespaces")


def test_the_runner_has_all_that_a_run_needs(site: Site, tmp_path: Path) -> None:
    ended = site.run(experiment(inject("xid-48", 48)), KUBECONFIG=str(kubeconfig_of(site, RUNNER, tmp_path)))
    assert ended.guard["refused"] is None
    assert ended.guard["recovery"]["open"] == []
    assert [each["status"] for each in ended.journal["run"]] == ["succeeded"], ended.text
    assert "the platform took it back" in " ".join(ended.guard["recovery"]["restored"])


# --- what the reverter may do, asked with its own token -------------------------------------------------------------

ALLOWED = [(right, verb) for right in REVERTER_RIGHTS for verb in right.verbs]
FORBIDDEN = [
    ("GET", "/api/v1/secrets"),
    ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets"),
    ("GET", "/api/v1/pods"),
    ("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps"),
    ("GET", "/api/v1/namespaces/default/configmaps/x"),
    ("GET", "/apis/apps/v1/daemonsets"),
    ("GET", "/apis/batch/v1/jobs"),
    ("DELETE", "/api/v1/nodes/gpu-node-0"),
    ("POST", "/api/v1/nodes"),
    ("DELETE", f"/api/v1/namespaces/{NAMESPACE}"),
    ("DELETE", f"/api/v1/namespaces/{NAMESPACE}/configmaps/x"),
    ("POST", "/api/v1/namespaces/default/pods"),
    ("DELETE", "/api/v1/namespaces/default/pods/x"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{RUNNER}/token"),
    ("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"),
]


def review(api: Api, right: Right, verb: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    where = {"namespace": NAMESPACE} if right.namespaced else {}
    asked: dict[str, Any] = {"group": right.group, "resource": resource, "subresource": subresource, "verb": verb}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**asked, **where}},
    }
    return bool(api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)["status"]["allowed"])


def test_the_reverter_may_do_its_work_and_nothing_else(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = api_of(kubeconfig_of(site, REVERTER, tmp_path), monkeypatch)
    assert [(str(right), verb) for right, verb in ALLOWED if not review(api, right, verb)] == []
    with unchanged(site):
        for method, path in FORBIDDEN:
            with pytest.raises(Forbidden):
                api.request(method, path, body={} if method == "POST" else None)


ROLE = f"{RBAC}/namespaces/{NAMESPACE}/roles/{REVERTER}"
CLUSTER_ROLE = f"{RBAC}/clusterroles/{REVERTER}"
OLDER = [("configmaps", "patch", ROLE), ("pods/log", "get", ROLE), ("nodes", "patch", CLUSTER_ROLE)]


@pytest.mark.parametrize(("resource", "verb", "role"), OLDER)
def test_a_reverter_that_lacks_a_right_lets_nothing_begin(site: Site, resource: str, verb: str, role: str) -> None:
    """Its role may be of an older version, or edited: alive is not able."""
    granted = site.lab.get(role)["rules"]
    less = [
        {**rule, "verbs": [each for each in rule["verbs"] if rule["resources"] != [resource] or each != verb]}
        for rule in granted
    ]
    before = site.objects()
    site.merge(role, {"rules": [rule for rule in less if rule["verbs"]]})
    try:
        ended = site.run(experiment())
    finally:
        site.merge(role, {"rules": granted})
    assert ended.result.exit_code == 4, ended.text
    assert f"the reverter could not undo this run: it may not {verb} {resource}" in ended.guard["refused"]["reason"]
    assert "chaos-gpu install" in ended.guard["refused"]["remedy"]
    site.lab.wait_gone(f"apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"chaos-gpu-reverter-{ended.guard['run']}")
    nodes = {name: found for name, found in site.objects().items() if "/nodes " in name}
    assert nodes == {name: found for name, found in before.items() if "/nodes " in name}
