"""One whole run for each way to end, with the experiments that we ship and the programs as users call them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.site import Site, defects
from tests.engine.test_heart import NODE, mend  # noqa: F401 - a fixture
from tests.lab.conftest import PROGRAM

EXPERIMENTS = Path(__file__).parents[2] / "experiments" / "device"
FATAL, APPLICATION = EXPERIMENTS / "xid-fatal-cordons-node.yaml", EXPERIMENTS / "xid-application-error-keeps-node.yaml"


def verdict(site: Site, directory: Path) -> tuple[int, str]:
    return site.cli("verdict", str(directory / "journal.json"))


@pytest.mark.parametrize(
    ("experiment", "defect", "code", "says"),
    [
        (FATAL, "", 0, ""),
        (APPLICATION, "", 0, ""),
        (FATAL, "detector-ignores-74", 1, "74"),
        (APPLICATION, "detector-cordons-13", 1, "13"),
    ],
    ids=["fatal", "application", "ignores-74", "cordons-13"],
)
def test_pass_and_fail(site: Site, experiment: Path, defect: str, code: int, says: str) -> None:
    with defects(site, *([defect] if defect else [])):
        ended = site.run(experiment, CHAOS_GPU_NODE=NODE)
    found, text = verdict(site, ended.directory)
    assert (found, ended.result.exit_code) == (code, code), ended.text + text
    assert says in text
    guard = ended.guard
    assert set(guard) >= {"run", "phase", "refused", "signal", "planned", "verdicts", "platform_ready", "recovery"}
    assert guard["phase"] == "after"
    assert sum(guard["planned"].values()) == len(guard["verdicts"])
    assert guard["platform_ready"] == {"before": True, "after": True, "after_on_target": False}


def test_the_programs_themselves(mend: Site) -> None:  # noqa: F811
    """`chaos run` and `chaos-gpu verdict` as separate programs: a node that never comes back is exit 3."""
    place = mend.place()
    chaos = Path(sys.executable).with_name("chaos")
    with defects(mend, "detector-never-returns"):
        argv = [str(chaos), "--no-version-check", "run", str(FATAL)]
        env = mend.env(CHAOS_GPU_NODE=NODE)
        subprocess.run(argv, cwd=place, env=env, capture_output=True, timeout=120, check=False)
    argv = [*PROGRAM, "verdict", "--json", str(place / "journal.json")]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert json.loads(done.stdout)["outcome"] == "not recovered"
    assert "condition GpuXidError" in done.stdout
