"""The pure parts of kubelet and scheduler: log selection, `$(VAR)`, local paths, phases, placement, devices."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.lab.controllers.placement import extended_requests, matches_affinity, tolerates, why_no_room
from chaos_gpu.lab.controllers.small import budget_status
from chaos_gpu.lab.kubelet.devices import Devices, gpus_of
from chaos_gpu.lab.kubelet.fields import Mount, expand, field_value, localise
from chaos_gpu.lab.kubelet.logs import Line, LogReadOptions, parse, render, select
from chaos_gpu.lab.kubelet.status import ContainerRecord, PodRecord, phase_of, terminated

T = "2026-01-01T00:00:0{}.000000000Z"


# logs

LINES = [Line(T.format(n), f"line {n}\n".encode()) for n in range(5)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LogReadOptions(), "01234"),
        (LogReadOptions(tail_lines=2), "34"),
        (LogReadOptions(tail_lines=0), ""),
        (LogReadOptions(since=datetime(2026, 1, 1, 0, 0, 3, tzinfo=UTC)), "34"),
        (LogReadOptions(since=datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC), tail_lines=3), "234"),
    ],
)
def test_log_selection(options, expected):
    assert "".join(line.text[5:6].decode() for line in select(LINES, options)) == expected


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=10), st.integers(0, 12))
def test_tail_counts_lines_and_never_tears_one(texts, count):
    file = b"".join(b"%s stdout F %s\n" % (T.format(0).encode(), text) for text in texts)
    whole = b"".join(text + b"\n" for text in texts)
    assert render(list(parse(file)), timestamps=False) == whole
    tail = render(select(parse(file), LogReadOptions(tail_lines=count)), timestamps=False)
    assert tail == b"".join(text + b"\n" for text in texts[max(0, len(texts) - count) :])


def test_a_line_in_parts_is_one_line():
    file = b"t stdout P first half \nt stdout F second half\nt stderr P no end\n"
    assert render(list(parse(file)), timestamps=False) == b"first half second half\nno end"
    assert render(select(parse(file), LogReadOptions(tail_lines=2)), timestamps=False).startswith(b"first half")


# fields


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$(B)", "$(B)"),
        ("$A $$ $", "$A $ $"),
        ("$($(A))", "$($(A))"),
        ("x$(A)y", "x1y"),
    ],
)
def test_expansion(text, expected):
    assert expand(text, {"A": "1"}) == expected


@given(st.text().filter(lambda text: "$" not in text))
def test_expansion_leaves_other_text_alone(text):
    assert expand(text, {"A": "1"}) == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("/etc/p", "/local/outer"),
        ("/etc/p/x", "/local/outer/x"),
        ("/etc/p/inner/x", "/local/inner/x"),
        ("/etc/pa", "/etc/pa"),
        ("--file=/etc/p/x", "--file=/etc/p/x"),
        ("", ""),
    ],
)
def test_paths_of_mounts_become_local(value, expected):
    mounts = [Mount("/etc/p", Path("/local/outer")), Mount("/etc/p/inner", Path("/local/inner"))]
    assert localise(value, mounts) == expected


def test_all_annotations_as_a_file():
    pod = {"metadata": {"annotations": {"b": 'say "hi"\n', "a": "1"}}, "spec": {}}
    assert field_value(pod, "metadata.annotations") == 'a="1"\nb="say \\"hi\\"\\n"'


# phases


def container(state: str | int | None) -> ContainerRecord:
    record = ContainerRecord("c", "x")
    if state == "running":
        record.state = {"running": {}}
    elif state == "restarting":
        record.last_state = {"terminated": {"exitCode": 1}}
    elif isinstance(state, int):
        record.state = terminated(state, "", "", "")
    return record


@pytest.mark.parametrize(
    ("policy", "init", "main", "terminating", "phase"),
    [
        ("Never", [], [None], False, "Pending"),
        ("Never", [], ["running"], False, "Running"),
        ("Never", [], [0], False, "Succeeded"),
        ("Never", [], [0, 1], False, "Failed"),
        ("Never", [], [1, "running"], False, "Running"),
        ("OnFailure", [], [1], False, "Running"),
        ("OnFailure", [], [0], False, "Succeeded"),
        ("Always", [], [0], False, "Running"),
        ("Always", [], ["restarting"], False, "Running"),
        ("Always", [], [0], True, "Succeeded"),
        ("Always", [], [143], True, "Failed"),
        ("Always", ["running"], [None], False, "Pending"),
        ("Never", [1], [None], False, "Failed"),
        ("OnFailure", [1], [None], False, "Pending"),
        ("Never", [0], ["running"], False, "Running"),
    ],
)
def test_phase(policy, init, main, terminating, phase):
    records = [container(state) for state in main]
    inits = [container(state) for state in init]
    assert phase_of(PodRecord(policy, records, inits, "", "", "", terminating=terminating)) == phase


# placement


@pytest.mark.parametrize(
    ("toleration", "holds"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"value": "v"}, False),
    ],
)
def test_toleration(toleration, holds):
    assert tolerates([toleration], {"key": "k", "value": "v", "effect": "NoSchedule"}) is holds


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "a", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "a", "operator": "NotIn", "values": ["1"]}, False),
        ({"key": "b", "operator": "NotIn", "values": ["1"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "b", "operator": "DoesNotExist"}, True),
        ({"key": "a", "operator": "Gt", "values": ["0"]}, True),
        ({"key": "a", "operator": "Lt", "values": ["0"]}, False),
        ({"key": "b", "operator": "Gt", "values": ["0"]}, False),
    ],
)
def test_affinity(expression, holds):
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert matches_affinity(spec, {"metadata": {"name": "n", "labels": {"a": "1"}}}) is holds


def test_an_empty_term_matches_nothing():
    required = {"nodeSelectorTerms": [{}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert not matches_affinity(spec, {"metadata": {"name": "n"}})


def with_gpus(*containers: int, init: tuple[int, ...] = ()) -> dict:
    def make(count):
        return {"resources": {"limits": {"nvidia.com/gpu": str(count), "cpu": "2"}}}

    return {"containers": [make(n) for n in containers], "initContainers": [make(n) for n in init]}


def test_containers_add_up_and_init_containers_do_not():
    assert extended_requests(with_gpus(1, 2, init=(2, 1))) == {"nvidia.com/gpu": 3}
    assert extended_requests(with_gpus(1, init=(4,))) == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("wanted", "phase", "fits"), [(4, "Running", True), (5, "Running", False), (8, "Failed", True)]
)
def test_room(wanted, phase, fits):
    node = {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    others = [{"spec": with_gpus(4), "status": {"phase": phase}}]
    assert (why_no_room(with_gpus(wanted), node, others) == "") is fits


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=30))
def test_devices_are_never_given_out_twice(steps):
    devices = Devices(gpus_of(0))
    held: dict[str, list] = {}
    for pod, count in steps:
        if count == 0:
            devices.release(pod)
            held.pop(pod, None)
            continue
        given_out = devices.allocate(pod, count)
        in_use = [gpu for gpus in held.values() for gpu in gpus]
        assert (given_out is None) == (len(in_use) + count > 8)
        if given_out:
            assert not set(given_out) & set(in_use)
            held.setdefault(pod, []).extend(given_out)


def test_addresses_and_uuids_differ_over_the_fleet():
    fleet = [gpu for index in range(4) for gpu in gpus_of(index)]
    assert len({gpu.pci for gpu in fleet}) == len({gpu.uuid for gpu in fleet}) == 32
    assert fleet == [gpu for index in range(4) for gpu in gpus_of(index)]


@pytest.mark.parametrize(
    ("spec", "healthy", "allowed"),
    [
        ({"minAvailable": 1}, 3, 2),
        ({"minAvailable": "50%"}, 3, 1),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": 1}, 2, 0),
        ({"maxUnavailable": "34%"}, 3, 2),
        ({"minAvailable": 3}, 3, 0),
    ],
)
def test_disruptions_allowed(spec, healthy, allowed):
    pods = [
        {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": str(n < healthy)}]}} for n in range(3)
    ]
    assert budget_status({"metadata": {}, "spec": spec}, pods)["disruptionsAllowed"] == allowed
