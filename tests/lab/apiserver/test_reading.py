"""Lists: selectors, pages, forms; and what discovery tells clients."""

from typing import Any

import pytest

from tests.lab.apiserver.conftest import MAPS, NODES, PODS, Served, pod

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


@pytest.fixture
def nodes(served: Served) -> Served:
    for n in range(5):
        served.make(NODES, f"n{n}", metadata={"labels": {"odd": str(n % 2)}}, spec={"unschedulable": n == 3})
    return served


@pytest.mark.parametrize(
    ("parameters", "found"),
    [
        ({"labelSelector": "odd=1"}, ["n1", "n3"]),
        ({"labelSelector": "odd in (0),odd!=1"}, ["n0", "n2", "n4"]),
        ({"labelSelector": "!odd"}, []),
        ({"fieldSelector": "metadata.name=n2"}, ["n2"]),
        ({"fieldSelector": "spec.unschedulable=true"}, ["n3"]),
        ({"fieldSelector": "spec.unschedulable=false,metadata.name!=n0"}, ["n1", "n2", "n4"]),
        ({"labelSelector": "odd=1", "fieldSelector": "spec.unschedulable=true"}, ["n3"]),
    ],
)
def test_selectors(nodes: Served, parameters: dict[str, str], found: list[str]) -> None:
    assert names(nodes.ok("GET", NODES, params=parameters)) == found


@pytest.mark.parametrize(
    ("path", "selector"),
    [
        (PODS, "spec.priority=0"),
        (NODES, "status.phase=x"),
        (MAPS, "data.a=b"),
        (NODES, "metadata.namespace=x"),
        (NODES, "metadata.name"),
    ],
)
def test_an_unsupported_field_selector_is_400(served: Served, path: str, selector: str) -> None:
    code, answer = served.call("GET", path, params={"fieldSelector": selector})
    assert (code, answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("selector", ["a=b=c", "a in b", "a,,b", "=x", "a=-", "a in (b", "a=b,"])
def test_a_label_selector_that_is_none_is_400(served: Served, selector: str) -> None:
    assert served.call("GET", PODS, params={"labelSelector": selector})[0] == 400


def test_pages_together_are_the_whole_and_speak_of_one_revision(nodes: Served) -> None:
    found, revisions, token = [], set(), ""
    while True:
        page = nodes.ok("GET", NODES, params={"limit": "2", "continue": token})
        found += names(page)
        revisions.add(page["metadata"]["resourceVersion"])
        nodes.make(MAPS, f"noise{len(found)}")
        token = page["metadata"].get("continue", "")
        if not token:
            break
        assert page["metadata"]["remainingItemCount"] == 5 - len(found)
    assert found == ["n0", "n1", "n2", "n3", "n4"]
    assert len(revisions) == 1


@pytest.mark.parametrize("parameters", [{"limit": "-1"}, {"limit": "x"}, {"continue": "?"}, {"continue": "W10="}])
def test_a_page_that_cannot_be_is_400(nodes: Served, parameters: dict[str, str]) -> None:
    assert nodes.call("GET", NODES, params=parameters)[0] == 400


def test_a_list_names_its_kind_and_revision(served: Served) -> None:
    answer = served.ok("GET", PODS)
    assert (answer["kind"], answer["apiVersion"], answer["items"]) == ("PodList", "v1", [])
    assert int(answer["metadata"]["resourceVersion"]) > 0


def test_a_revision_from_the_future_is_504(served: Served) -> None:
    code, answer = served.call("GET", PODS, params={"resourceVersion": "999999"})
    assert (code, answer["reason"]) == (504, "Timeout")


def test_lists_keep_to_their_namespace(served: Served) -> None:
    served.make(MAPS, "a")
    served.make("api/v1/namespaces/kube-system/configmaps", "b")
    served.make("api/v1/namespaces", "default2")
    served.make("api/v1/namespaces/default2/configmaps", "c")
    assert names(served.ok("GET", MAPS)) == ["a"]
    assert names(served.ok("GET", "api/v1/configmaps")) == ["a", "c", "b"]


def test_a_table_has_columns_rows_and_their_metadata(nodes: Served) -> None:
    answer = nodes.ok("GET", NODES, headers=TABLE)
    assert answer["kind"] == "Table"
    columns = [c["name"] for c in answer["columnDefinitions"]]
    rows = {row["cells"][0]: dict(zip(columns, row["cells"], strict=True)) for row in answer["rows"]}
    assert rows["n3"]["Status"] == "NotReady,SchedulingDisabled"
    assert answer["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("include", "kind"), [("Object", "Pod"), ("Metadata", "PartialObjectMetadata"), ("None", None)]
)
def test_a_tables_rows_carry_what_was_asked_for(served: Served, include: str, kind: str | None) -> None:
    served.ok("POST", PODS, pod())
    (row,) = served.ok("GET", f"{PODS}", headers=TABLE, params={"includeObject": include})["rows"]
    assert row.get("object", {}).get("kind") == kind


def test_metadata_alone(nodes: Served) -> None:
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    answer = nodes.ok("GET", NODES, headers=accept)
    assert answer["kind"] == "PartialObjectMetadataList"
    assert all(item.keys() == {"kind", "apiVersion", "metadata"} for item in answer["items"])


def test_every_resource_that_discovery_names_can_be_asked_for(served: Served) -> None:
    groups = ["api/v1"]
    for group in served.ok("GET", "apis")["groups"]:
        groups += [f"apis/{version['groupVersion']}" for version in group["versions"]]
    for group in groups:
        for row in served.ok("GET", group)["resources"]:
            if "/" not in row["name"] and "list" in row["verbs"]:
                assert served.ok("GET", f"{group}/{row['name']}")["kind"] == row["kind"] + "List"


def test_openapi_names_each_kind_with_field_validation(served: Served) -> None:
    for path in served.ok("GET", "openapi/v3")["paths"]:
        document = served.ok("GET", f"openapi/v3/{path}")
        for item in document["paths"].values():
            assert item["patch"]["x-kubernetes-group-version-kind"]["kind"]
            assert "fieldValidation" in {parameter["name"] for parameter in item["patch"]["parameters"]}


@pytest.mark.parametrize("path", ["version", "api", "apis", "apis/apps", "api/v1", "readyz", "livez", "healthz"])
def test_pages_of_the_server(served: Served, path: str) -> None:
    assert served.call("GET", path)[0] == 200


@pytest.mark.parametrize("path", ["", "x", "apis/none", "apis/none/v1", "api/v2", "api/v1/nothings", "openapi/v1"])
def test_pages_that_are_not_there(served: Served, path: str) -> None:
    code, answer = served.call("GET", path)
    assert (code, answer["kind"]) == (404, "Status")


def test_usage_of_nodes_and_running_pods(nodes: Served) -> None:
    assert len(nodes.ok("GET", "apis/metrics.k8s.io/v1beta1/nodes")["items"]) == 5
    nodes.ok("POST", PODS, pod())
    assert nodes.ok("GET", "apis/metrics.k8s.io/v1beta1/pods")["items"] == []
    assert nodes.call("GET", "apis/metrics.k8s.io/v1beta1/nodes/ghost")[0] == 404
