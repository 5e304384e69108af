"""inject_xid in all its forms on the lab: what it refuses, with nothing changed, and what lands, whole."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.site import Json, Nursery, Site, activity, experiment, inject, over, unchanged
from tests.engine.test_refusals import Case, check_refused, method
from tests.lab.conftest import running_lab

DETECTORS = ("--only", "detector", "--only", "journal")


@pytest.fixture(scope="module")
def open_lab(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lab with both readers of the kernel log."""
    with running_lab(tmp_path_factory.mktemp("two") / "lab", DETECTORS, env={"CHAOS_GPU_CORDON_S": "2"}) as lab:
        site = Site(lab, nursery, tmp_path_factory.mktemp("runs-two"))
        code, text = site.cli("install")
        assert code == 0, text
        yield site


REFUSED = [
    Case("a form that is none", "no record form 'fancy'", method(form="fancy")),
    Case("a variant that is none", "form mig has no variant '99'", method(code=31, form="mig", variant="99")),
    Case("a variant of a form without", "form process has no variant", method(variant="1/0")),
    Case("a variant that is no text", "variant", method(code=31, form="mig", variant=1)),
    Case("MIG on a whole GPU's code", "names no MIG instance", method(code=79, form="mig")),
    Case("NVLink 5 of another code", "no code of NVLink 5", method(code=74, form="nvlink5")),
    Case("recovery of another code", "Xid 154 announces", method(code=79, form="recovery")),
    Case("fallen of another code", "Xid 79 is a GPU that fell off", method(code=48, form="fallen")),
    Case("a burst of another code", "31 and 43 are one record each", method(code=31, form="burst")),
    Case(
        "a comma where the name's end is not known",
        "where a name with a comma ends",
        method(code=62, form="comma-name"),
    ),
    Case("an SXid that is not known", "SXid 48: its text is not known", method(code=48, form="sxid")),
    Case("an SXid as an Xid", "Xid 24007 is not in the catalogue", method(code=24007)),
    Case("a transport that is none", "no transport 'journald'", method(transport="journald")),
    Case("raw 119", "raw Xid 119", method(code=119)),
    Case("119 both ways", "raw Xid 119", method(code=119, transport="both")),
    Case(
        "five forms on one GPU",
        "5 more would be over 4",
        experiment(*(inject(f"f-{n}", code=48, form="plain", gpu="0", node="gpu-node-0") for n in range(5))),
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_refused_with_nothing_changed(site: Site, case: Case) -> None:
    with unchanged(site):
        ended = site.run(case.experiment, *case.flags, **case.env)
    check_refused(ended, case.says)


def records(site: Site, node: str, marker: str) -> list[str]:
    """The lines of a node's kernel log that bear a marker."""
    return [line for line in (site.lab.root / "nodes" / node / "kmsg").read_text().splitlines() if marker in line]


def hold_and_settle(fault: str, **record: Json) -> list[Json]:
    return [inject(fault, **record), *over(fault)]


def test_every_record_of_a_fault_lands_and_is_in_the_journal(site: Site) -> None:
    """One burst, one SXid and one fall, on three GPUs; written both ways."""
    faults = [
        *hold_and_settle("burst", code=13, form="burst", gpu="0", transport="both"),
        *hold_and_settle("sxid", code=28006, form="sxid", gpu="1"),
        *hold_and_settle("fallen", code=79, form="fallen", variant="probe", gpu="2"),
    ]
    ended = site.run(experiment(*faults, gpus=3), CHAOS_GPU_NODE="gpu-node-3")
    outputs = {name: ended.output_of(name)["output"] for name in ("burst", "sxid", "fallen")}
    assert {name: len(said["records"]) for name, said in outputs.items()} == {"burst": 6, "sxid": 3, "fallen": 1}
    ledger = site.ledger(ended.guard["run"])
    for name, said in outputs.items():
        facts = ledger[f"fault.{name}"]
        assert facts["state"] == "landed"
        written = records(site, "gpu-node-3", facts["marker"])
        assert [int(line.split(",")[1]) for line in written] == [each["seq"] for each in said["records"]]
        assert {each["flag"] for each in said["records"]} == {"-"}, "never the driver's own c"
    assert outputs["sxid"]["pci"].startswith("0000:c3:"), "an NVSwitch's, not a GPU's"
    assert r"\x0aNVRM: (PCI ID" in outputs["fallen"]["text"]
    assert ended.guard["recovery"]["open"] == []


def see(fault: str) -> Json:
    return activity("probe", f"{fault}-seen", "chaos_gpu.probes.device", "detectors_see", fault=fault)


def test_who_sees_what(site: Site) -> None:
    """The journal's reader is blind to MIG's form; what reads no kernel log is not said to be blind."""
    faults = [
        inject("plain", 48, form="plain", transport="both"),
        see("plain"),
        *over("plain"),
        inject("mig", 31, form="mig", transport="both"),
        see("mig"),
        *over("mig"),
    ]
    ended = site.run(experiment(*faults), CHAOS_GPU_NODE="gpu-node-3", CHAOS_GPU_GPU="3")
    found = {name: ended.output_of(f"{name}-seen")["output"]["coverage"] for name in ("plain", "mig")}
    seen = {
        name: {each["detector"]: (each["seen"], each["by"]) for each in said["detectors"]}
        for name, said in found.items()
    }
    assert seen["plain"]["gpu-health-agent"] == (True, "condition GpuXidError")
    assert seen["plain"]["gpu-journal-watch"] == (True, "condition GpuXidInJournal")
    assert seen["mig"]["gpu-health-agent"] == (True, "Event")
    assert seen["mig"]["gpu-journal-watch"] == (False, "")
    assert found["mig"]["variant"] == "1/0"
    for each in (each for said in found.values() for each in said["detectors"] if each["seen"]):
        assert -each["error_s"] <= each["seconds"] <= found["plain"]["limit_s"] + each["error_s"]
    table = "\n".join(ended.result.coverage.lines())
    assert "not seen" in table.splitlines()[2]
    assert ended.guard["recovery"]["open"] == []


def test_a_plan_says_how_many_records_of_which_form(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "experiment.json"
    file.write_text(json.dumps(experiment(inject("b", code=13, form="burst", transport="both"), *over("b"))))
    code, text = site.cli("plan", str(file))
    assert code == 0, text
    assert "6 kernel records Xid 13 (ROBUST_CHANNEL_GR_EXCEPTION), burst, transport both" in " ".join(text.split())


def test_an_nvswitch_error_is_seen_and_not_judged(site: Site) -> None:
    """No policy of Xids speaks of it, so a criterion on the policy cannot be judged by it, and nothing is injected."""
    judged = experiment(
        inject("sxid", code=24007, form="sxid"),
        activity("probe", "policy", "chaos_gpu.probes.device", "policy_followed", fault="sxid"),
        *over("sxid"),
        criteria=["DEV-06"],
    )
    ended = site.run(judged)
    assert ended.result.exit_code == 2
    (verdict,) = ended.guard["verdicts"]
    assert verdict["reason"].endswith("SXid 24007: the policy is one of Xids")
    assert ended.journal["run"] == []
    assert records(site, "gpu-node-0", "SXid") == []
