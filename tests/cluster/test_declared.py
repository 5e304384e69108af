"""What the tier declares leaves nothing out; this needs no cluster."""

from chaos_gpu.criteria.registry import components, matrix
from chaos_gpu.lab.defects import COMPONENTS
from tests.cluster.platform import PARTS
from tests.cluster.queues import MISCONFIGURATIONS
from tests.cluster.test_experiments import FATAL, LAB_ONLY, experiments, runs
from tests.cluster.test_queues import SCENARIOS


def test_what_is_judged_on_the_lab_only_says_why() -> None:
    needed = {part for cell in matrix() for part in components(cell.experiment)}
    assert needed | set(COMPONENTS) == set(PARTS) | set(LAB_ONLY)
    assert not set(PARTS) & set(LAB_ONLY)
    assert FATAL in experiments()


def test_the_short_choice_of_cells_has_every_criterion_fail_once() -> None:
    chosen, whole = runs(everything=False), runs(everything=True)
    assert set(chosen) <= set(whole)
    for cell in matrix():
        if cell.experiment in experiments() and cell.expected == "fail":
            fails = {(each.experiment, each.defect) for each in matrix() if each[::3] == (cell.criterion, "fail")}
            assert fails & set(chosen)


def test_every_misconfiguration_of_queues_shows_in_a_scenario() -> None:
    shown = {name for scenario in SCENARIOS.values() for name in scenario.misconfigured}
    assert shown == set(MISCONFIGURATIONS)
    for scenario in SCENARIOS.values():
        assert scenario.healthy not in scenario.misconfigured.values()
