"""The shipped experiments on a real control plane: the same verdicts as on the lab, for the same defects.

What is run comes from the registry: every experiment healthy and with the first defect that each of its criteria
catches, and one without each part of the platform; `CHAOS_GPU_CLUSTER_CELLS=all`: every cell, and those that take long.
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
LONG = {"device/detection-coverage"}
"""Minutes for each run."""
SETTINGS = {"device/dcgm-error-reaches-platform": {"cordon_s": "12"}}
"""The tier's dcgmi is Python from an archive: when it injected is known to within the second or two that it takes."""


def runs(*, everything: bool) -> list[tuple[str, str | None]]:
    """List what to run: an experiment and what is wrong with the platform, if anything."""
    chosen: dict[tuple[str, str | None], None] = {}
    shown: set[tuple[str, str]] = set()
    for cell in matrix():
        what = what_it_shows(cell)
        if everything or (cell.experiment not in LONG and what not in shown):
            chosen[cell.experiment, cell.defect] = None
        shown |= {what} if cell.experiment not in LONG else set()
    return list(chosen)


def what_it_shows(cell: Cell) -> tuple[str, str]:
    """Say what a cell adds: an experiment is run, one of its criteria fails, a part of the platform is missed."""
    if cell.defect is None:
        return cell.experiment, ""
    return ("", cell.defect) if cell.defect.startswith(WITHOUT) else (cell.experiment, cell.criterion)


RUNS = runs(everything=os.environ.get("CHAOS_GPU_CLUSTER_CELLS") == "all")


def cells(experiment: str, defect: str | None) -> list[Cell]:
    """What the registry expects, and `chaos-gpu prove` finds on the lab."""
    return [each for each in matrix() if (each.experiment, each.defect) == (experiment, defect)]


def run(site: Site, experiment: str, defect: str | None) -> Done:
    defects = [defect] if defect and not defect.startswith(WITHOUT) else []
    parts = {part for part in components(experiment) if f"{WITHOUT}{part}" != defect}
    site.deploy(defects, parts - {TRAINER})
    given = training.give(site.folder, defects) if TRAINER in parts else {}
    return site.run(experiment, **SETTINGS.get(experiment, {}), **given)


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
