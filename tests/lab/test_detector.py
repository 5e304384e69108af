"""The detector, healthy and with each planted defect, through real processes and the API."""

import ast
import contextlib
import json
import sys
import time
import types
import urllib.request

import pytest

from chaos_gpu.lab.defects import DEFECTS
from chaos_gpu.lab.platform.manifests import AGENT, NAMESPACE, PROFILE, agent_source, journal_objects
from chaos_gpu.lab.platform.policy import POLICY

from .conftest import DEADLINE_S, Lab

NODES = "api/v1/nodes"
ANNOTATION = "gpu-health.lab/cordoned-by"
NODE = "gpu-node-1"
OTHER = "gpu-node-2"
CORDON_S = 0.6


def condition(node):
    return next((c for c in node["status"]["conditions"] if c["type"] == "GpuXidError"), {"status": "absent"})


def note(node):
    return json.loads((node["metadata"].get("annotations") or {}).get(ANNOTATION, "null"))


def is_cordoned(node):
    return bool(node["spec"].get("unschedulable"))


def is_back(node):
    return not is_cordoned(node) and note(node) is None and condition(node)["status"] != "True"


def xid(lab: Lab, code: int, text: str = "pid=4242, name=train, a fault", node: str = NODE, number: int = 0) -> str:
    """Write an Xid of a GPU to its node's kernel log; return the record's text."""
    record = f"NVRM: Xid (PCI:{lab.gpu(node, number)[0]}): {code}, {text}"
    lab.write_kmsg(node, f"<4>{record}\n".encode())
    return record


def agent_log(lab: Lab, node: str) -> list[dict]:
    """Return what the agent on a node has logged so far."""
    pods = lab.get(
        f"api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{AGENT}&fieldSelector=spec.nodeName={node}"
    )["items"]
    return [json.loads(line) for line in lab.logs(pods[0]["metadata"]["name"], NAMESPACE).splitlines()]


def follow_agent(lab: Lab, node: str, event: str, **facts) -> dict:
    """Wait for a line of the agent's log."""
    end = time.monotonic() + DEADLINE_S
    pods = lab.get(
        f"api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{AGENT}&fieldSelector=spec.nodeName={node}"
    )["items"]
    path = f"{lab.url}/{lab.pod_path(pods[0]['metadata']['name'], NAMESPACE)}/log?follow=true"
    with urllib.request.urlopen(path, timeout=DEADLINE_S) as lines:
        for line in lines:
            said = json.loads(line)
            if said["event"] == event and facts.items() <= said.items():
                return said
            assert time.monotonic() < end
    raise AssertionError(f"the agent never said {event}")


def events_of(lab: Lab, reason: str, text: str) -> list[dict]:
    items = lab.get("api/v1/namespaces/default/events")["items"]
    return [event for event in items if event["reason"] == reason and text in event["message"]]


# healthy


def test_a_fatal_xid_takes_the_node_out_with_evidence_and_gives_it_back(lab):
    pci, uuid = lab.gpu(NODE)
    record = xid(lab, 48, "pid=1, name=é\\train, DBE")
    cordoned = lab.wait(NODES, NODE, is_cordoned)
    assert condition(cordoned)["status"] == "True"
    assert condition(cordoned)["reason"] == "Xid48"
    for part in (record, pci, uuid):
        assert part in condition(cordoned)["message"]
    said = note(cordoned)
    assert said["at"]
    assert said | {"at": ""} == {
        "detector": AGENT, "code": 48, "pci": pci, "gpu": uuid, "record": record, "at": ""
    }  # fmt: skip
    back = lab.wait(NODES, NODE, is_back)
    assert (condition(back)["status"], condition(back)["reason"]) == ("False", "Healthy")
    assert all(is_back(node) for node in lab.get(NODES)["items"] if node["metadata"]["name"] != NODE)


def test_it_comes_back_one_second_after_the_later_of_record_and_cordon(lab):
    first = follow_after(lab, lambda: xid(lab, 79, "one"), "cordoned")
    xid(lab, 79, "another")
    returned = follow_agent_after(lab, first, "returned")
    second = [line for line in agent_log(lab, NODE) if line["event"] == "record"][-1]
    assert second["text"].endswith("another")
    assert returned["sent_us"] - second["usec"] >= 1_000_000
    lab.wait(NODES, NODE, is_back)


def follow_after(lab, act, event):
    """Do something, and wait for the first new line of this kind in the agent's log."""
    before = agent_log(lab, NODE)[-1]
    act()
    return follow_agent_after(lab, before, event)


def follow_agent_after(lab, line, event):
    pods = lab.get(
        f"api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{AGENT}&fieldSelector=spec.nodeName={NODE}"
    )["items"]
    path = f"{lab.url}/{lab.pod_path(pods[0]['metadata']['name'], NAMESPACE)}/log?follow=true"
    with urllib.request.urlopen(path, timeout=DEADLINE_S) as lines:
        for raw in lines:
            said = json.loads(raw)
            if said["event"] == event and said["monotonic_us"] > line["monotonic_us"]:
                return said
    raise AssertionError(f"the agent never said {event}")


def test_its_own_log_gives_the_times_of_record_and_cordon(lab):
    before = time.monotonic_ns() // 1000
    cordoned = follow_after(lab, lambda: xid(lab, 74), "cordoned")
    assert before <= cordoned["usec"] <= cordoned["sent_us"] <= cordoned["monotonic_us"] <= time.monotonic_ns() // 1000
    kernel = [line for line in (lab.root / "nodes" / NODE / "kmsg").read_text().splitlines() if "): 74," in line][-1]
    assert kernel.split(",")[1:3] == [str(cordoned["seq"]), str(cordoned["usec"])]
    lab.wait(NODES, NODE, is_back)


@pytest.mark.parametrize("code", [13, 31, 43])
def test_an_application_xid_is_an_event_and_nothing_else(lab, code):
    lab.wait(NODES, NODE, lambda node: is_back(node) and not node["spec"].get("taints"))
    versions = {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in lab.get(NODES)["items"]}
    record = follow_after(lab, lambda: xid(lab, code, "pid=7, name=app, SM exception"), "event")
    assert record["code"] == code
    (event,) = events_of(lab, f"Xid{code}", "SM exception")
    assert event["involvedObject"]["name"] == NODE
    assert event["type"] == "Warning"
    now = {node["metadata"]["name"]: node["metadata"]["resourceVersion"] for node in lab.get(NODES)["items"]}
    assert now == versions


def test_an_unknown_code_counts_as_fatal(lab):
    xid(lab, 999, "never heard of")
    lab.wait(NODES, NODE, is_cordoned)
    lab.wait(NODES, NODE, is_back)


def test_a_foreign_cordon_is_neither_taken_over_nor_removed(lab):
    cordon = {"spec": {"unschedulable": True}}
    lab.request("PATCH", f"{NODES}/{NODE}", cordon, "application/merge-patch+json")
    try:
        xid(lab, 79)
        lab.wait(NODES, NODE, lambda node: condition(node)["status"] == "True")
        node = lab.wait(NODES, NODE, lambda node: condition(node)["status"] == "False")
        assert is_cordoned(node)
        assert note(node) is None
    finally:
        lab.request("PATCH", f"{NODES}/{NODE}", {"spec": {"unschedulable": None}}, "application/merge-patch+json")


def test_a_cordon_taken_over_by_someone_else_is_left_alone(lab):
    xid(lab, 79)
    lab.wait(NODES, NODE, is_cordoned)
    theirs = {"metadata": {"annotations": {ANNOTATION: '{"detector": "someone else"}'}}}
    lab.request("PATCH", f"{NODES}/{NODE}", theirs, "application/merge-patch+json")
    try:
        follow_agent(lab, NODE, "not-ours")
        assert is_cordoned(lab.get(f"{NODES}/{NODE}"))
    finally:
        undo = {"metadata": {"annotations": {ANNOTATION: None}}, "spec": {"unschedulable": None}}
        lab.request("PATCH", f"{NODES}/{NODE}", undo, "application/merge-patch+json")


def test_an_address_of_another_node_is_not_its_business(lab):
    pci, _ = lab.gpu(OTHER)
    lab.write_kmsg(NODE, f"<4>NVRM: Xid (PCI:{pci}): 79, elsewhere\n".encode())
    xid(lab, 13, "a later record of its own", node=NODE)
    follow_agent(lab, NODE, "record", text=f"NVRM: Xid (PCI:{lab.gpu(NODE)[0]}): 13, a later record of its own")
    assert all(is_back(node) for node in lab.get(NODES)["items"])
    assert not [line for line in agent_log(lab, NODE) if "elsewhere" in line.get("text", "")]


def test_a_restarted_agent_gives_back_what_its_predecessor_took(lab):
    xid(lab, 79)
    lab.wait(NODES, NODE, is_cordoned)
    pods = lab.get(
        f"api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{AGENT}&fieldSelector=spec.nodeName={NODE}"
    )["items"]
    lab.request("DELETE", lab.pod_path(pods[0]["metadata"]["name"], NAMESPACE), {"gracePeriodSeconds": 0})
    lab.wait(NODES, NODE, is_back)
    agents = f"apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
    lab.wait(agents, AGENT, lambda ds: ds["status"]["numberReady"] == 4)


def test_a_new_agent_does_not_act_on_records_from_before_its_start(lab):
    xid(lab, 79, "before")
    lab.wait(NODES, NODE, is_cordoned)
    lab.wait(NODES, NODE, is_back)
    pods = lab.get(
        f"api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{AGENT}&fieldSelector=spec.nodeName={NODE}"
    )["items"]
    lab.request("DELETE", lab.pod_path(pods[0]["metadata"]["name"], NAMESPACE), {"gracePeriodSeconds": 0})
    agents = f"apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
    lab.wait(agents, AGENT, lambda ds: ds["status"]["numberReady"] == 3)
    lab.wait(agents, AGENT, lambda ds: ds["status"]["numberReady"] == 4)
    xid(lab, 13, "after")
    follow_agent(lab, NODE, "event", code=13)
    seen = [line["text"] for line in agent_log(lab, NODE) if line["event"] == "record"]
    assert [text.rpartition(" ")[2] for text in seen] == ["after"]


def test_it_declares_itself_and_has_the_least_rights(lab):
    agent = lab.get(f"apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{AGENT}")
    assert agent["metadata"]["labels"]["chaos-gpu/detector"] == AGENT
    assert json.loads(agent["metadata"]["annotations"]["chaos-gpu/detector-profile"]) == PROFILE
    role = lab.get(f"apis/rbac.authorization.k8s.io/v1/clusterroles/{AGENT}")
    rights = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == {
        ("nodes", "get"),
        ("nodes", "list"),
        ("nodes", "patch"),
        ("nodes/status", "patch"),
        ("events", "create"),
    }


def test_the_journals_reader_declares_itself_and_may_not_cordon():
    objects = {obj["kind"]: obj for obj in journal_objects()}
    meta = objects["DaemonSet"]["metadata"]
    profile = json.loads(meta["annotations"]["chaos-gpu/detector-profile"])
    assert meta["labels"]["chaos-gpu/detector"] == "gpu-journal-watch"
    assert profile == {"transport": "bracket", "conditions": ["GpuXidInJournal"]}
    rules = objects["ClusterRole"]["rules"]
    rights = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert rights == {("nodes", "get"), ("nodes/status", "patch"), ("events", "create")}


def test_policy_is_complete_and_unambiguous():
    assert not set(POLICY["fatal"]) & set(POLICY["application"])
    assert {48, 64, 74, 79, 119, 120} <= set(POLICY["fatal"])
    assert {13, 31, 43} <= set(POLICY["application"])


# with planted defects


@contextlib.contextmanager
def defective(start_lab, name):
    with start_lab("--defect", name, env={"CHAOS_GPU_CORDON_S": str(CORDON_S)}) as lab:
        yield lab


def cordon_delay_us(lab: Lab, node: str = NODE) -> int:
    said = follow_agent(lab, node, "cordoned")
    return int(said["monotonic_us"] - said["usec"])


def ignores_74(lab):
    xid(lab, 74)
    xid(lab, 79)
    lab.wait(NODES, NODE, is_cordoned)
    assert [line["code"] for line in agent_log(lab, NODE) if line["event"] == "cordoned"] == [79]


def cordons_13(lab):
    xid(lab, 13)
    assert condition(lab.wait(NODES, NODE, is_cordoned))["reason"] == "Xid13"
    lab.wait(NODES, NODE, is_back)


def slow(lab):
    xid(lab, 79)
    assert cordon_delay_us(lab) >= 1.5e6 * CORDON_S
    lab.wait(NODES, NODE, is_back)


def cordons_wrong_node(lab):
    xid(lab, 79)
    assert note(lab.wait(NODES, OTHER, is_cordoned))["pci"] == lab.gpu(NODE)[0]
    assert not is_cordoned(lab.get(f"{NODES}/{NODE}"))
    lab.wait(NODES, OTHER, is_back)
    lab.wait(NODES, NODE, is_back)


def never_returns(lab):
    xid(lab, 79)
    lab.wait(NODES, NODE, is_cordoned)
    xid(lab, 13)  # an event later than the time to return shows that it would have been due
    cordoned = follow_agent(lab, NODE, "cordoned")
    while time.monotonic_ns() // 1000 < cordoned["monotonic_us"] + 2_000_000:
        assert is_cordoned(lab.get(f"{NODES}/{NODE}"))


def never_cordons(lab):
    xid(lab, 79)
    lab.wait(NODES, NODE, lambda node: condition(node)["status"] == "True")
    lab.wait(NODES, NODE, lambda node: condition(node)["status"] == "False")
    assert not [line for line in agent_log(lab, NODE) if line["event"] == "cordoned"]


def cordons_and_uncordons(lab):
    xid(lab, 79)
    returned = follow_agent(lab, NODE, "returned")
    cordoned = follow_agent(lab, NODE, "cordoned")
    assert returned["sent_us"] - cordoned["monotonic_us"] < 1_000_000
    assert is_back(lab.get(f"{NODES}/{NODE}"))


def unknown_harmless(lab):
    xid(lab, 171)
    assert follow_agent(lab, NODE, "event")["code"] == 171
    assert not [line for line in agent_log(lab, NODE) if line["event"] == "cordoned"]
    xid(lab, 79)
    lab.wait(NODES, NODE, is_cordoned)


def blind_to_mig(lab):
    pci = lab.gpu(NODE)[0]
    lab.write_kmsg(NODE, f"<4>NVRM: Xid (PCI:{pci} GPU-I:01 GPU-CI:00): 95, x\n".encode())
    xid(lab, 79)
    lab.wait(NODES, NODE, is_cordoned)
    assert [line["code"] for line in agent_log(lab, NODE) if line["event"] == "cordoned"] == [79]


def misses_every_second(lab):
    for code in (48, 74, 79):
        xid(lab, code)
        follow_agent(lab, NODE, "record", code=code)
    follow_agent(lab, NODE, "cordoned", code=79)
    codes = [line["reason"] for line in agent_log(lab, NODE) if line["event"] == "condition"]
    assert "Xid74" not in codes
    assert "Xid79" in codes


@pytest.mark.parametrize("name", [defect.name for defect in DEFECTS if defect.component == "detector"])
def test_planted_defect(start_lab, name):
    check = globals()[name.removeprefix("detector-").replace("-", "_")]
    with defective(start_lab, name) as lab:
        check(lab)
        assert name not in json.dumps(
            [lab.get(path) for path in ("api/v1/pods", "api/v1/nodes", "apis/apps/v1/daemonsets")]
        )


# records, without a cluster


@pytest.fixture(scope="module")
def detector():
    """The agent's single file, as pods run it."""
    module = types.ModuleType("gpu_health_agent")
    exec(compile(agent_source(), "detector.py", "exec"), module.__dict__)
    return module


def test_the_agent_is_one_file_without_anything_of_ours(detector):
    imported = {n for node in ast.walk(ast.parse(agent_source())) for n in imports(node)}
    assert imported <= sys.stdlib_module_names
    assert detector.main


def imports(node):
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    return [node.module.split(".")[0]] if isinstance(node, ast.ImportFrom) else []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", (79, "0000:3b:00")),
        ("NVRM: Xid (PCI:0000:3B:00): 48, pid=1, name=x, DBE", (48, "0000:3b:00")),
        ("[6085126.134786] NVRM: Xid (PCI:0002:00:00): 79, pid=1", None),
        ("NVRM: Xid (PCI:0002:00:00): 79, of another node's GPU is not ours", (79, "0002:00:00")),
        ("NVRM: Xid (PCI:0003:00:00): 79, of another node", None),
        ("NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.", (79, "0000:b3:00")),
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\n"
            "NVRM: fallen off the bus and is not responding to commands.",
            (79, "0000:b3:00"),
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 x", (24007, "0000:c3:00.0")),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Severity 1 Engine instance 28", None),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, Contained", (94, "0000:01:00")),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 13, x", (13, "0000:01:00")),
        ("NVRM: Xid (0000:01:00): 31, Ch 1", (31, "0000:01:00")),
        ("NVRM: Xid (PCI:0000:b3:00.0): 79, x", (79, "0000:b3:00")),
        ("NVRM: Xid (PCI:00000008:06:00.0): 119, x", (119, "0008:06:00")),
        ("NVRM: Xid (PCI:0000:01:00): 69", (69, "0000:01:00")),
        ("NVRM: Xid (PCI:0000:01:00): 79, two\nlines", (79, "0000:01:00")),
        ("python3: saw NVRM: Xid (PCI:0000:3b:00): 79, quoted", None),
        ("nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Data", None),
        ("NVRM: GPU at PCI:0000:91:00: GPU-uuid", None),
        ("NVRM: Xid (PCI:0000:01:00): x", None),
        ("", None),
    ],
)
def test_record_forms(detector, text, expected):
    gpus = dict.fromkeys(["0000:3b:00", "0002:00:00", "0000:01:00", "0000:b3:00", "0008:06:00"], "GPU-x")
    found = detector.read_kernel(detector.Record(1, 1, text), gpus)
    assert (found and (found.code, found.pci)) == expected


@pytest.mark.parametrize(
    ("text", "from_kernel", "expected"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, x", True, 79),
        ("NVRM: Xid (PCI:0000:3b:00): 79, x", False, None),
        ("[12.5] NVRM: Xid (PCI:0000:3b:00): 79, x", False, 79),
        ("[12.5] NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, x", False, None),
        ("[12.5] NVRM: Xid (0000:3b:00): 31, x", False, None),
        ("[12.5] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", False, None),
        ("[1.5] NVRM: The NVIDIA GPU 0000:3b:00.0\nNVRM: (PCI ID\nNVRM: fallen off the bus and", False, 79),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 x", False, None),
        ("[0.0] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 x", False, 24007),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Non-fatal, Link 28 x", True, 24007),
    ],
)
def test_what_the_journal_shows(detector, text, from_kernel, expected):
    found = detector.read_journal(detector.Record(1, 1, text, from_kernel), {"0000:3b:00": "GPU-x"})
    assert (found and found.code) == expected


@pytest.mark.parametrize(("code", "fatal"), [(13, False), (48, True), (171, True), (999, True)])
def test_a_code_that_nobody_knows_is_fatal(detector, tmp_path, code, fatal):
    def policy(*defects):
        (tmp_path / "platform.json").write_text(json.dumps({"policy": POLICY, "defects": defects}))
        return detector.Policy(str(tmp_path / "platform.json"))

    xid = detector.Xid(detector.Record(1, 1, ""), code, "", "")
    assert policy().is_fatal(xid) is fatal
    assert policy("detector-unknown-harmless").is_fatal(xid) is (code == 48)


def test_an_nvswitch_error_says_itself_whether_it_is_fatal(detector):
    head = "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): "
    for text, fatal in (("24007, Fatal, Link 28 x", True), ("28006, Non-fatal, Link 46 x", False)):
        found = detector.read_kernel(detector.Record(1, 1, head + text), {})
        assert detector.Policy("").is_fatal(found) is fatal
        assert found.told == f"SXid {text[:5]} on 0000:c3:00.0: {head}{text}"


def test_xid_154_is_about_its_new_action(detector, tmp_path):
    path = tmp_path / "platform.json"
    path.write_text(json.dumps({"policy": POLICY}))
    policy = detector.Policy(str(path))

    def is_fatal(text):
        return policy.is_fatal(detector.Xid(detector.Record(1, 1, text), 154, "", ""))

    head = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from"
    assert is_fatal(f"{head} 0x0 (None) to 0x1 (GPU Reset Required)")
    assert not is_fatal(f"{head} 0x1 (GPU Reset Required) to 0x0 (None)")


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (b"4,360,30750792,c;NVRM: x", (360, 30750792, "NVRM: x", True)),
        (b"12,5,7,-;a\\x0ab\\x5c", (5, 7, "a\nb\\", False)),
        (b"8,5,7,-;a", (5, 7, "a", False)),
        (b"7,5,7,-;a", (5, 7, "a", True)),
        (b"6,339,5140900,-,caller=T1;NVRM: y", (339, 5140900, "NVRM: y", True)),
        (b" SUBSYSTEM=pci", None),
        (b"no record", None),
        (b"", None),
    ],
)
def test_lines_of_the_kernel_log(detector, line, record):
    assert detector.parse_record(line) == record
