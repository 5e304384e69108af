"""The proof itself: every experiment on the lab, healthy, with every planted defect, and without what it needs."""

import json
import subprocess
import sys

import pytest

from chaos_gpu.criteria.registry import matrix


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_experiment_fails_on_its_defects_and_passes_without_them() -> None:
    prove = [sys.executable, "-P", "-m", "chaos_gpu", "prove", "--json", "--jobs", "2"]
    done = subprocess.run(prove, capture_output=True, text=True, check=False)
    data = json.loads(done.stdout)
    wrong = [cell for cell in data["cells"] if cell["outcome"] != cell["expected"]]
    assert wrong == []
    assert done.returncode == 0
    assert len(data["cells"]) == len(matrix())
    assert all(cell["reason"] for cell in data["cells"] if cell["expected"] != "pass")
