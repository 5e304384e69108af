"""The heart: what undoes a change is there before it, and only what is surely ours is undone."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.site import Ended, Json, Site, activity, defects, experiment, inject, over, unchanged
from tests.engine.test_refusals import check_refused
from tests.lab.conftest import ApiError

EXERCISE = "chaos-gpu/exercise"
CORDONED_BY = "gpu-health.lab/cordoned-by"
NODE = "gpu-node-2"
ALL = "chaos_gpu.actions.run"


def held(seconds: float = 30) -> Json:
    return activity("action", "holding", ALL, "hold", seconds=seconds)


def until(holds: Callable[[], object], what: str, limit_s: float = 40) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)


def node(site: Site, name: str = NODE) -> Json:
    found: Json = site.lab.get(f"api/v1/nodes/{name}")
    return found


def annotations(site: Site) -> Json:
    return node(site)["metadata"].get("annotations") or {}


@pytest.fixture
def mend(site: Site) -> Iterator[Site]:
    """Afterwards, repair what a test has had the platform leave behind on the target."""
    yield site
    gone = {name: None for name in annotations(site) if name in (EXERCISE, CORDONED_BY)}
    site.merge(f"api/v1/nodes/{NODE}", {"spec": {"unschedulable": None}, "metadata": {"annotations": gone}})
    conditions = [each for each in node(site)["status"]["conditions"] if each["type"] == "GpuXidError"]
    for each in conditions:
        healthy = {**each, "status": "False", "reason": "Healthy", "message": ""}
        patch, kind = {"status": {"conditions": [healthy]}}, "application/strategic-merge-patch+json"
        site.lab.request("PATCH", f"api/v1/nodes/{NODE}/status", patch, kind)


def start(site: Site, *method: Json, run: str, **env: str) -> Ended:
    return site.start(experiment(*method), CHAOS_GPU_RUN=run, CHAOS_GPU_NODE=NODE, **env)


def finish(ended: Ended, number: signal.Signals = signal.SIGTERM) -> Ended:
    ended.process.kill(number)
    ended.process.wait()
    return ended


def landed(site: Site, run: str) -> bool:
    try:
        return any(key.startswith("fault.") and found["state"] == "landed" for key, found in _faults(site, run))
    except ApiError:
        return False


def _faults(site: Site, run: str) -> list[tuple[str, Json]]:
    return [(key, found) for key, found in site.ledger(run).items() if key.startswith("fault.")]


# --- order -----------------------------------------------------------------------------------------------------------


def test_what_undoes_is_there_before_what_is_undone(site: Site) -> None:
    asked = len(site.audit())
    ended = site.run(experiment())
    assert ended.guard["recovery"]["open"] == []
    steps = [(each["verb"], each["resource"]) for each in site.audit()[asked:]]
    wanted = [
        ("create", "jobs"),
        ("create", "leases"),
        ("create", "configmaps"),
        ("patch", "configmaps"),
        ("patch", "nodes"),
        ("create", "events"),
        ("create", "pods"),
        ("patch", "configmaps"),
        ("patch", "nodes"),
        ("delete", "pods"),
        ("delete", "leases"),
        ("delete", "jobs"),
    ]
    place = 0
    for step in wanted:
        assert step in steps[place:], f"{step} not after {steps[:place]}: {steps}"
        place = steps.index(step, place) + 1
    assert steps.index(("patch", "nodes")) == steps.index(("patch", "configmaps")) + 1, "the ledger is written first"


def test_undoing_twice_is_undoing_once(site: Site) -> None:
    again = [{**each, "name": f"{each['name']}-again"} for each in over()]
    everything = activity("action", "everything", ALL, "revert_all")
    ended = site.run(experiment(inject(), *over(), *again, everything, {**everything, "name": "everything-again"}))
    assert [each["status"] for each in ended.journal["run"]] == ["succeeded"] * 7, ended.text
    assert ended.output_of("xid-13-over-again")["output"] == {"restored": []}
    assert ended.output_of("everything-again")["output"] == {"restored": [], "open": []}
    restored = ended.guard["recovery"]["restored"]
    assert len(restored) == len(set(restored)) == 3, restored


def test_the_next_fault_waits_for_the_last_one(site: Site) -> None:
    ended = site.run(experiment(inject(), inject("more"), *over(), repeats_per_day=4), CHAOS_GPU_NODE=NODE)
    assert ended.output_of("more")["status"] == "failed"
    assert "one at a time" in ended.text
    assert ended.guard["recovery"]["open"] == []


# --- the injector refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", ["GPU-01234567-89ab-cdef-0123-456789abcdef", "0000:00:1f", "00000000:FE:00.0"])
def test_a_gpu_that_the_node_has_not(site: Site, gpu: str) -> None:
    before = {node_: (site.lab.root / "nodes" / node_ / "kmsg").read_bytes() for node_ in ("gpu-node-0", NODE)}
    ended = site.run(experiment(inject(gpu=gpu), *over()), CHAOS_GPU_RUN="no-such-gpu", CHAOS_GPU_NODE=NODE)
    assert ended.result.exit_code == 2, ended.text
    assert ended.output_of("xid-13")["status"] == "failed"
    assert "no GPU" in ended.text
    assert gpu in ended.text or gpu.lower() in ended.text or "0000:fe:00" in ended.text
    assert ended.guard["recovery"]["open"] == []
    assert dict(_faults(site, "no-such-gpu"))["fault.xid-13"]["state"] == "not landed", "it does not count"
    assert all((site.lab.root / "nodes" / name / "kmsg").read_bytes() == text for name, text in before.items())


# --- the platform's reaction -----------------------------------------------------------------------------------------


def test_a_reaction_that_the_platform_takes_back(site: Site) -> None:
    ended = site.run(experiment(inject("xid-48", 48), *over("xid-48")), CHAOS_GPU_NODE=NODE)
    assert ended.guard["recovery"]["open"] == []
    assert "the platform took it back" in " ".join(ended.guard["recovery"]["restored"])
    assert ended.guard["platform_ready"] == {"before": True, "after": True, "after_on_target": False}


def test_a_reaction_to_one_fault_is_not_told_of_the_next(site: Site) -> None:
    method = (inject("xid-48", 48), *over("xid-48"), inject("xid-13", 13), *over("xid-13"))
    restored = site.run(experiment(*method), CHAOS_GPU_NODE=NODE).guard["recovery"]["restored"]
    told = [text for text in restored if text.startswith("consequence of ")]
    assert told[0].startswith(f"consequence of xid-48: the platform took it back: {NODE} "), told
    assert told[1:] == ["consequence of xid-13: no reaction of the platform"]


def test_a_mark_that_a_later_fault_of_the_run_replaced_is_not_called_foreign(site: Site) -> None:
    job = activity("action", "our-job", "chaos_gpu.actions.health", "run_gpu_job", fault="our-job", gpus=1)
    method = (job, inject(), *over("our-job"), *over())
    ended = site.run(experiment(*method), CHAOS_GPU_NODE=NODE, CHAOS_GPU_RUN="two-marks")
    assert [each["status"] for each in ended.journal["run"]] == ["succeeded"] * 6, ended.text
    recovery = ended.guard["recovery"]
    assert recovery["open"] == []
    assert [text for text in recovery["restored"] if text.startswith("mark ")] == [f"mark on node {NODE}: undone"]
    ledger = site.ledger("two-marks")
    first, second = ledger["change.our-job.1"], ledger["change.xid-13.1"]
    assert (first["state"], first["note"]) == ("gone", "replaced by the mark of xid-13")
    assert second["state"] == "undone"
    assert EXERCISE not in annotations(site)


def test_a_node_that_the_platform_keeps_is_returned_and_what_only_it_can_clear_is_named(mend: Site) -> None:
    with defects(mend, "detector-never-returns"):
        ended = mend.run(experiment(inject("xid-48", 48), *over("xid-48")), CHAOS_GPU_NODE=NODE)
        assert ended.result.exit_code == 3, ended.text
        assert f"{NODE}: uncordoned, its cordon named our record" in ended.guard["recovery"]["restored"]
        assert "condition GpuXidError still names our record" in " ".join(ended.guard["recovery"]["open"])
        assert "unschedulable" not in node(mend)["spec"]
        assert CORDONED_BY not in annotations(mend)
        check_stuck(mend, ended.guard["run"])


def check_stuck(site: Site, run: str) -> None:
    """A stuck ledger stops the next run, and is shown; `recover` closes it once the rest is gone."""
    with unchanged(site):
        check_refused(site.run(experiment()), f"run {run} left something behind")
        code, text = site.cli("status")
        assert (code, f"stuck    {run}" in text, "remains: " in text) == (3, True, True), text
        assert site.cli("uninstall")[0] == 4
    assert site.cli("recover", run)[0] == 3


def test_recover_once_the_platform_has_come_round(mend: Site) -> None:
    with defects(mend, "detector-never-returns"):
        ended = mend.run(experiment(inject("xid-48", 48), *over("xid-48")), CHAOS_GPU_NODE=NODE)
    assert ended.result.exit_code == 3
    healthy = {"type": "GpuXidError", "status": "False", "reason": "Healthy", "message": ""}
    patch, kind = {"status": {"conditions": [healthy]}}, "application/strategic-merge-patch+json"
    mend.lab.request("PATCH", f"api/v1/nodes/{NODE}/status", patch, kind)
    code, text = mend.cli("recover")
    assert code == 0, text
    assert mend.ledger(ended.guard["run"])["state"] == "closed"
    assert mend.cli("recover") == (0, "nothing to recover\n")


def test_a_real_fault_since_ours_keeps_its_node_out(mend: Site) -> None:
    """The detector does not act on this one, so that only the kernel log tells."""
    with defects(mend, "detector-never-returns", "detector-ignores-74"):
        ended = start(mend, inject("xid-48", 48), *over("xid-48"), run="real-fault")
        until(lambda: landed(mend, "real-fault"), "the record landed")
        pci, _ = mend.lab.gpu(NODE)
        mend.lab.write_kmsg(NODE, f"<3>NVRM: Xid (PCI:{pci}): 74, NVLink: fatal error detected\n".encode())
        ended.process.wait()
        assert node(mend)["spec"]["unschedulable"] is True  # as long as the detector keeps it
        assert CORDONED_BY in annotations(mend)
    assert ended.result.exit_code == 3, ended.text
    said = " ".join(ended.guard["recovery"]["open"])
    assert "a fault record that is not ours came since" in said
    assert "fatal error detected" in said


def test_a_real_fault_before_ours_does_not_count(mend: Site) -> None:
    pci, _ = mend.lab.gpu(NODE)
    with defects(mend, "detector-never-returns", "detector-ignores-74"):
        mend.lab.write_kmsg(NODE, f"<3>NVRM: Xid (PCI:{pci}): 74, NVLink: fatal error detected\n".encode())
        ended = mend.run(experiment(inject("xid-48", 48), *over("xid-48")), CHAOS_GPU_NODE=NODE)
    assert f"{NODE}: uncordoned, its cordon named our record" in ended.guard["recovery"]["restored"], ended.text


def test_a_cordon_by_someone_else_stays(mend: Site) -> None:
    ended = start(mend, inject(), held(), run="their-cordon")
    until(lambda: landed(mend, "their-cordon"), "the record landed")
    mend.merge(f"api/v1/nodes/{NODE}", {"spec": {"unschedulable": True}})
    finish(ended)
    assert node(mend)["spec"]["unschedulable"] is True
    assert "uncordoned" not in " ".join(ended.guard["recovery"]["restored"])


def test_a_cordon_without_a_reason_stays_although_a_condition_names_our_record(mend: Site) -> None:
    with defects(mend, "detector-never-returns", "detector-never-cordons"):
        ended = start(mend, inject("xid-48", 48), *over("xid-48"), run="no-reason")
        until(lambda: landed(mend, "no-reason"), "the record landed")
        mend.merge(f"api/v1/nodes/{NODE}", {"spec": {"unschedulable": True}})
        ended.process.wait()
    assert ended.result.exit_code == 3, ended.text
    assert "nothing says that our record was why" in " ".join(ended.guard["recovery"]["open"])
    assert node(mend)["spec"]["unschedulable"] is True


def test_a_mark_that_someone_else_took_over_stays(mend: Site) -> None:
    ended = start(mend, inject(), held(), run="their-mark")
    until(lambda: landed(mend, "their-mark"), "the record landed")
    mend.merge(f"api/v1/nodes/{NODE}", {"metadata": {"annotations": {EXERCISE: "theirs"}}})
    finish(ended)
    assert annotations(mend)[EXERCISE] == "theirs"
    assert ended.guard["recovery"]["open"] == []
    assert "left alone" in " ".join(ended.guard["recovery"]["restored"])


# --- one run at a time -----------------------------------------------------------------------------------------------


def test_a_second_run_while_one_is_active(mend: Site) -> None:
    first = start(mend, inject(), held(240), run="first")
    until(lambda: landed(mend, "first"), "the record landed")
    with unchanged_but_for_renewals(mend):
        check_refused(mend.run(experiment()), "run first is active")
        check_refused(mend.run(experiment(), CHAOS_GPU_RUN="first"), "run first is active")
        for dry in ((), ("--dry-run",)):
            code, text = mend.cli("uninstall", *dry)
            assert (code, "run first is active" in text, "chaos-gpu abort first" in text) == (4, True, True), text
            assert "remove" not in text
        code, text = mend.cli("recover")
        assert (code, "run first is active" in text, "nothing to recover" in text) == (4, True, False), text
        code, text = mend.cli("status", "first")
        assert (code, text.split()[:2]) == (0, ["active", "first"])
        code, text = mend.cli("status", "first", "--json")
        assert [(each["state"], each["verdicts"]) for each in json.loads(text)] == [("active", {})]
    code, text = mend.cli("abort")
    assert (code, "the platform's reaction through: for up to 6 s" in text) == (0, True), text
    assert first.process.wait() >= 0
    assert first.guard["signal"] == "abort"
    assert first.result.exit_code == 2
    assert mend.ledger("first")["state"] == "closed"
    assert mend.cli("abort", "first")[0] == 4
    check_refused(mend.run(experiment(), CHAOS_GPU_RUN="first"), "run id first was used before")


class unchanged_but_for_renewals:  # noqa: N801 - reads as the function that it is like
    def __init__(self, site: Site) -> None:
        self.site = site

    def __enter__(self) -> None:
        self.asked, self.before = len(self.site.audit()), self.objects()

    def __exit__(self, *_: object) -> None:
        others = [each for each in self.site.audit()[self.asked :] if each["resource"] != "leases"]
        assert others == []
        assert self.objects() == self.before

    def objects(self) -> Json:
        return {name: found for name, found in self.site.objects().items() if "/leases " not in name}


def test_two_runs_of_one_id_started_at_once(site: Site) -> None:
    """They pass every check together; only one may act, and the other takes nothing of it away."""
    runs = [start(site, inject(), *over(), run="twin") for _ in range(2)]
    for each in runs:
        each.process.wait()
    done = [each for each in runs if each.guard["refused"] is None]
    assert len(done) == 1, [each.text for each in runs]
    assert [each["status"] for each in done[0].journal["run"]] == ["succeeded"] * 3, done[0].text
    refused = next(each for each in runs if each.guard["refused"])
    assert refused.result.exit_code == 4
    assert refused.guard["refused"]["remedy"]
    assert site.ledger("twin")["recovery"]["by"] == "runner"


def test_two_runs_started_at_once(site: Site) -> None:
    runs = [start(site, inject(), *over(), run=f"rival-{number}") for number in range(2)]
    for each in runs:
        each.process.wait()
    assert sorted(each.result.exit_code for each in runs) == [2, 4], [each.text for each in runs]
    assert all(each.guard["recovery"]["open"] == [] for each in runs)
    assert [each for each in site.items("apis/batch/v1/namespaces/chaos-gpu/jobs") if _active(each)] == []


def _active(job: Json) -> bool:
    return bool((job.get("status") or {}).get("active")) and "deletionTimestamp" not in job["metadata"]


# --- the ledger ------------------------------------------------------------------------------------------------------


def ledger(site: Site, run: str, state: str, data: dict[str, str], age_h: float = 0) -> None:
    body: Json = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": f"chaos-gpu-run-{run}",
            "namespace": "chaos-gpu",
            "labels": {"chaos-gpu/ledger": state, "chaos-gpu/run": run},
        },
        "data": data,
    }
    site.lab.request("POST", "api/v1/namespaces/chaos-gpu/configmaps", body)


@pytest.mark.parametrize(
    ("state", "record"),
    [
        ("open", "{half"),
        ("closed", "3"),
        ("closed", "{half"),
        ("stuck", '"text"'),
        ("unheard-of", "[]"),
        ("closed", ""),
    ],
)
def test_a_ledger_that_is_no_ledger(site: Site, state: str, record: str) -> None:
    ledger(site, "odd", state, {"fault.x": record, "run": record, "recovery": record, "consequence.x": record})
    with unchanged(site):
        check_refused(site.run(experiment()), "run odd")
        code, text = site.cli("status")
        assert code in (0, 3), text
        assert "odd" in text


def test_recover_goes_on_past_a_record_that_it_cannot_read(site: Site) -> None:
    mark = {
        "what": f"mark on node {NODE}",
        "kind": "patch",
        "path": f"/api/v1/nodes/{NODE}",
        "uid": node(site)["metadata"]["uid"],
        "undo": [
            {"op": "test", "path": "/metadata/annotations/chaos-gpu~1exercise", "value": "ours"},
            {"op": "remove", "path": "/metadata/annotations/chaos-gpu~1exercise"},
        ],
        "state": "planned",
    }
    site.merge(f"api/v1/nodes/{NODE}", {"metadata": {"annotations": {EXERCISE: "ours"}}})
    ledger(site, "half", "open", {"change.a.1": "{half", "change.b.1": json.dumps(mark), "consequence.a": "3"})
    code, text = site.cli("recover", "half")
    assert code == 3, text
    assert EXERCISE not in annotations(site)
    assert "change.a.1" in text


def test_the_budget_of_a_day(site: Site) -> None:
    uid = node(site)["metadata"]["uid"]
    now = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
    fault = {"state": "landed", "node_uid": uid, "gpu": {"index": "3", "uuid": "GPU-x"}, "at": now}
    ledger(site, "past", "closed", {f"fault.{n}": json.dumps(fault) for n in range(4)})
    chosen = {"CHAOS_GPU_NODE": NODE, "CHAOS_GPU_GPU": "3"}
    with unchanged(site):
        check_refused(site.run(experiment(), **chosen), "had 4 injections in 24 h, 1 more would be over 4")
        code, text = plan(site, experiment(repeats_per_day=5), **chosen)
        assert code == 0, text
        assert plan(site, experiment(), CHAOS_GPU_NODE=NODE, CHAOS_GPU_GPU="2")[0] == 0
    assert site.cli("ledger", "prune") == (0, "pruned 0 ledgers\n")


def plan(site: Site, made: Json, **env: str) -> tuple[int, str]:
    file = site.place() / "experiment.json"
    file.write_text(json.dumps(made))
    return site.cli("plan", str(file), **env)


def test_pruning_is_never_earlier_than_a_day(site: Site) -> None:
    assert site.cli("ledger", "prune", "--older-than-h", "23")[0] == 4


# --- a node that is not the one any more -----------------------------------------------------------------------------


def test_a_node_that_was_replaced_meanwhile(nursery_site: Site) -> None:
    site = nursery_site
    ended = start(site, inject(), held(), run="replaced")
    until(lambda: landed(site, "replaced"), "the record landed")
    found = node(site)
    site.lab.request("DELETE", f"api/v1/nodes/{NODE}")
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        found["metadata"].pop(key, None)
    site.lab.request("POST", "api/v1/nodes", found)
    finish(ended)
    said = " ".join([*ended.guard["recovery"]["restored"], *ended.guard["recovery"]["open"]])
    assert "left alone" in said or "gone" in said, said
    assert EXERCISE in annotations(site), "another node's mark is not ours to remove"


@pytest.fixture
def nursery_site(open_lab: Site, tmp_path: Path) -> Iterator[Site]:
    """A lab of this test's own, for what cannot be made good again."""
    from tests.lab.conftest import running_lab

    with running_lab(tmp_path / "lab") as lab:
        site = Site(lab, open_lab.nursery, tmp_path)
        assert site.cli("install")[0] == 0
        yield site
