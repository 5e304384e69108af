"""Whatever a client sends, the answer is a Status, and the server lives on."""

import json
import socket
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos_gpu.lab.apiserver.bodies import MAX_BODY_BYTES, decode
from chaos_gpu.lab.apiserver.protobuf import MAGIC, decode_protobuf
from chaos_gpu.lab.apiserver.resources import Registry
from chaos_gpu.lab.apiserver.shapes import check_object
from chaos_gpu.lab.apiserver.status import StatusError
from tests.lab.apiserver.conftest import MAPS, NODES, PODS, Served, code_of, pod

MERGE = "application/merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def refused(answer: tuple[int, Any], *codes: int) -> None:
    assert answer[0] in codes
    assert answer[1]["kind"] == "Status"
    assert answer[1]["code"] == answer[0]
    assert answer[1]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"\xff\xfe",
        b'{"metadata": 1}',
        b'{"metadata": {"name": 1}}',
        b'{"metadata": {"name": "a", "labels": []}}',
        b'{"metadata": {"name": "a", "labels": {"x": 1}}}',
        b'{"metadata": {"name": "a", "annotations": {"x": {}}}}',
        b'{"metadata": {"name": "a", "finalizers": [1]}}',
        b'{"metadata": {"name": "a", "finalizers": [null]}}',
        b'{"metadata": {"name": "a", "ownerReferences": [{}]}}',
        b'{"metadata": {"name": "a"}, "data": {"x": NaN}}',
        b'{"metadata": {"name": "a"}, "spec": {"x": 1e999}}',
        b'{"metadata": {"name": "a"}, "data": []}',
        b'{"kind": 5, "metadata": {"name": "a"}}',
        b'{"metadata": {"name": "a"}, "data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 300 + b"1" + b"}" * 300,
        b'{"metadata": {"name": "a", "generation": ' + b"9" * 5000 + b"}}",
    ],
    ids=lambda body: repr(body[:40]),
)
def test_bodies_that_are_no_objects(served: Served, body: bytes) -> None:
    refused(served.call("POST", MAPS, body), 400)
    assert served.call("GET", f"{MAPS}/a")[0] == 404


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": {}},
        {"containers": [1]},
        {"containers": [{"name": 1, "image": "i"}]},
        {"containers": [{"name": "m", "image": "i", "command": "sh"}]},
        {"containers": [{"name": "m", "image": "i", "env": [{"name": "A", "value": 1}]}]},
        {"volumes": [1]},
        {"tolerations": ["x"]},
        {"terminationGracePeriodSeconds": "5"},
        {"hostNetwork": 1},
        {"nodeSelector": {"a": True}},
    ],
    ids=str,
)
def test_misshapen_pods(served: Served, spec: dict[str, Any]) -> None:
    refused(served.call("POST", PODS, pod(**spec)), 400)


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": []},
        {"containers": [{"name": "m"}]},
        {"containers": [{"name": "M", "image": "i"}]},
        {"containers": [{"name": "m", "image": "i"}, {"name": "m", "image": "i"}]},
        {"restartPolicy": "Sometimes"},
        {"terminationGracePeriodSeconds": -1},
    ],
    ids=str,
)
def test_invalid_pods(served: Served, spec: dict[str, Any]) -> None:
    refused(served.call("POST", PODS, pod(**spec)), 422)


@pytest.mark.parametrize(
    "name", ["A", "a_b", "-a", "a-", "a..b", "a/b", "..", "a" * 254, "a b", "a\n", "\u00e9", "a\x00", "%2e%2e", "a."]
)
def test_names_that_are_none(served: Served, name: str) -> None:
    refused(served.call("POST", MAPS, {"metadata": {"name": name}}), 422)


@pytest.mark.parametrize(("plural", "name"), [("namespaces", "a.b"), ("namespaces", "a" * 64)])
def test_namespaces_are_labels(served: Served, plural: str, name: str) -> None:
    refused(served.call("POST", f"api/v1/{plural}", {"metadata": {"name": name}}), 422)


def test_roles_may_have_colons_in_their_names(served: Served) -> None:
    served.make("apis/rbac.authorization.k8s.io/v1/clusterroles", "Chaos:run")


@pytest.mark.parametrize(
    "meta",
    [
        {"labels": {"a b": "x"}},
        {"labels": {"a": "x y"}},
        {"labels": {"a": "x" * 64}},
        {"labels": {"/a": "x"}},
        {"annotations": {"a b": "x"}},
        {"annotations": {"a": "x" * (256 * 1024)}},
        {"finalizers": ["a b"]},
    ],
    ids=lambda meta: repr(meta)[:40],
)
def test_invalid_metadata(served: Served, meta: dict[str, Any]) -> None:
    refused(served.call("POST", MAPS, {"metadata": {"name": "a", **meta}}), 422)


def test_annotations_may_be_256_kib_together(served: Served) -> None:
    served.make(MAPS, "a", metadata={"annotations": {"a": "x" * (256 * 1024 - 1)}})


def test_a_map_holds_one_mebibyte(served: Served) -> None:
    served.make(MAPS, "a", data={"k": "x" * ((1 << 20) - 1)})
    refused(served.call("POST", MAPS, {"metadata": {"name": "b"}, "data": {"k": "x" * (1 << 20)}}), 422)
    refused(served.call("PATCH", f"{MAPS}/a", {"data": {"l": "xx"}}, media=MERGE), 422)


def test_a_huge_body_is_413(served: Served) -> None:
    refused(served.call("POST", MAPS, b'{"metadata":{"name":"a"},"x":"' + b"x" * MAX_BODY_BYTES + b'"}'), 413)


@pytest.mark.parametrize("media", ["application/yaml", "application/cbor", "application/x-www-form-urlencoded"])
def test_other_formats_are_415(served: Served, media: str) -> None:
    refused(served.call("POST", MAPS, b"a: b", media=media), 415)


def test_protobuf_that_is_not_read_is_415_with_a_hint(served: Served) -> None:
    cron = b"\x0a\x13\x0a\x08batch/v1\x12\x07CronJob\x12\x00"
    answer = served.call("POST", "apis/batch/v1/namespaces/default/cronjobs", MAGIC + cron, media=PROTOBUF)
    refused(answer, 415)
    assert "kubectl apply -f -" in answer[1]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "api/v1/namespaces/../pods",
        "api/v1/namespaces/%2e%2e/pods/x",
        "api/v1/namespaces/default/pods/..%2f..%2fetc",
        "api/v1/namespaces/default/pods/a/b/c/d",
        "apis/..%2f/v1/x",
        "%00",
        "api/v1/nodes/%ff",
        "openapi/v3/../../x",
    ],
)
def test_paths_that_lead_nowhere(served: Served, path: str) -> None:
    base = served.url.removeprefix("http://")
    host, _, secret = base.partition("/")
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=10) as connection:
        connection.sendall(f"GET /{secret}/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.split(b" ", 2)[1] in (b"404", b"400")
    assert b"Traceback" not in answer


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE"])
def test_methods_that_there_are_not(served: Served, method: str) -> None:
    refused(served.call(method, NODES), 405)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", NODES, {}),
        ("POST", f"{PODS}/p", {}),
        ("DELETE", f"{PODS}/p/status", {}),
        ("PUT", f"{PODS}/p/log", {}),
        ("POST", "apis/metrics.k8s.io/v1beta1/nodes", {}),
        ("POST", f"{PODS}/p/nothing", {}),
    ],
)
def test_verbs_that_a_resource_has_not(served: Served, method: str, path: str, body: Any) -> None:
    served.ok("POST", PODS, pod())
    refused(served.call(method, path, body), 404, 405)


@pytest.mark.parametrize("flag", ["watch", "force"])
def test_booleans_that_are_none(served: Served, flag: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    options: dict[str, Any] = {"params": {flag: "maybe", "fieldManager": "t"}}
    if flag == "watch":
        refused(served.call("GET", MAPS, **options), 400)
    else:
        refused(served.call("PATCH", f"{MAPS}/a", body, media="application/apply-patch+yaml", **options), 400)


@pytest.mark.parametrize(
    "options", [[], {"gracePeriodSeconds": "x"}, {"preconditions": []}, {"gracePeriodSeconds": -5}], ids=str
)
def test_delete_options_that_are_none(served: Served, options: Any) -> None:
    served.ok("POST", PODS, pod(nodeName="n"))
    if options == []:
        options = [1]
    refused(served.call("DELETE", f"{PODS}/p", options), 400)
    served.ok("GET", f"{PODS}/p")


def test_a_lone_surrogate_comes_back_as_it_went_in(served: Served) -> None:
    served.ok("POST", MAPS, b'{"metadata": {"name": "a"}, "data": {"k": "\\ud800"}}')
    assert served.ok("GET", f"{MAPS}/a")["data"]["k"] == "\ud800"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
known = st.sampled_from(
    ["metadata", "spec", "status", "name", "labels", "containers", "template", "selector", "rules", "versions", "names"]
)
shaped = st.recursive(
    json_values, lambda inner: st.dictionaries(known, inner, max_size=5) | st.lists(inner, max_size=3), max_leaves=20
)
kinds = sorted(
    f"{'apis/' + r.group if r.group else 'api'}/{r.version}/{'namespaces/default/' if r.namespaced else ''}{r.plural}"
    for r in Registry()
    if "create" in r.verbs
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.sampled_from(kinds), st.sampled_from(["POST", "PUT", "PATCH"]), shaped)
def test_no_object_is_too_strange(served: Served, path: str, method: str, body: Any) -> None:
    where = path if method == "POST" else f"{path}/x"
    media = "application/json" if method != "PATCH" else MERGE
    code, answer = served.call(method, where, body, media=media)
    assert code < 500, answer


@given(st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()))
def test_any_bytes_are_json_or_400(raw: bytes) -> None:
    assert code_of(decode, raw) in (0, 400)


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_protobuf_or_refused(raw: bytes, magic: bool) -> None:
    assert code_of(decode_protobuf, (MAGIC if magic else b"") + raw) in (400, 415)


@given(st.sampled_from(list(Registry())), shaped)
def test_any_shape_is_taken_or_400(resource: Any, body: Any) -> None:
    assert code_of(check_object, resource, body) in (0, 400)


def test_errors_say_where(served: Served) -> None:
    with pytest.raises(StatusError, match=r"^spec\.containers\[0\]\.command: expected a list, found a string$"):
        check_object(
            next(r for r in Registry() if r.plural == "pods"),
            {"spec": {"containers": [{"name": "m", "command": "sh"}]}},
        )
