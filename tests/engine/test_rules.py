"""The pure rules: settings, guard arguments, targets, budgets, who watches, whose doing it is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos_gpu.criteria.attribution import names_record
from chaos_gpu.criteria.timeline import Landed
from chaos_gpu.errors import Refused, TargetError, UsageError
from chaos_gpu.faults.budget import check_blast_radius, check_repeats, exhausted, injections_per_gpu
from chaos_gpu.faults.detectors import Remediator, Watchers, _known_detector, _known_remediator
from chaos_gpu.faults.ledger import entry_of
from chaos_gpu.faults.preflight import check_remediators
from chaos_gpu.faults.rights import ENGINE, REVERTER_RIGHTS, rules
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.faults.targets import choose_gpu, gpu_count, gpu_selector, unfit, whole_gpus
from chaos_gpu.payloads import reactions

Json = dict[str, Any]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
SETTINGS = sorted(Settings.model_fields)
ARGUMENTS = sorted(GuardArguments.model_fields)


def read(reader: Callable[[Any], Any], value: Any) -> tuple[Any, UsageError | None]:
    """Return what was read, or the only error that may be raised."""
    try:
        return reader(value), None
    except UsageError as error:
        return None, error


# --- settings and arguments ------------------------------------------------------------------------------------------


@given(st.dictionaries(st.sampled_from(SETTINGS), ANYTHING, max_size=4))
def test_any_configuration_is_read_or_refused_with_a_remedy(configuration: Json) -> None:
    found, error = read(Settings.read, configuration)
    if error:
        assert error.remedy
    else:
        assert all(limit > 0 for limit in (found.lease_s, found.deadline_s, found.condition_s, found.cordon_s))
        assert found.selector.strip()
        assert found.reaction_s >= found.cordon_s


@given(st.sampled_from(SETTINGS), st.text(min_size=8, max_size=30))
def test_no_refusal_of_a_configuration_tells_the_value(key: str, secret: str) -> None:
    _, error = read(Settings.read, {key: {"password": f"<<{secret}>>"}})
    assert f"<<{secret}>>" not in str(error)


@given(st.dictionaries(st.sampled_from([*ARGUMENTS, "other"]), ANYTHING, max_size=3))
def test_any_guard_argument_is_read_or_refused(arguments: Json) -> None:
    found, error = read(GuardArguments.read, arguments)
    if error:
        assert error.remedy
    else:
        assert "other" not in arguments
        assert min(found.nodes, found.gpus, found.repeats_per_day) >= 1
        assert 0 < found.share_of_nodes <= 1


def test_the_defaults_are_those_of_the_house() -> None:
    found, guard = Settings.read({}), GuardArguments.read({})
    assert (found.lease_s, found.deadline_s, found.condition_s, found.cordon_s, found.uncordon_s) == (
        *(15, 600, 60),
        *(60, 300),
    )
    assert (guard.nodes, guard.gpus, guard.share_of_nodes, guard.repeats_per_day) == (1, 1, 0.1, 4)
    assert guard.allow_remediation == []


@pytest.mark.parametrize(
    "run", ["A", "-a", "a-", "a_b", "a.b", "a" * 33, "a\n", "ä", "a/b", "a b"], ids=lambda run: repr(run)
)
def test_run_ids_are_labels(run: str) -> None:
    with pytest.raises(UsageError, match="run id"):
        Settings.read({"run": run})


# --- targets ---------------------------------------------------------------------------------------------------------


@given(st.text(max_size=60) | st.from_regex(r"GPU-[0-9a-fA-F-]{30,40}") | st.from_regex(r"[0-9a-fA-F:.]{8,16}"))
def test_any_text_names_a_gpu_or_is_refused(text: str) -> None:
    found, error = read(gpu_selector, text)
    if error:
        assert error.remedy
    else:
        assert set(found) <= {"index", "pci", "uuid"}
        assert len(found) == (1 if text.strip() else 0)
        assert all(gpu_selector(value) == found for value in found.values()), "it names the same when read again"


NAMES = {
    "": {},
    " 3 ": {"index": "3"},
    "007": {"index": "7"},
    "0000:3b:00": {"pci": "0000:3b:00"},
    "0000:3B:00.0": {"pci": "0000:3b:00"},
    "00000000:3B:00.0": {"pci": "0000:3b:00"},
    "GPU-01234567-89ab-cdef-0123-456789abcdef": {"uuid": "GPU-01234567-89ab-cdef-0123-456789abcdef"},
}


@pytest.mark.parametrize(("text", "named"), NAMES.items())
def test_the_usual_names(text: str, named: Json) -> None:
    assert gpu_selector(text) == named


@pytest.mark.parametrize("text", ["-1", "1.5", "GPU-0", "3b:00.0", "0000:3b:00.1", "MIG-01234567", "٣", "0x1", "1e2"])
def test_what_names_no_gpu(text: str) -> None:
    with pytest.raises(UsageError, match="names no GPU"):
        gpu_selector(text)


def node(labels: Json | None = None, **spec: Any) -> Json:
    ready = [{"type": "Ready", "status": "True"}]
    gpus = {"nvidia.com/gpu.count": "2"}
    meta = {"name": "n", "uid": "u", "labels": gpus if labels is None else labels}
    return {"metadata": meta, "spec": spec, "status": {"conditions": ready, "capacity": {}}}


def raised(kind: str, status: str) -> Json:
    found = node()
    found["status"]["conditions"].append({"type": kind, "status": status})
    return found


UNFIT = [
    (node(unschedulable=True), "cordoned already"),
    (raised("Ready", "False"), "not Ready"),
    (raised("GpuBad", "True"), "GpuBad is already raised"),
    (raised("GpuReady", "False"), "GpuReady is already raised"),
    (node({"chaos-gpu/protected": "true"}), "opted out"),
    (node({"nvsentinel.dgxc.nvidia.com/managed": "false"}), "opted out"),
    (node({"node-role.kubernetes.io/master": ""}), "control-plane"),
    (node(), ""),
    (raised("GpuBad", "False"), ""),
    (raised("GpuReady", "True"), ""),
    (node({"chaos-gpu/protected": "false"}), ""),
]


@pytest.mark.parametrize(("found", "why"), UNFIT)
def test_which_nodes_are_fit(found: Json, why: str) -> None:
    said = unfit(found, ["GpuBad", "GpuReady=False"])
    assert why in said
    assert bool(why) == bool(said)


@given(st.text(max_size=5), st.text(max_size=5))
def test_counting_gpus_never_stumbles(by_label: str, by_capacity: str) -> None:
    found = node({"nvidia.com/gpu.count": by_label})
    found["status"]["capacity"] = {"nvidia.com/gpu": by_capacity}
    assert gpu_count(found) >= 0


@pytest.mark.parametrize(("strategy", "count"), [({}, 7), ("none", 7), ("single", 0), ("mixed", 0)])
def test_slices_are_no_whole_gpus(strategy: Any, count: int) -> None:
    assert (
        whole_gpus(node({"nvidia.com/gpu.count": "7", **({"nvidia.com/mig.strategy": strategy} if strategy else {})}))
        == count
    )


@given(st.text(max_size=8), st.sets(st.integers(0, 1)))
def test_a_gpu_is_chosen_again_under_its_seed_and_never_one_without_budget(seed: str, spent: set[int]) -> None:
    used = [{"index": str(index)} for index in spent]
    if len(spent) == 2:
        with pytest.raises(TargetError, match="24 h"):
            choose_gpu(node(), "", used, seed)
        return
    chosen = choose_gpu(node(), "", used, seed)
    assert chosen == choose_gpu(node(), "", used, seed)
    assert chosen not in used


# --- budgets ---------------------------------------------------------------------------------------------------------


class FakeTarget:
    def __init__(self, node_uid: str, index: int) -> None:
        self.node, self.node_uid, self.gpu = f"node-{node_uid}", node_uid, {"index": str(index)}


class FakePlan:
    def __init__(self, node_uid: str, index: int) -> None:
        self.target = FakeTarget(node_uid, index)


SHARES = [(1, 4, 0.1, True), (2, 4, 0.1, False), (2, 20, 0.1, True), (3, 20, 0.1, False), (29, 100, 0.29, True)]


@pytest.mark.parametrize(("nodes", "fleet", "share", "allowed"), SHARES)
def test_the_share_of_nodes(nodes: int, fleet: int, share: float, allowed: bool) -> None:
    plans: list[Any] = [FakePlan(str(number), 0) for number in range(nodes)]
    guard = GuardArguments(nodes=nodes, gpus=nodes, share_of_nodes=share)
    if allowed:
        check_blast_radius(plans, guard, fleet)
    else:
        with pytest.raises(Refused, match=f"{nodes} of {fleet} GPU nodes"):
            check_blast_radius(plans, guard, fleet)


@given(st.integers(0, 6), st.integers(1, 6), st.integers(1, 6))
def test_the_day_of_a_gpu(before: int, now: int, budget: int) -> None:
    fault = {"state": "landed", "node_uid": "u", "gpu": {"index": "0", "uuid": "GPU-0"}}
    had = injections_per_gpu([fault] * before)
    plans: list[Any] = [FakePlan("u", 0)] * now
    guard = GuardArguments(repeats_per_day=budget)
    spent = {"index": "0"} in exhausted("u", had, guard, now)
    if before + now > budget:
        assert spent or not before
        with pytest.raises(Refused, match="node node-u: GPU index 0 had .* in 24 h") as refused:
            check_repeats(plans, had, guard)
        assert ("another GPU" if now <= budget else "fewer faults") in refused.value.remedy
    else:
        assert not spent
        check_repeats(plans, had, guard)


@given(st.lists(st.dictionaries(st.sampled_from(["state", "node_uid", "gpu", "at"]), ANYTHING, max_size=4), max_size=4))
def test_no_record_of_a_ledger_makes_counting_stumble(faults: list[Json]) -> None:
    injections_per_gpu(faults)


@pytest.mark.parametrize("state", ["not landed", "settled", "", None])
def test_what_did_not_land_does_not_count(state: Any) -> None:
    assert not injections_per_gpu([{"state": state, "node_uid": "u", "gpu": {"index": "0"}}])


@given(st.dictionaries(st.from_regex(r"[a-z.]{1,12}", fullmatch=True), st.text(max_size=30), max_size=5))
def test_any_configmap_is_a_ledger_that_can_be_looked_at(data: dict[str, str]) -> None:
    meta = {"name": "chaos-gpu-run-x", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": None}
    entry = entry_of({"metadata": meta, "data": data})
    assert entry.run == "x"
    assert set(entry.unreadable) <= set(data)
    assert isinstance(entry.open_items, list)
    assert isinstance(entry.faults, list)
    assert datetime.now(UTC) - entry.created_at > timedelta(0)


# --- who watches, who may act ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("gpud", True),
        ("my-gpud", True),
        ("gpudirect-tcpxo", False),
        ("syslog-health-monitor-regular", True),
        ("node-problem-detector", True),
        ("nvidia-device-plugin", False),
    ],
)
def test_detectors_are_known_by_whole_words(name: str, known: bool) -> None:
    assert bool(_known_detector(name)) is known


@pytest.mark.parametrize(
    "name", ["nvsentinel-janitor", "janitor-controller", "kured", "my-karpenter-2", "gpu-resetter"]
)
def test_remediators_are_known_by_any_part(name: str) -> None:
    assert _known_remediator(name)


KINDS = ["cordon", "drain", "reset", "reboot", "terminate"]


@given(st.sets(st.sampled_from(KINDS)), st.sets(st.sampled_from(KINDS)))
def test_remediators_may_do_what_is_allowed_and_no_more(may: set[str], allowed: set[str]) -> None:
    watchers = Watchers(remediators=(Remediator(name="r", actions=tuple(may)),))
    guard = GuardArguments.read({"allow_remediation": sorted(allowed)})
    if may <= allowed:
        check_remediators(watchers, guard)
    else:
        with pytest.raises(Refused, match="allow_remediation") as refused:
            check_remediators(watchers, guard)
        assert all(kind in refused.value.remedy for kind in may | allowed)


@pytest.mark.parametrize("declared", [ENGINE, REVERTER_RIGHTS])
def test_rights_become_rules_of_their_scope(declared: Any) -> None:
    for namespaced in (True, False):
        made = rules(declared, namespaced)
        wanted = [right for right in declared if right.namespaced == namespaced]
        assert [(each["apiGroups"], each["resources"], each["verbs"]) for each in made] == [
            ([right.group], [right.resource], list(right.verbs)) for right in wanted
        ]
    granted = [verb for right in declared for verb in (*right.verbs, right.group, right.resource)]
    assert not {"*", "escalate", "bind", "impersonate"} & set(granted)


# --- whose doing it is: judge and undo must agree -------------------------------------------------------------------

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
PIECES = st.sampled_from(
    [
        *(
            "Xid",
            "Xid ",
            "xid(PCI:0000:3b:00): ",
            "code: ",
            '"code": ',
            "error",
            "48",
            "4",
            "8",
            "480",
            "48.5",
            '"48": 1',
        ),
        *("0000:3b:00", "00000000:3B:00.0", "0000:3b:00.1", "0000:3b:00:1", "3b:00", "a0000:3b:00"),
        *(
            UUID,
            UUID.lower(),
            UUID.upper(),
            UUID[:-1],
            "cgpu-0a1b2c3d",
            "cgpu-ffffffff",
            "cgpu-0a1b2c3d9",
            "cgpu-0A1b2c3d",
        ),
        *(" ", ", ", "\n", "(", ")", ":", "=", "x", "é", "٤٨"),
    ]
)
TEXTS = st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=40)


@given(TEXTS, st.booleans(), st.sampled_from([UUID, ""]), st.sampled_from(["0000:3b:00", "0000:3b:00.0", ""]))
def test_judge_and_undo_read_a_text_alike(text: str, on_target: bool, uuid: str, pci: str) -> None:
    record = {"marker": "cgpu-0a1b2c3d", "code": 48, "gpu_uuid": uuid, "pci": pci}
    landed = Landed(
        at_s=0,
        error_s=0,
        code=48,
        pci=pci,
        gpu_uuid=uuid,
        node="n",
        node_uid="u",
        marker="cgpu-0a1b2c3d",
        text="",
        seq=1,
    )
    assert reactions.names_ours(text, record, on_target) == bool(names_record(text, landed, on_target=on_target))
