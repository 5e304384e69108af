"""The payload that injects into DCGM, as a process beside a simulated engine: it proves, keeps, and puts back."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.faults.pods import payload_source
from chaos_gpu.lab.dcgm.dcgmi import answer
from chaos_gpu.lab.dcgm.engine import Engine, is_running, opened, state_file
from chaos_gpu.lab.dcgm.fields import FIELDS
from chaos_gpu.lab.dcgm.nodes import PROGRAMS, write_engine_files, write_programs
from chaos_gpu.lab.kubelet.devices import gpus_of, write_driver_files

Json = dict[str, Any]
GPUS = gpus_of(0)
DBE: Json = {
    "mode": "inject",
    "gpu": {"index": "3"},
    "field": 311,
    "value": 1,
    "step": 0,
    "baseline": None,
    "systems": "m",
    "refuse": {},
    "deadline_s": 30,
    "sticky": "",
}


class Node:
    """A directory that stands for a node with a standalone engine."""

    def __init__(self, root: Path) -> None:
        self.root, self.dcgm = root, root / "dcgm"
        write_driver_files(root / "driver", GPUS)
        write_engine_files(self.dcgm, GPUS, 0)
        write_programs(root / "bin")
        (root / "platform.json").write_text('{"defects": []}')
        (root / "payload.py").write_text(payload_source("dcgm"))
        self.env = {
            **os.environ,
            "LAB_DCGM_PATH": str(self.dcgm),
            "LAB_PLATFORM_FILE": str(root / "platform.json"),
            "NVIDIA_PROC_PATH": str(root / "driver"),
            "DCGMI_PATH": str(root / "bin" / PROGRAMS / "dcgmi"),
        }

    def host_engine(self) -> subprocess.Popen[str]:
        """Start the engine, and see it run."""
        program = self.root / "bin" / PROGRAMS / "nv-hostengine"
        engine = subprocess.Popen([program], env=self.env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert engine.stdout
        assert engine.stdout.readline() == "Host Engine Listener Started\n"
        return engine

    def start(self, **spec: Any) -> subprocess.Popen[str]:
        """Start the payload."""
        (self.root / "spec.json").write_text(json.dumps({**DBE, **spec}))
        argv = [sys.executable, "-I", str(self.root / "payload.py"), "--spec", str(self.root / "spec.json")]
        return subprocess.Popen(argv, env=self.env, stdout=subprocess.PIPE, text=True)

    def run(self, **spec: Any) -> tuple[int, list[Json]]:
        """Run the payload to its end."""
        payload = self.start(**spec)
        out, _ = payload.communicate(timeout=60)
        return payload.returncode, [json.loads(line) for line in out.splitlines()]

    def latest(self, field: int, gpu: int = 3) -> float | None:
        with opened(self.dcgm) as engine:
            return engine.latest(engine.gpus[gpu], field)

    def health(self) -> str:
        return answer(["health", "-g", "0", "-c"], self.dcgm).out


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    engine = made.host_engine()
    yield made
    engine.kill()
    engine.communicate()


def gpu_as_json(number: int) -> Json:
    gpu = GPUS[number]
    return {"index": number, "uuid": gpu.uuid, "pci": "", "model": ""}


def until(payload: subprocess.Popen[str], event: str) -> Json:
    """Read the payload's events up to one of a kind."""
    assert payload.stdout
    for line in payload.stdout:
        found: Json = json.loads(line)
        if found["event"] == event:
            return found
    raise AssertionError(f"no {event}")


def end(payload: subprocess.Popen[str]) -> tuple[int, Json]:
    payload.send_signal(signal.SIGTERM)
    out, _ = payload.communicate(timeout=60)
    return payload.returncode, json.loads(out.splitlines()[-1])


def test_it_lands_and_is_put_back(node: Node) -> None:
    answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
    payload = node.start()
    evidence = until(payload, "landed")["evidence"]
    assert evidence["gpu"]["uuid"] == GPUS[3].uuid
    assert evidence["engine_gpu"] == 3
    assert (evidence["field"], evidence["value"], evidence["prior"]) == (311, 1, 0)
    assert evidence["between_ns"][0] < evidence["between_ns"][1]
    assert "ecc_dbe_volatile_total" in evidence["text"]
    assert evidence["watch_set"] is False
    assert "Detected 1 volatile double-bit ECC error(s) in GPU 3." in node.health()
    code, last = end(payload)
    assert (code, last["event"], last["put_back"], last["missed"]) == (0, "reverted", 0, 0)
    assert node.latest(311) == 0
    assert "Failure" not in node.health()
    with opened(node.dcgm) as engine:  # the site's own watches stay
        assert engine.health_systems == "pmit"


def test_it_is_there_until_its_own_deadline(node: Node) -> None:
    payload = node.start(deadline_s=3)  # three times as long as a sample lives without a renewal
    until(payload, "holding")
    looked = 0
    began = time.monotonic()
    while time.monotonic() - began < 2.5:
        assert node.latest(311) == 1
        looked += 1
        time.sleep(0.05)
    out, _ = payload.communicate(timeout=60)
    last = json.loads(out.splitlines()[-1])
    assert looked > 5
    assert (payload.returncode, last["why"]) == (0, "deadline")
    assert last["renewed"] >= 2
    assert node.latest(311) == 0


def test_watches_that_nobody_has_set_are_taken_back(node: Node) -> None:
    payload = node.start()
    assert until(payload, "landed")["evidence"]["watch_set"] is True
    assert "Failure" in node.health()
    assert end(payload)[0] == 0
    assert answer(["health", "-g", "0", "-c"], node.dcgm).rc == 253


def test_watches_that_somebody_has_set_since_stay(node: Node) -> None:
    payload = node.start()
    assert until(payload, "landed")["evidence"]["watch_set"] is True
    answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
    code, last = end(payload)
    assert (code, last["event"]) == (0, "reverted")
    assert "somebody else" in last["kept"]
    with opened(node.dcgm) as engine:
        assert engine.health_systems == "pmit"


@pytest.mark.parametrize("watched", [True, False])
def test_it_tells_what_health_said_before(node: Node, watched: bool) -> None:
    if watched:
        answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
        answer(["test", "--inject", "--gpuid", "2", "-f", "84", "-v", "0", "--offset", "60"], node.dcgm)
    payload = node.start()
    before = json.loads(until(payload, "landed")["evidence"]["health_before"])["body"]
    assert before["Overall Health"]["value"] == ("Warning" if watched else "Healthy")
    assert end(payload)[0] == 0


def test_a_counter_goes_on_growing_so_that_health_goes_on_seeing_it(node: Node) -> None:
    payload = node.start(field=202, value=100, step=100, systems="p", deadline_s=90)
    until(payload, "holding")
    seen, began = [node.latest(202) or 0.0], time.monotonic()
    while time.monotonic() - began < 4 or seen[-1] < seen[0] + 200:  # twice the window
        seen.append(node.latest(202) or 0.0)
        assert time.monotonic() - began < 60, seen
        time.sleep(0.1)
    while "PCIe replays" not in node.health():  # a busy machine may renew late, but it goes on
        assert time.monotonic() - began < 80
    assert end(payload)[0] == 0
    assert seen == sorted(seen)
    assert node.latest(202) == 0


def test_an_xid_is_said_to_stay(node: Node) -> None:
    answer(["health", "-g", "0", "-s", "m"], node.dcgm)
    payload = node.start(field=230, value=79, baseline=0, sticky="engine restart needed")
    assert until(payload, "landed")["evidence"]["prior"] == 0
    code, last = end(payload)
    assert (code, last["stays"]) == (0, "engine restart needed")
    assert node.latest(230) == 0
    assert "fallen off the bus" in node.health()


def not_watched(engine: Engine) -> None:
    engine.watch_health("p", 30, 600)


def nothing(_: Engine) -> None:
    """Leave the engine as it is."""


@pytest.mark.parametrize(
    ("prepare", "spec", "why"),
    [
        (nothing, {"gpu": {"uuid": "GPU-0"}}, "no GPU"),
        (nothing, {"refuse": {GPUS[3].uuid: "it had its injections"}}, "it had its injections"),
        (not_watched, {}, "not for field 311: let the site set m too"),
        (nothing, {"field": 4711}, "shows no value of field 4711"),
        (nothing, {"field": 230, "value": 79}, "shows no value of field 230"),
    ],
)
def test_what_cannot_be_injected_changes_nothing(
    node: Node, prepare: Callable[[Engine], None], spec: Json, why: str
) -> None:
    with opened(node.dcgm) as engine:
        prepare(engine)
    before = _bytes(node)
    code, events = node.run(**spec)
    assert (code, events[-1]["event"]) == (3, "failed")
    assert why in events[-1]["reason"]
    assert _bytes(node) == before


def test_without_an_engine_nothing_happens(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert not is_running(node.dcgm)
    code, events = node.run()
    assert (code, events[-1]["event"]) == (3, "failed")
    assert "unable to establish a connection" in events[-1]["reason"]
    assert _bytes(node) == b""


FORGETFUL = """#!/bin/sh
case "$*" in *--inject*)
  echo x >> "$0.count"
  if [ "$(wc -l < "$0.count")" -gt {takes} ]; then echo "Successfully injected field info."; exit 0; fi
esac
exec "{dcgmi}" "$@"
"""


def forgetful(node: Node, takes: int) -> None:
    """Let dcgmi take so many samples, and then say success and do nothing, as it does of a bad value."""
    script = node.root / "forgetful"
    script.write_text(FORGETFUL.format(takes=takes, dcgmi=node.env["DCGMI_PATH"]))
    script.chmod(0o755)
    node.env["DCGMI_PATH"] = str(script)


def test_a_success_that_introspection_does_not_show_is_none(node: Node) -> None:
    answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
    forgetful(node, takes=0)
    before = _bytes(node)
    code, events = node.run(field=84, value=0, systems="i")  # of which no poll comes within the test
    assert (code, events[-1]["event"]) == (3, "failed")
    assert "introspection does not show the sample" in events[-1]["reason"]
    assert _bytes(node) == before


def test_a_value_that_cannot_be_put_back_is_said_to_be_left(node: Node) -> None:
    answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
    forgetful(node, takes=1)
    payload = node.start(field=84, value=0, systems="i")
    until(payload, "landed")
    code, last = end(payload)
    assert (code, last["event"]) == (4, "failed")
    assert "field 84 of GPU 3, the old value is not seen" in last["reason"]
    assert node.latest(84) == 0


@pytest.mark.parametrize("says", ["times out", "cannot be read"])
def test_a_sample_that_was_taken_is_put_back_although_its_proof_failed(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], says: str
) -> None:
    from chaos_gpu.payloads import dcgm

    answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
    for key in ("LAB_DCGM_PATH", "LAB_PLATFORM_FILE", "DCGMI_PATH"):
        monkeypatch.setenv(key, node.env[key])
    put, field = dcgm.Engine.inject, dcgm.Engine.field
    failed: list[str] = []

    def taken_and_slow(self: Any, *sample: Any) -> Any:
        said = put(self, *sample)
        if says == "times out" and not failed:
            failed.append("x")
            raise dcgm.NotPossible("dcgmi test: timed out")
        return said

    def unread(self: Any, *which: Any) -> Any:
        if says == "cannot be read" and node.latest(84) == 0 and not failed:
            failed.append("x")
            raise dcgm.NotPossible("dcgmi test: timed out")
        return field(self, *which)

    monkeypatch.setattr(dcgm.Engine, "inject", taken_and_slow)
    monkeypatch.setattr(dcgm.Engine, "field", unread)
    monkeypatch.setattr(dcgm, "gpus_of_node", lambda: [gpu_as_json(3)])
    told_to_go, _ = os.pipe()
    code = dcgm.inject({**DBE, "field": 84, "value": 0, "systems": "i", "gpu": {"index": 3}}, told_to_go)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, last["event"], last["left"], last["written"]) == (3, "failed", "", True)
    assert node.latest(84) == 1


def test_a_sample_that_cannot_be_taken_away_is_said_to_be_left(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from chaos_gpu.payloads import dcgm

    answer(["health", "-g", "0", "-s", "pmit"], node.dcgm)
    for key in ("LAB_DCGM_PATH", "LAB_PLATFORM_FILE", "DCGMI_PATH"):
        monkeypatch.setenv(key, node.env[key])
    put = dcgm.Engine.inject

    def taken_once(self: Any, *sample: Any) -> Any:
        if node.latest(84) == 1:
            put(self, *sample)
        raise dcgm.NotPossible("dcgmi test: timed out")

    monkeypatch.setattr(dcgm.Engine, "inject", taken_once)
    monkeypatch.setattr(dcgm, "gpus_of_node", lambda: [gpu_as_json(3)])
    told_to_go, _ = os.pipe()
    code = dcgm.inject({**DBE, "field": 84, "value": 0, "systems": "i", "gpu": {"index": 3}}, told_to_go)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, last["event"], last["written"]) == (4, "failed", True)
    assert "timed out" in last["left"]


def test_an_engine_that_restarts_meanwhile_has_forgotten_the_sample(node: Node) -> None:
    payload = node.start()
    until(payload, "landed")
    (node.dcgm / "hostengine").unlink()  # its lock with it: nobody is there any more
    code, last = end(payload)
    assert (code, last["event"]) == (0, "reverted")


def test_an_engine_is_found_among_the_nodes_processes() -> None:
    from chaos_gpu.payloads.dcgm import host_engines

    before = host_engines()
    with subprocess.Popen(["/usr/bin/nv-hostengine", "60"], executable="/bin/sleep") as engine:
        while engine.pid not in host_engines():  # until it is executed, it is still this program
            assert engine.poll() is None
        assert set(host_engines()) - {engine.pid} == set(before)
        engine.kill()


@pytest.mark.parametrize("engines", [[], [7, 8]])
def test_one_engine_is_needed(monkeypatch: pytest.MonkeyPatch, engines: list[int]) -> None:
    from chaos_gpu.payloads import dcgm

    monkeypatch.delenv("DCGMI_PATH", raising=False)
    monkeypatch.setattr(dcgm, "host_engines", lambda: engines)
    with pytest.raises(dcgm.NotPossible, match="one nv-hostengine is needed"):
        dcgm.Engine()


def test_dcgmi_is_run_where_its_engine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from chaos_gpu.payloads import dcgm

    monkeypatch.delenv("DCGMI_PATH", raising=False)
    monkeypatch.setattr(dcgm, "host_engines", lambda: [7])
    assert dcgm.Engine().command == ["nsenter", "--target", "7", "--mount", "--net", "--", "dcgmi"]


def test_reading_changes_nothing(node: Node) -> None:
    commands = {"discovery": ["discovery", "-l"], "diag": ["diag", "-r", "1", "-j"]}
    before = _bytes(node)
    code, events = node.run(mode="read", commands=commands, url="", limit_s=20)
    assert code == 0
    assert events[-1]["said"]["diag"]["rc"] == 0
    assert GPUS[0].uuid in events[-1]["said"]["discovery"]["out"]
    assert [gpu["uuid"] for gpu in events[-1]["gpus"]] == [gpu.uuid for gpu in GPUS]
    assert _bytes(node) == before


def test_the_simulated_engine_knows_every_field_that_may_be_injected() -> None:
    from chaos_gpu.criteria.dcgm import injection

    assert set(injection.FIELDS) <= set(FIELDS)
    for number, known in injection.FIELDS.items():
        assert known.systems in FIELDS[number].systems
        assert known.metric == (f"DCGM_FI_DEV_{FIELDS[number].metric}" if FIELDS[number].metric else "")


def _bytes(node: Node) -> bytes:
    try:
        return state_file(node.dcgm).read_bytes()
    except FileNotFoundError:
        return b""
