"""The rules of the API that clients live by, asked for with bare requests: what is refused, how, and what stays."""

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.lab.battery.conftest import GROUP, PLURAL, REAL, VERSION, Json, pod_body, training
from tests.lab.conftest import ApiError, Lab

MERGE, STRATEGIC, JSON_PATCH = (f"application/{kind}-patch+json" for kind in ("merge", "strategic-merge", "json"))
LAB_HISTORY = 5000
APPLY = "application/apply-patch+yaml"


class Answer(NamedTuple):
    """What the server says: its code, the reason of a refusal, and the object or Status."""

    code: int
    reason: str
    body: Any


class Api(NamedTuple):
    """Bare requests in a namespace."""

    lab: Lab
    namespace: str

    def __call__(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Answer:
        """Ask; `path` is relative to the core API of the namespace, or begins with a slash."""
        url = path[1:] if path.startswith("/") else f"api/v1/namespaces/{self.namespace}/{path}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind}
        request = urllib.request.Request(f"{self.lab.url}/{url}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return Answer(answer.status, "", json.loads(answer.read() or "null"))
        except urllib.error.HTTPError as error:
            said = json.loads(error.read())
            return Answer(error.code, said.get("reason", ""), said)

    def config_map(self, name: str, **data: str) -> Json:
        """Make a ConfigMap."""
        return dict(self("POST", "configmaps", {"metadata": {"name": name}, "data": data}).body)

    def events(self, query: str, seconds: int = 1) -> list[Json]:
        """Watch the ConfigMaps for so long."""
        path = f"api/v1/namespaces/{self.namespace}/configmaps?watch=1&timeoutSeconds={seconds}&{query}"
        url = f"{self.lab.url}/{path}"
        with urllib.request.urlopen(url, timeout=20) as lines:
            return [json.loads(line) for line in lines]


@pytest.fixture
def api(lab: Lab, ns: str) -> Api:
    return Api(lab, ns)


def revision(obj: Json) -> str:
    return str(obj["metadata"]["resourceVersion"])


def test_a_watch_resumes_where_it_was(api: Api) -> None:
    first = api.config_map("a")
    api.config_map("b")
    api("DELETE", "configmaps/a")
    seen = [
        (event["type"], event["object"]["metadata"]["name"])
        for event in api.events(f"resourceVersion={revision(first)}")
    ]
    assert [each for each in seen if each[1] in "ab"] == [("ADDED", "b"), ("DELETED", "a")]


def forget(api: Api) -> None:
    """Change more than a lab's history holds; a real API server, restarted before, remembers nothing older."""
    if not REAL:
        api.config_map("a")
        connection = http.client.HTTPConnection(urlsplit(api.lab.url).netloc, timeout=20)
        for number in range(LAB_HISTORY + 1):
            path = f"{urlsplit(api.lab.url).path}/api/v1/namespaces/{api.namespace}/configmaps/a"
            body = json.dumps({"data": {"n": str(number)}})
            connection.request("PATCH", path, body, {"Content-Type": MERGE})
            connection.getresponse().read()
        connection.close()


@pytest.mark.slow
def test_a_watch_from_too_long_ago_is_gone(api: Api) -> None:
    forget(api)
    (event,) = api.events("resourceVersion=1")
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


def test_bookmarks_come_with_the_initial_events(api: Api) -> None:
    api.config_map("a")
    query = "allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&resourceVersion=0"
    seen = api.events(query, seconds=4)
    marks = [event["object"]["metadata"].get("annotations") for event in seen if event["type"] == "BOOKMARK"]
    assert {"k8s.io/initial-events-end": "true"} in marks
    assert "a" in [event["object"]["metadata"].get("name") for event in seen]


POD = pod_body("p", schedulerName="none")
NO_CONTAINERS = {"metadata": {"name": "p"}, "spec": {"containers": []}}
BAD, INVALID, MISSING = (400, "BadRequest"), (422, "Invalid"), (404, "NotFound")
REFUSED = {
    "a name with capitals": ("POST", "configmaps", {"metadata": {"name": "Name"}}, *INVALID),
    "no name": ("POST", "configmaps", {"metadata": {}}, *INVALID),
    "a label that is none": ("POST", "configmaps", {"metadata": {"name": "a", "labels": {"a": "b c"}}}, *INVALID),
    "a pod without containers": ("POST", "pods", NO_CONTAINERS, *INVALID),
    "a wrong type": ("POST", "configmaps", {"metadata": {"name": "a"}, "data": {"k": 1}}, *BAD),
    "no JSON": ("POST", "configmaps", b"{", *BAD),
    "an object of another kind": ("POST", "configmaps", {**POD, "kind": "Pod"}, *BAD),
    "another namespace": ("POST", "configmaps", {"metadata": {"name": "a", "namespace": "default"}}, *BAD),
    "an unknown dry run": ("POST", "configmaps?dryRun=Some", {"metadata": {"name": "a"}}, *INVALID),
    "no such resource": ("GET", "nothings", None, *MISSING),
    "no such method": ("PUT", "configmaps", {"metadata": {"name": "a"}}, 405, "MethodNotAllowed"),
    "a label selector that is none": ("GET", "pods?labelSelector=a%20b", None, *BAD),
    "a field that cannot be selected": ("GET", "pods?fieldSelector=spec.image=x", None, *BAD),
    "a replace of what is not there": ("PUT", "configmaps/a", {"metadata": {"name": "a"}}, *MISSING),
    "a deletion of what is not there": ("DELETE", "configmaps/a", None, *MISSING),
    "an eviction of what is not there": ("POST", "pods/p/eviction", {"metadata": {"name": "p"}}, *MISSING),
    "a log of what is not there": ("GET", "pods/p/log", None, *MISSING),
    "a continue token that is none": ("GET", "configmaps?limit=1&continue=x", None, *BAD),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(api: Api, case: tuple[str, str, Any, int, str]) -> None:
    method, path, body, code, reason = case
    assert api(method, path, body)[:2] == (code, reason)


def test_an_invalid_object_names_the_field(api: Api) -> None:
    causes = api("POST", "pods", NO_CONTAINERS).body["details"]["causes"]
    assert "spec.containers" in [each["field"] for each in causes]


def test_an_unknown_field_is_taken_and_kept(api: Api) -> None:
    """The lab has no schemas to know fields by."""
    made = api("POST", "configmaps?fieldValidation=Strict", {"metadata": {"name": "a"}, "unknown": 1})
    assert made.code == 201
    assert made.body["unknown"] == 1


def test_a_pods_command_cannot_be_changed_and_its_image_can(api: Api) -> None:
    api("POST", "pods", POD)
    image = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    assert api("PATCH", "pods/p", image, STRATEGIC).body["spec"]["containers"][0]["image"] == "other"
    command = {"spec": {"containers": [{"name": "main", "command": ["other"]}]}}
    assert api("PATCH", "pods/p", command, STRATEGIC)[:2] == (422, "Invalid")


PATCHES = {
    "merge": (MERGE, {"data": {"b": "2", "a": None}}, {"b": "2"}),
    "strategic": (STRATEGIC, {"data": {"b": "2", "a": None}}, {"b": "2"}),
    "json": (JSON_PATCH, [{"op": "move", "from": "/data/a", "path": "/data/b"}], {"b": "1"}),
}


@pytest.mark.parametrize(("kind", "patch", "data"), PATCHES.values(), ids=PATCHES)
def test_patches(api: Api, kind: str, patch: Any, data: Json) -> None:
    api.config_map("a", a="1")
    assert api("PATCH", "configmaps/a", patch, kind).body["data"] == data
    assert api("GET", "configmaps/a").body["data"] == data


@pytest.mark.parametrize("op", [{"op": "remove", "path": "/data/x"}, {"op": "test", "path": "/data/a", "value": "2"}],
                         ids=["remove", "test"])  # fmt: skip
def test_a_json_patch_that_does_not_apply_changes_nothing(api: Api, op: Json) -> None:
    api.config_map("a", a="1")
    before = api("GET", "configmaps/a").body
    patch = [{"op": "add", "path": "/data/b", "value": "2"}, op]
    assert api("PATCH", "configmaps/a", patch, JSON_PATCH)[:2] == (422, "Invalid")
    assert api("GET", "configmaps/a").body == before


def test_a_patch_with_an_old_revision_conflicts(api: Api) -> None:
    old = revision(api.config_map("a"))
    api("PATCH", "configmaps/a", {"data": {"k": "1"}}, MERGE)
    patch = {"metadata": {"resourceVersion": old}, "data": {"k": "2"}}
    assert api("PATCH", "configmaps/a", patch, MERGE)[:2] == (409, "Conflict")


def test_a_patch_that_changes_nothing_leaves_the_revision(api: Api) -> None:
    made = api.config_map("a", k="1")
    assert revision(api("PATCH", "configmaps/a", {"data": {"k": "1"}}, MERGE).body) == revision(made)


@pytest.mark.parametrize("wrong", ["uid", "resourceVersion"])
def test_a_deletion_of_another_object_conflicts(api: Api, wrong: str) -> None:
    api.config_map("a")
    options = {"preconditions": {wrong: "1"}}
    assert api("DELETE", "configmaps/a", options)[:2] == (409, "Conflict")
    assert api("GET", "configmaps/a").code == 200


@pytest.mark.usefixtures("trainings")
def test_custom_objects_take_no_strategic_patch(api: Api) -> None:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{api.namespace}/{PLURAL}"
    api("POST", path, training("t"))
    assert api("PATCH", f"{path}/t", {"spec": {"a": 1}}, STRATEGIC)[:2] == (415, "UnsupportedMediaType")
    assert api("PATCH", f"{path}/t", {"spec": {"a": 1}}, MERGE).body["spec"] == {"a": 1}


def apply(api: Api, manager: str, query: str = "", **data: str) -> Answer:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    return api("PATCH", f"configmaps/a?fieldManager={manager}{query}", body, APPLY)


def test_apply_makes_and_then_changes(api: Api) -> None:
    assert apply(api, "one", k="1").code == 201
    assert apply(api, "one", k="2").code == 200


def test_apply_conflicts_with_another_owner_and_names_it(api: Api) -> None:
    apply(api, "one", k="1")
    refused = apply(api, "two", k="2")
    assert refused[:2] == (409, "Conflict")
    (cause,) = refused.body["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.k")
    assert '"one"' in cause["message"]
    assert apply(api, "two", "&force=true", k="2").body["data"] == {"k": "2"}


def test_what_is_no_longer_applied_goes_unless_shared(api: Api) -> None:
    apply(api, "one", mine="1", shared="1")
    apply(api, "two", shared="1")
    assert apply(api, "one").body["data"] == {"shared": "1"}


def test_apply_needs_a_manager(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    assert api("PATCH", "configmaps/a", body, APPLY).code in (400, 422)


def test_dry_runs_leave_nothing(api: Api) -> None:
    made = api.config_map("a", k="1")
    assert api("PATCH", "configmaps/a?dryRun=All", {"data": {"k": "2"}}, MERGE).body["data"] == {"k": "2"}
    assert api("DELETE", "configmaps/a?dryRun=All").code == 200
    assert apply(api, "one", "&dryRun=All&force=true", k="3").code == 200
    assert api("GET", "configmaps/a").body == made


def budget(api: Api, **spec: Any) -> None:
    path = f"/apis/policy/v1/namespaces/{api.namespace}/poddisruptionbudgets"
    api("POST", path, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "train"}}, **spec}})
    api.lab.wait(path[1:], "b", lambda it: "observedGeneration" in it.get("status", {}))


@pytest.mark.usefixtures("trainer")
def test_a_budget_says_why(api: Api) -> None:
    budget(api, minAvailable=1)
    refused = api("POST", "pods/trainer/eviction", {"metadata": {"name": "trainer"}})
    assert refused[:2] == (429, "TooManyRequests")
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in api("GET", "pods/trainer").body["metadata"]


@pytest.mark.usefixtures("trainer")
def test_a_budget_that_allows_one_lets_one_go(api: Api) -> None:
    budget(api, minAvailable=0)
    body = {"metadata": {"name": "trainer"}}
    assert api("POST", "pods/trainer/eviction?dryRun=All", body).code == 201
    assert "deletionTimestamp" not in api("GET", "pods/trainer").body["metadata"]
    assert api("POST", "pods/trainer/eviction", body).code == 201


@pytest.fixture
def stubborn(lab: Lab, api: Api) -> Iterator[str]:
    """A running pod that does not end when asked to."""
    command = ["sh", "-c", "trap : TERM; while :; do sleep 0.1; done"]
    api("POST", "pods", pod_body("stubborn", command=command, restartPolicy="Never"))
    lab.wait_phase("stubborn", "Running", api.namespace)
    yield "stubborn"
    api("DELETE", "pods/stubborn", {"gracePeriodSeconds": 0})


def test_a_deletion_has_its_grace_and_a_second_one_can_only_shorten_it(api: Api, stubborn: str) -> None:
    meta = api("DELETE", f"pods/{stubborn}", {"gracePeriodSeconds": 100}).body["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 100
    assert meta["deletionTimestamp"]
    for asked, left in ((50, 50), (80, 50)):
        meta = api("DELETE", f"pods/{stubborn}", {"gracePeriodSeconds": asked}).body["metadata"]
        assert meta["deletionGracePeriodSeconds"] == left


def test_what_does_not_end_is_killed_after_its_grace(api: Api, lab: Lab, stubborn: str) -> None:
    api("DELETE", f"pods/{stubborn}", {"gracePeriodSeconds": 1})
    lab.wait_gone(f"api/v1/namespaces/{api.namespace}/pods", stubborn)


def test_without_grace_a_pod_is_gone_at_once(api: Api, stubborn: str) -> None:
    assert api("DELETE", f"pods/{stubborn}", {"gracePeriodSeconds": 0}).code == 200
    assert api("GET", f"pods/{stubborn}").code == 404


def test_a_followed_log_ends_with_its_container(api: Api, lab: Lab) -> None:
    body = pod_body("p", command=["sh", "-c", "for n in 1 2 3; do echo $n; sleep 0.2; done"], restartPolicy="Never")
    api("POST", "pods", body)
    lab.wait(f"api/v1/namespaces/{api.namespace}/pods", "p", lambda pod: pod["status"]["phase"] != "Pending")
    assert lab.logs("p", api.namespace, "follow=true") == "1\n2\n3\n"
    assert lab.logs("p", api.namespace, "limitBytes=3") == "1\n2"
    assert lab.logs("p", api.namespace, "timestamps=true&tailLines=1").partition(" ")[2] == "3\n"
    with pytest.raises(ApiError, match="container nobody is not valid for pod p"):
        lab.logs("p", api.namespace, "container=nobody")


def allowed(api: Api, verb: str, resource: str, name: str = "") -> bool:
    """Ask whether the namespace's ServiceAccount `reader` may do something."""
    attributes = {"namespace": api.namespace, "verb": verb, "resource": resource, "name": name}
    user = f"system:serviceaccount:{api.namespace}:reader"
    review = {"spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}}
    answer = api("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer.body["status"]["allowed"])


def test_an_account_may_what_its_role_says_and_nothing_else(api: Api) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{api.namespace}"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": api.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    api("POST", f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    assert not allowed(api, "get", "configmaps", "one")
    api("POST", f"{rbac}/rolebindings", {"metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]})
    assert allowed(api, "get", "configmaps", "one")
    for verb, resource, name in (("get", "configmaps", "two"), ("list", "configmaps", ""), ("get", "secrets", "one")):
        assert not allowed(api, verb, resource, name)
