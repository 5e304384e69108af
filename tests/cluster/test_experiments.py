"""The shipped experiments on a real control plane: the same verdicts as on the lab, for the same defects."""

import pytest

from chaos_gpu.criteria.registry import Cell, matrix
from tests.cluster.layout import NODES
from tests.cluster.product import Done, Site

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FATAL, APPLICATION = "device/xid-fatal-cordons-node", "device/xid-application-error-keeps-node"
WITHOUT = "without:"
PLANTED = ("detector-ignores-74", "detector-slow", "detector-cordons-wrong-node", "without:detector")
RUNS = [(FATAL, None), (APPLICATION, None), *((FATAL, defect) for defect in PLANTED)]
RUNS += [(APPLICATION, "detector-cordons-13")]


def cells(experiment: str, defect: str | None) -> list[Cell]:
    """What the registry expects, and `chaos-gpu prove` finds on the lab."""
    return [each for each in matrix() if (each.experiment, each.defect) == (experiment, defect)]


def run(site: Site, experiment: str, defect: str | None) -> Done:
    site.deploy([defect] if defect and not defect.startswith(WITHOUT) else [], without=defect == "without:detector")
    return site.run(experiment)


@pytest.mark.parametrize(("experiment", "defect"), RUNS)
def test_verdicts_are_the_labs(site: Site, experiment: str, defect: str | None) -> None:
    expected = cells(experiment, defect)
    assert expected, "the registry knows no such cell"
    done = run(site, experiment, defect)
    found = {cell.criterion: done.outcome(cell.criterion) for cell in expected}
    assert found == {cell.criterion: cell.expected for cell in expected}, f"{done.reasons}\n{done.said}"
    assert set(site.ledgers().values()) <= {"closed"}


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
