"""Who asks, and who may do what."""

from typing import Any

import pytest

from tests.lab.apiserver.conftest import MAPS, NODES, PODS, Served, pod

RBAC = "apis/rbac.authorization.k8s.io/v1"
ACCOUNTS = "api/v1/namespaces/default/serviceaccounts"
MERGE = "application/merge-patch+json"


class Account:
    """A ServiceAccount's view of the server, under the pods' URL."""

    def __init__(self, served: Served, name: str = "worker") -> None:
        self.served = served
        self.name = name
        served.make(ACCOUNTS, name)
        self.token = served.ok("POST", f"{ACCOUNTS}/{name}/token", {"spec": {}})["status"]["token"]

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        return self.served.call(method, path, body, base=self.served.pod_url, headers=headers, **options)

    def may(
        self, verb: str, resource: str, *, group: str = "", names: tuple[str, ...] = (), cluster: bool = False
    ) -> None:
        """Grant a right in the namespace, or everywhere."""
        rule = {"verbs": [verb], "apiGroups": [group], "resources": [resource], "resourceNames": list(names)}
        where = RBAC if cluster else f"{RBAC}/namespaces/default"
        prefix = "cluster" if cluster else ""
        name = f"{verb}-{resource.replace('/', '-').replace('*', 'all')}-{'-'.join(names)}x"
        self.served.make(f"{where}/{prefix}roles", name, rules=[rule])
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": "default"}
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole" if cluster else "Role",
            "name": name,
        }
        self.served.make(f"{where}/{prefix}rolebindings", name, roleRef=reference, subjects=[subject])


@pytest.mark.parametrize("path", ["", "wrong", "wrong/api", "api/v1/nodes", "admin-secre/api", "admin-secret2/api"])
def test_a_wrong_secret_is_404_and_tells_nothing(served: Served, path: str) -> None:
    base = served.url.rpartition("/")[0]
    response = served.http.get(f"{base}/{path}")
    assert (response.status_code, response.content) == (404, b"")


def test_the_administrator_needs_no_token(served: Served) -> None:
    who = served.ok("POST", "apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who["status"]["userInfo"]["username"] == "system:admin"


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic eDp5", "Bearer", "Bearer \u00e9"])
def test_pods_need_a_good_token(served: Served, header: str) -> None:
    headers = {"Authorization": header.encode()} if header else {}
    response = served.http.get(f"{served.pod_url}/api/v1/nodes", headers=headers)
    assert (response.status_code, response.json()["reason"]) == (401, "Unauthorized")


def test_a_token_makes_a_service_account(served: Served) -> None:
    code, who = Account(served).call("POST", "apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert code == 201
    info = who["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:worker"
    assert "system:serviceaccounts:default" in info["groups"]


def test_a_token_on_the_administrators_path_lowers_rights(served: Served) -> None:
    headers = {"Authorization": f"Bearer {Account(served).token}"}
    assert served.call("GET", NODES, headers=headers)[0] == 403
    assert served.call("GET", NODES, headers={"Authorization": "Bearer wrong"})[0] == 401


def test_a_token_dies_with_its_account(served: Served) -> None:
    account = Account(served)
    account.may("list", "pods")
    assert account.call("GET", PODS)[0] == 200
    served.ok("DELETE", f"{ACCOUNTS}/worker")
    assert account.call("GET", PODS)[0] == 401
    served.make(ACCOUNTS, "worker")
    assert account.call("GET", PODS)[0] == 401


def test_a_token_bound_to_a_pod_dies_with_it(served: Served) -> None:
    account = Account(served)
    made = served.ok("POST", PODS, pod())
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}
    spec = {"expirationSeconds": 3607, "boundObjectRef": reference}
    account.token = served.ok("POST", f"{ACCOUNTS}/worker/token", {"spec": spec})["status"]["token"]
    assert account.call("GET", "version")[0] == 200
    served.ok("DELETE", f"{PODS}/p")
    assert account.call("GET", "version")[0] == 401


def test_tokens_are_given_for_a_sensible_time_and_existing_accounts_only(served: Served) -> None:
    assert served.call("POST", f"{ACCOUNTS}/ghost/token", {"spec": {}})[0] == 404
    assert served.call("POST", f"{ACCOUNTS}/default/token", {"spec": {"expirationSeconds": 5}})[0] == 422


def test_the_refusal_says_who_what_and_where(served: Served) -> None:
    account = Account(served)
    user = 'User "system:serviceaccount:default:worker"'
    for method, path, message in (
        (
            "GET",
            PODS,
            f'pods is forbidden: {user} cannot list resource "pods" in API group "" in the namespace "default"',
        ),
        (
            "GET",
            f"{PODS}/p",
            f'pods "p" is forbidden: {user} cannot get resource "pods" in API group "" in the namespace "default"',
        ),
        ("GET", NODES, f'nodes is forbidden: {user} cannot list resource "nodes" in API group "" at the cluster scope'),
        (
            "POST",
            f"{PODS}/p/eviction",
            f'pods "p" is forbidden: {user} cannot create resource "pods/eviction" in API group "" '
            'in the namespace "default"',
        ),
        ("GET", "metrics", f'forbidden: {user} cannot get path "/metrics"'),
    ):
        code, answer = account.call(method, path, {} if method == "POST" else None)
        assert (code, answer["reason"], answer["message"]) == (403, "Forbidden", message)


def test_refused_requests_change_nothing(served: Served) -> None:
    assert Account(served).call("POST", MAPS, {"metadata": {"name": "a"}})[0] == 403
    assert served.call("GET", f"{MAPS}/a")[0] == 404


def test_a_right_is_for_one_verb_resource_and_namespace(served: Served) -> None:
    account = Account(served)
    account.may("list", "pods")
    assert account.call("GET", PODS)[0] == 200
    assert account.call("GET", f"{PODS}/p")[0] == 403
    assert account.call("GET", MAPS)[0] == 403
    assert account.call("GET", "api/v1/namespaces/kube-system/pods")[0] == 403
    assert account.call("GET", "api/v1/pods")[0] == 403


def test_a_watch_needs_its_own_verb(served: Served) -> None:
    account = Account(served)
    account.may("list", "pods")
    assert account.call("GET", PODS, params={"watch": "True"})[0] == 403


def test_subresources_are_granted_by_themselves(served: Served) -> None:
    served.make(NODES, "n")
    account = Account(served)
    account.may("patch", "nodes", cluster=True)
    assert account.call("PATCH", f"{NODES}/n", {"metadata": {"labels": {"x": "y"}}}, media=MERGE)[0] == 200
    assert account.call("PATCH", f"{NODES}/n/status", {"status": {}}, media=MERGE)[0] == 403
    account.may("patch", "nodes/status", cluster=True)
    assert account.call("PATCH", f"{NODES}/n/status", {"status": {}}, media=MERGE)[0] == 200


def test_a_right_may_be_for_named_objects_only(served: Served) -> None:
    served.make(MAPS, "mine")
    account = Account(served)
    account.may("get", "configmaps", names=("mine",))
    account.may("watch", "configmaps", names=("mine",))
    assert account.call("GET", f"{MAPS}/mine")[0] == 200
    assert account.call("GET", f"{MAPS}/yours")[0] == 403
    only_mine = {"watch": "1", "timeoutSeconds": "1", "fieldSelector": "metadata.name=mine"}
    assert account.call("GET", MAPS, params=only_mine)[0] == 200
    assert account.call("GET", MAPS, params={"watch": "1", "timeoutSeconds": "1"})[0] == 403


def test_a_cluster_role_bound_in_a_namespace_holds_there_only(served: Served) -> None:
    account = Account(served)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "worker"}
    served.make(f"{RBAC}/namespaces/default/rolebindings", "v", roleRef=reference, subjects=[subject])
    assert account.call("GET", PODS)[0] == 200
    assert account.call("GET", "api/v1/namespaces/kube-system/pods")[0] == 403
    assert account.call("POST", MAPS, {"metadata": {"name": "a"}})[0] == 403


def test_stars_cover_everything(served: Served) -> None:
    account = Account(served)
    account.may("*", "*", group="*", cluster=True)
    assert account.call("GET", NODES)[0] == 200
    assert account.call("POST", "apis/apps/v1/namespaces/default/deployments/x/status", {})[0] != 403


def test_apply_of_a_missing_object_needs_create(served: Served) -> None:
    account = Account(served)
    account.may("patch", "configmaps")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    options: dict[str, Any] = {"media": "application/apply-patch+yaml", "params": {"fieldManager": "t"}}
    assert account.call("PATCH", f"{MAPS}/a", body, **options)[0] == 403
    account.may("create", "configmaps")
    assert account.call("PATCH", f"{MAPS}/a", body, **options)[0] == 201


def asked(account: Account, **attributes: str) -> bool:
    body = {"spec": {"resourceAttributes": attributes}}
    code, answer = account.call("POST", "apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert code == 201
    return bool(answer["status"]["allowed"])


def test_access_reviews_answer_as_requests_would(served: Served) -> None:
    account = Account(served)
    account.may("create", "pods/exec")
    account.may("patch", "nodes", cluster=True, names=("n",))
    assert asked(account, verb="create", resource="pods", subresource="exec", namespace="default")
    assert not asked(account, verb="create", resource="pods", namespace="default")
    assert not asked(account, verb="create", resource="pods", subresource="exec", namespace="kube-system")
    assert asked(account, verb="patch", resource="nodes", name="n")
    assert not asked(account, verb="patch", resource="nodes")


def test_the_administrator_may_do_everything(served: Served) -> None:
    body = {"spec": {"resourceAttributes": {"verb": "delete", "resource": "nodes"}}}
    answer = served.ok("POST", "apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert answer["status"]["allowed"] is True


def test_rules_reviews_list_the_rules(served: Served) -> None:
    account = Account(served)
    account.may("list", "pods")
    path = "apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    code, answer = account.call("POST", path, {"spec": {"namespace": "default"}})
    assert code == 201
    assert {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}.items() <= answer["status"]["resourceRules"][
        -1
    ].items()
    assert account.call("POST", path, {"spec": {}})[0] == 400
