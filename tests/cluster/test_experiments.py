"""The shipped experiments on a real control plane: the same verdicts as on the lab, for the same defects.

What is run comes from the registry: every experiment, healthy, without each of them, and with
the first defect that each criterion catches; `CHAOS_GPU_CLUSTER_CELLS=all`: with every defect.
"""

import os

import pytest

from chaos_gpu.criteria.registry import NOT_RECOVERED, Cell, components, matrix
from tests.cluster import training
from tests.cluster.layout import NODES
from tests.cluster.product import Done, Site

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FATAL = "device/xid-fatal-cordons-node"
WITHOUT = "without:"
TRAINER = "trainer"
"""The one part that is given to the product, and not put on the cluster."""


def runs(*, everything: bool) -> list[tuple[str, str | None]]:
    """List what to run: an experiment and what is wrong with the platform, if anything."""
    chosen: dict[tuple[str, str | None], None] = {}
    for name in dict.fromkeys(cell.experiment for cell in matrix()):
        caught: set[str] = set()
        for cell in (each for each in matrix() if each.experiment == name):
            first = cell.expected != "fail" or cell.criterion not in caught
            caught |= {cell.criterion} if cell.expected == "fail" else set()
            if first or everything:
                chosen[name, cell.defect] = None
    return list(chosen)


RUNS = runs(everything=os.environ.get("CHAOS_GPU_CLUSTER_CELLS") == "all")


def cells(experiment: str, defect: str | None) -> list[Cell]:
    """What the registry expects, and `chaos-gpu prove` finds on the lab."""
    return [each for each in matrix() if (each.experiment, each.defect) == (experiment, defect)]


def run(site: Site, experiment: str, defect: str | None) -> Done:
    defects = [defect] if defect and not defect.startswith(WITHOUT) else []
    parts = {part for part in components(experiment) if f"{WITHOUT}{part}" != defect}
    site.deploy(defects, parts - {TRAINER})
    return site.run(experiment, **(training.give(site.folder, defects) if TRAINER in parts else {}))


@pytest.mark.parametrize(("experiment", "defect"), RUNS)
def test_verdicts_are_the_labs(site: Site, experiment: str, defect: str | None) -> None:
    expected = cells(experiment, defect)
    assert expected, "the registry knows no such cell"
    done = run(site, experiment, defect)
    found = {cell.criterion: done.outcome(cell.criterion) for cell in expected}
    assert found == {cell.criterion: cell.expected for cell in expected}, f"{done.reasons}\n{done.said}"
    if NOT_RECOVERED in found.values():
        recover_as_an_operator(site)
    assert set(site.ledgers().values()) <= {"closed"}


def recover_as_an_operator(site: Site) -> None:
    """Do what the platform should have done: the ledger says what remains, and closes once that is put right."""
    for run, state in site.ledgers().items():
        assert state == "stuck"
        assert "GpuXidError" in site.command("status", run, codes=(3,))
        site.clear_conditions()
        site.command("recover", run)


def test_the_time_to_cordon_is_true(site: Site) -> None:
    """The record goes through a real pod into the real /dev/kmsg; the detector's own log says when it cordoned."""
    site.deploy()
    done = site.run(FATAL, node=NODES[1])
    assert done.code == 0, f"{done.reasons}\n{done.said}"
    reported = [each["evidence"] for each in done.journal["chaos_gpu"]["verdicts"] if each["criterion"] == "DEV-07"]
    cordons = [each for each in site.agent_log(NODES[1]) if each["event"] == "cordoned"]
    assert [each["code"] for each in cordons] == [48, 74, 79]
    for evidence, cordon in zip(reported, cordons, strict=True):
        sent_s, done_s = ((cordon[key] - cordon["usec"]) / 1e6 for key in ("sent_us", "monotonic_us"))
        assert sent_s - evidence["error_s"] <= evidence["seconds"] <= done_s + evidence["error_s"], (evidence, cordon)
