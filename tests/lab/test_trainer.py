"""The lab's training: it trains, it resumes to the bit, and each planted defect does what its name says."""

import json
import signal
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from chaos_gpu.lab.trainer.manifest import GRACE_S, write_manifest
from chaos_gpu.lab.trainer.model import COMPONENTS, Training
from chaos_gpu.lab.trainer.planted import PLANTED
from chaos_gpu.lab.trainer.torch_zip import read, write
from tests.support.training import Process, Trainer, event, losses

pytestmark = pytest.mark.timeout(120)
SHORT = {"STEPS": "12", "KEEP": "9"}


def interrupted(trainer: Trainer, line_of_log: str, torn: str = "") -> list[dict[str, Any]]:
    """Run until a line is logged, and a file has begun that the pattern `torn` names; then SIGKILL. Return the log."""
    process, log = trainer.start(), []
    for line in process.stdout or ():
        log.append(json.loads(line))
        if line_of_log in line:
            break
    while torn and not any(path.stat().st_size for path in trainer.store.glob(torn)) and process.poll() is None:
        time.sleep(0.005)
    end(process)
    return log


def end(process: Process) -> None:
    process.kill()
    process.communicate()


def test_it_learns() -> None:
    training = Training(200)
    found = [training.advance()["loss"] for _ in range(200)]
    assert sum(found[-40:]) < 0.6 * sum(found[:40])


def test_every_component_matters_for_the_next_steps() -> None:
    for name in COMPONENTS:
        whole, lacking = Training(24), Training(24)
        for _ in range(6):
            whole.advance()
        lacking.restore({key: part for key, part in whole.state().items() if key != name})
        assert lacking.state()[name] != whole.state()[name], name
        assert lacking.step == 6


def test_a_resumed_training_goes_on_to_the_bit(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    reference, trainer = (Trainer(tmp_path / name, **SHORT) for name in "ab")
    code, whole = reference.run()
    assert code == 0
    before = interrupted(trainer, '"event": "saving", "step": 8')
    code, after = trainer.run()
    assert code == 0
    resumed = event(after, "resumed")
    assert resumed["source"] == f"step-{resumed['step']}.pt"
    assert resumed["step"] in (4, 8)
    assert losses(before)[: resumed["step"]] + losses(after) == losses(whole)
    for path in reference.store.glob("step-*.pt"):
        assert path.read_bytes() == (trainer.store / path.name).read_bytes()


def test_it_saves_when_it_is_told_to_end(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, STEPS="1000", STEP_S="0.01", SAVE_EVERY="999")
    process = trainer.start()
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    log = list(map(json.loads, out.splitlines()))
    assert process.returncode == 143
    assert event(log, "saved")["name"] == f"step-{event(log, 'stopping')['step']}.pt"


def test_a_save_takes_the_time_that_is_asked_for(tmp_path: Path) -> None:
    _, log = Trainer(tmp_path, STEPS="4", SAVE_S="0.3").run()
    assert event(log, "saved")["blocked_s"] >= 0.3


def test_what_it_keeps(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, KEEP="2")
    trainer.run()
    assert sorted(path.name for path in trainer.store.iterdir()) == ["latest", "step-20.pt", "step-24.pt"]
    assert (trainer.store / "latest").read_text() == "step-24.pt\n"


def test_a_checkpoint_reads_back_and_a_torn_one_does_not(tmp_path: Path) -> None:
    state = Training(8).state()
    write(tmp_path / "a.pt", state, "a", 0)
    assert read(tmp_path / "a.pt") == state
    (tmp_path / "b.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-1])
    with pytest.raises(zipfile.BadZipFile):
        read(tmp_path / "b.pt")


@pytest.mark.parametrize("part", COMPONENTS)
def test_a_component_is_left_out(tmp_path: Path, part: str) -> None:
    trainer = Trainer(tmp_path, defects=(f"drops-{part}",), STEPS="4")
    trainer.run()
    assert set(COMPONENTS) - set(read(trainer.store / "step-4.pt")) == {part}


@pytest.mark.parametrize(
    ("defect", "code", "first"),
    [
        ("writes-in-place", 1, None),
        ("points-before-data", 1, None),
        ("resumes-torn", 0, 9),
        ("repeats-a-step", 0, 4),
        ("restarts-at-zero", 0, 1),
        ("skips", 0, 6),
        ("never-cleans", 0, 5),
    ],
)
def test_how_it_resumes_with_a_defect(tmp_path: Path, defect: str, code: int, first: int | None) -> None:
    trainer = Trainer(tmp_path, defects=(defect,), SAVE_S="0.5", **SHORT)
    interrupted(trainer, '"event": "saving", "step": 8', torn="step-8.pt*")
    trainer.environment["SAVE_S"] = "0"
    found, log = trainer.run()
    assert found == code
    assert (losses(log)[0][0] if losses(log) else None) == first


def test_a_schedule_that_begins_anew(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, defects=("resets-lr",), **SHORT)
    interrupted(trainer, '"step": 6')
    _, log = trainer.run()
    assert losses(log)[0][2] == Training(12).lr


def test_it_goes_on_when_it_ignores_the_signal(tmp_path: Path) -> None:
    process = Trainer(tmp_path, defects=("ignores-sigterm",), STEP_S="0.01").start()
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_the_manifest_is_a_job_with_its_program(tmp_path: Path) -> None:
    config, job = yaml.safe_load_all(write_manifest(tmp_path, []).read_text())
    spec = job["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == GRACE_S
    program = tmp_path / "trainer.py"
    program.write_text(config["data"]["trainer.py"])
    done = subprocess.run(["python3", "-ISBm", "py_compile", str(program)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    short = list(yaml.safe_load_all(write_manifest(tmp_path, ["trainer-grace-too-short"]).read_text()))[1]
    env = {each["name"]: each.get("value") for each in short["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert float(env["SAVE_S"]) > GRACE_S


def test_every_defect_is_one_that_the_program_knows() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parents[2].glob("chaos_gpu/lab/trainer/*.py"))
    for name, _, criteria in PLANTED:
        known = f'"{name}"' in source or name.startswith("trainer-drops-")
        assert known, name
        assert criteria
