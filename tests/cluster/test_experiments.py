"""The shipped experiments on a real control plane: the same verdicts as on the lab, for the same defects."""

import re

import pytest

from chaos_gpu.criteria.registry import Cell, matrix
from tests.cluster.product import CORDON_S, Done, Site

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


def test_a_real_record_is_written_read_back_and_reacted_to(site: Site) -> None:
    site.deploy()
    done = site.run(FATAL)
    assert done.code == 0, f"{done.reasons}\n{done.said}"
    verdicts = [each for each in done.journal["chaos_gpu"]["verdicts"] if each["criterion"] == "DEV-07"]
    assert len(verdicts) == 3
    for verdict in verdicts:
        measured = re.search(r"\d+(\.\d+)? m?s", verdict["reason"])
        assert measured, verdict["reason"]
    assert CORDON_S > 0
