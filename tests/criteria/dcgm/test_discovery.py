"""Numbers of the engine, and the GPUs that they are."""

import pytest

from chaos_gpu.criteria.dcgm.discovery import read_discovery
from chaos_gpu.criteria.dcgm.reader import read_output
from tests.criteria.dcgm.corpus import RUNS, as_bytes, diag4, gpu

TABLES = [run.stdout for run in RUNS if run.argv[1] == "discovery"]
UUIDS = {f"GPU {number}": f"GPU-11111111-0000-4000-8000-00000000000{number + 1}" for number in (0, 1)}


@pytest.mark.parametrize("table", TABLES, ids=["4.6.0", "3.3.9"])
def test_real_tables(table: str) -> None:
    assert read_discovery(table) == UUIDS


def test_only_gpus_and_only_whole_uuids() -> None:
    assert read_discovery(f"| GPU ID | Device |\n| Device UUID: {UUIDS['GPU 0']} |") == {}, "of no number"
    switch = TABLES[0].replace("GPU ID", "Switch ID")
    assert read_discovery(switch) == {}
    assert read_discovery("Device UUID: GPU-11111111-0000-4000-8000-000000000001") == {}
    assert read_discovery(TABLES[0].replace("000000000001 ", "00000000000g ")) == {"GPU 1": UUIDS["GPU 1"]}


def test_results_get_their_uuids_and_a_gpu_that_was_not_tested_shows() -> None:
    both, one = (as_bytes(diag4(("software", [gpu(number) for number in range(count)]))) for count in (2, 1))
    report = read_output(TABLES[0].encode() + both)
    assert [result.uuid for result in report.reading.results] == list(UUIDS.values())
    assert report.verdict == "pass"
    report = read_output(TABLES[0].encode() + one)
    assert report.verdict == "inconclusive"
    assert report.reasons == ("software ran on 1 GPU, not on GPU 1",)


def test_a_table_does_not_make_healthy_a_pass() -> None:
    healthy = [run.stdout for run in RUNS if "Healthy" in run.stdout and "-j" in run.argv]
    for text in healthy:
        assert read_output((TABLES[0] + text).encode()).verdict == "inconclusive"
    assert healthy
