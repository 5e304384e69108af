"""What the tier declares leaves nothing out; this needs no cluster."""

from chaos_gpu.criteria.registry import components, matrix
from chaos_gpu.lab.defects import COMPONENTS
from tests.cluster.deployment import PARTS
from tests.cluster.queues import MISCONFIGURATIONS
from tests.cluster.test_experiments import TRAINER, runs
from tests.cluster.test_queues import SCENARIOS


def test_the_tier_has_every_part_that_the_lab_has() -> None:
    needed = {part for cell in matrix() for part in components(cell.experiment)}
    assert needed | set(COMPONENTS) == {*PARTS, TRAINER}


def test_the_short_choice_of_cells_has_every_criterion_fail_once() -> None:
    chosen, whole = runs(everything=False), runs(everything=True)
    assert set(chosen) <= set(whole)
    for cell in matrix():
        if cell.expected == "fail":
            fails = {(each.experiment, each.defect) for each in matrix() if each[::3] == (cell.criterion, "fail")}
            assert fails & set(chosen)


def test_every_misconfiguration_of_queues_shows_in_a_scenario() -> None:
    shown = {name for scenario in SCENARIOS.values() for name in scenario.misconfigured}
    assert shown == set(MISCONFIGURATIONS)
    for scenario in SCENARIOS.values():
        assert scenario.healthy not in scenario.misconfigured.values()
