"""A genuine application Xid: what the payload makes a driver write, what it proves by, and when it does nothing."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.criteria.xid.incidents import incidents_of
from chaos_gpu.criteria.xid.reader import read_line
from chaos_gpu.errors import Refused
from chaos_gpu.faults.application_xid import ApplicationXidArguments, _check_repeats, _pod
from chaos_gpu.faults.detectors import Watchers
from chaos_gpu.faults.planning import Aim, Planning
from chaos_gpu.faults.pods import payload_source
from chaos_gpu.faults.settings import GuardArguments, Settings
from chaos_gpu.faults.targets import Target
from chaos_gpu.payloads.application_xid import driver_report
from chaos_gpu.payloads.node import Found, KernelLog

MARKER = "cgpu-0a1b2c3d"
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
PCI = "0000:3b:00"
FACTS = {13: (716, 3), 31: (700, 1), 43: (719, 1)}


class Pod:
    """The two containers of the pod, on a node with one GPU; `environment` is what the stand-in goes by."""

    def __init__(self, root: Path, libraries: Path) -> None:
        self.root, self.kmsg = root, root / "kmsg"
        self.kmsg.write_bytes(b"6,1,1000,-;usb 1-1: new device\n")
        (root / "shared").mkdir()
        info = root / "driver" / "gpus" / f"{PCI}.0" / "information"
        info.parent.mkdir(parents=True)
        info.write_text(f"Model: \t\t NVIDIA H100\nGPU UUID: \t {UUID}\nBus Location: \t {PCI}.0\n")
        (root / "payload.py").write_text(payload_source("application_xid"))
        self.environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(libraries),
            "CHAOS_GPU_SHARED": str(root / "shared"),
            "KMSG_FILE_PATH": str(self.kmsg),
            "NVIDIA_PROC_PATH": str(root / "driver"),
            "NVIDIA_VISIBLE_DEVICES": UUID,
            "STANDIN_LOG": str(self.kmsg),
        }
        self.containers: list[subprocess.Popen[str]] = []

    def start(self, *options: str, **spec: Any) -> subprocess.Popen[str]:
        full = {
            "code": 31,
            "marker": MARKER,
            "gpu": {},
            "refuse": {},
            "start_s": 30,
            "landing_s": 10,
            "deadline_s": 60,
            **spec,
        }
        (self.root / "spec.json").write_text(json.dumps(full))
        argv = [sys.executable, "-I", str(self.root / "payload.py"), "--spec", str(self.root / "spec.json"), *options]
        self.containers.append(subprocess.Popen(argv, env=self.environment, stdout=subprocess.PIPE, text=True))
        return self.containers[-1]

    def run(self, **spec: Any) -> tuple[int, list[dict[str, Any]]]:
        """Run both; once the fault has landed the witness is told to go. Returns its exit code and its events."""
        witness, events = self.start(**spec), []
        culprit = self.start("--culprit", **spec)
        assert witness.stdout is not None
        for line in witness.stdout:
            events.append(json.loads(line))
            if events[-1]["event"] == "holding":
                witness.send_signal(signal.SIGTERM)
        if events[-1]["event"] == "failed" and not events[-1].get("written"):
            culprit.send_signal(signal.SIGTERM)  # as the kubelet does when the pod ends
        culprit.wait(30)
        return witness.wait(30), events

    def records(self) -> list[str]:
        return [line for line in self.kmsg.read_text().splitlines() if "NVRM" in line]


@pytest.fixture
def pod(tmp_path: Path, driver: Path) -> Iterator[Pod]:
    made = Pod(tmp_path, driver)
    yield made
    for container in made.containers:
        container.kill()
        container.communicate(timeout=10)


@pytest.mark.parametrize("code", [13, 31, 43])
def test_the_driver_reports_our_process(pod: Pod, code: int) -> None:
    status, events = pod.run(code=code)
    assert [event["event"] for event in events] == ["started", "landed", "holding", "reverted"]
    assert status == 0
    evidence = events[1]["evidence"]
    error, count = FACTS[code]
    assert f"Xid (PCI:{PCI}): {code}, pid=" in evidence["text"]
    assert f"name={MARKER}, " in evidence["text"]
    assert evidence["gpu"] == {"pci": PCI, "uuid": UUID}
    assert evidence["cuda_error"] == error
    assert [record["text"] for record in evidence["records"]] == [line.split(";", 1)[1] for line in pod.records()]
    assert len(evidence["records"]) == count
    assert events[3]["undo"].startswith("none")


def test_a_burst_is_one_incident_and_its_first_record_is_its_time(pod: Pod) -> None:
    evidence = pod.run(code=13)[1][1]["evidence"]
    lines = [event for line in pod.records() if (event := read_line(line.encode()))]
    (incident,) = incidents_of(lines)
    assert (incident.records, incident.culprit and incident.culprit.process) == (3, MARKER)
    first, *_, last = evidence["records"]
    assert (evidence["kernel_us"], evidence["seq"]) == (first["kernel_us"], last["seq"])
    begun_ns, over_ns = evidence["between_ns"]
    assert begun_ns / 1000 - 1 <= first["kernel_us"] <= last["kernel_us"] <= over_ns / 1000
    assert begun_ns <= evidence["culprit_ns"][0] <= evidence["culprit_ns"][1] <= over_ns


def test_somebody_elses_record_is_not_ours(pod: Pod) -> None:
    pod.environment["STANDIN_BEFORE"] = "NVRM: Xid (PCI:0000:5d:00): 31, pid=7, name=train, channel 0x1"
    status, events = pod.run()
    assert status == 0
    assert len(events[1]["evidence"]["records"]) == 1
    pod.environment |= {"STANDIN_BEFORE": f"NVRM: Xid (PCI:{PCI}): 31, pid=7, name=train, x", "STANDIN_SILENT": "1"}
    for word in ("ready", "go", "done"):
        (pod.root / "shared" / word).unlink()
    status, events = pod.run(landing_s=1)
    assert (status, events[1]["event"], events[1]["written"]) == (3, "failed", True)
    assert "1 records of this GPU name others" in events[1]["reason"]


def test_a_driver_that_says_nothing(pod: Pod) -> None:
    pod.environment["STANDIN_SILENT"] = "1"
    status, events = pod.run(landing_s=1)
    assert (status, events[1]["event"], events[1]["written"]) == (3, "failed", True)
    assert events[1]["reason"] == "CUDA error 700, but the driver wrote no Xid that names our process"


def test_another_code_than_the_one_asked_for(pod: Pod) -> None:
    pod.environment["STANDIN_BEFORE"] = f"NVRM: Xid (PCI:{PCI}): 45, pid=7, name={MARKER}, channel 0x1"
    status, events = pod.run()
    assert (status, events[1]["written"]) == (3, True)
    assert events[1]["reason"] == "CUDA error 700, but the driver reported Xid 45 instead of 31"


def test_a_flood_is_not_waited_out() -> None:
    ours = f"NVRM: Xid (PCI:{PCI}): 31, pid=7, name={MARKER}, channel 0x1".encode()

    class Flood(KernelLog):
        def __init__(self, *first: bytes) -> None:
            self.first = first

        def records(self) -> Iterator[Found]:
            texts = chain(self.first, repeat(b"usb 1-1: new device"))
            return (Found(seq, 1000, "-", text) for seq, text in enumerate(texts))

    assert driver_report(Flood(), PCI, MARKER, 0.1).named is None
    report = driver_report(Flood(ours, ours.replace(b"31", b"45")), PCI, MARKER, 60)
    assert report.named is not None
    assert (report.named.text, len(report.records)) == (ours, 2)


REFUSALS = [
    ({"STANDIN_PROCESSES": "2"}, {}, f"2 processes of others compute on GPU {UUID}"),
    ({"STANDIN_USED_MIB": "1025"}, {}, f"1025 MiB of GPU {UUID} are in use, though not by us"),
    ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}, {}, "this GPU is shared through MPS"),
    ({"STANDIN_GPUS": "0"}, {}, "0 GPUs in this container's sight"),
    ({"STANDIN_GPUS": "8"}, {}, "8 GPUs in this container's sight"),
    ({"STANDIN_FAIL": "cuInit"}, {}, "cuInit: CUDA error 999"),
    ({"STANDIN_FAIL": "cuModuleLoadData"}, {}, "cuModuleLoadData: CUDA error 999"),
    ({"STANDIN_FAIL": "nvmlInit_v2"}, {}, "whether others use the GPU cannot be known: NVML errors [999, 0, 0, 0]"),
    ({"STANDIN_FAIL": "nvmlDeviceGetMemoryInfo"}, {}, "whether others use the GPU cannot be known"),
    ({"STANDIN_FAIL": "nvmlDeviceGetComputeRunningProcesses"}, {}, "whether others use the GPU cannot be known"),
    ({"LD_LIBRARY_PATH": "/nowhere"}, {}, "no libcuda.so.1 in this container"),
    ({}, {"refuse": {UUID: "it had its injections"}}, "it had its injections"),
    ({}, {"gpu": {"index": "1"}}, f"the device plugin gave GPU {PCI} {UUID}, not"),
    ({}, {"gpu": {"uuid": UUID[:-1] + "0"}}, f"the device plugin gave GPU {PCI} {UUID}, not"),
    ({"KMSG_FILE_PATH": "/nowhere"}, {}, "cannot read the kernel log"),
]


@pytest.mark.parametrize(("environment", "spec", "reason"), REFUSALS, ids=[row[2][:40] for row in REFUSALS])
def test_refused_and_nothing_done(pod: Pod, environment: dict[str, str], spec: dict[str, Any], reason: str) -> None:
    pod.environment |= environment
    status, events = pod.run(**spec)
    assert [event["event"] for event in events] == ["started", "failed"]
    assert reason in events[1]["reason"]
    assert status == 3
    assert "written" not in events[1]
    assert not pod.records(), "the driver had nothing to report"
    assert not (pod.root / "shared" / "done").exists()


@pytest.mark.parametrize(
    "name", [{"index": "0"}, {"uuid": UUID.lower()}, {"pci": PCI}], ids=lambda gpu: next(iter(gpu))
)
def test_the_gpu_that_was_asked_for(pod: Pod, name: dict[str, str]) -> None:
    assert pod.run(gpu=name)[0] == 0


def test_memory_that_the_driver_keeps_for_itself_is_nobodys(pod: Pod) -> None:
    pod.environment["STANDIN_USED_MIB"] = "1024"
    assert pod.run()[0] == 0


def test_without_a_culprit_nothing_is_waited_for_in_vain(pod: Pod) -> None:
    witness = pod.start(start_s=0.2)
    out, _ = witness.communicate(timeout=30)
    assert witness.returncode == 3
    assert "did not get ready" in json.loads(out.splitlines()[-1])["reason"]


def test_a_culprit_that_is_never_let_go_ahead_does_nothing(pod: Pod) -> None:
    assert pod.start("--culprit", deadline_s=0.2).wait(30) == 3
    assert not pod.records()


def test_a_witness_that_is_told_to_go_lets_nobody_go_ahead(pod: Pod) -> None:
    witness = pod.start()
    assert witness.stdout is not None
    assert json.loads(witness.stdout.readline())["event"] == "started"
    witness.send_signal(signal.SIGTERM)
    out, _ = witness.communicate(timeout=30)
    assert (witness.returncode, json.loads(out)["event"]) == (3, "failed")
    assert list((pod.root / "shared").iterdir()) == []


def test_a_culprit_that_is_told_to_go_does_nothing(pod: Pod) -> None:
    culprit = pod.start("--culprit")
    while not (pod.root / "shared" / "ready").exists():
        assert culprit.poll() is None
    culprit.send_signal(signal.SIGTERM)
    assert culprit.wait(30) == 3
    assert not pod.records()


def test_each_container_has_only_the_rights_that_it_needs() -> None:
    aim = Aim(Target(node="a", node_uid="u", gpu={"index": "5"}), [], {UUID: "spent"})
    wanted = ApplicationXidArguments(fault="real", code=13)
    built = _pod(Settings(start_s=60), "run-1", wanted, aim, {})
    witness, culprit = built["spec"]["containers"]
    assert (witness["name"], culprit["name"]) == ("payload", "culprit")
    assert witness["securityContext"]["privileged"]
    assert "nvidia.com/gpu" not in witness["resources"]["limits"]
    assert culprit["resources"]["limits"]["nvidia.com/gpu"] == "1"
    rights = culprit["securityContext"]
    assert (rights["runAsUser"], rights["runAsNonRoot"], rights["allowPrivilegeEscalation"]) == (65534, True, False)
    assert rights["capabilities"] == {"drop": ["ALL"]}
    assert {mount["name"] for mount in culprit["volumeMounts"]} == {"chaos-gpu", "shared"}, "neither log nor driver"
    assert {mount["name"] for mount in witness["volumeMounts"]} == {"chaos-gpu", "shared", "kmsg", "driver"}
    assert all(each["env"][0]["name"] == "CHAOS_GPU_GO" for each in (witness, culprit)), "neither starts too late"
    assert not built["spec"]["automountServiceAccountToken"]
    spec = json.loads(built["metadata"]["annotations"]["chaos-gpu/spec"])
    assert (spec["gpu"], spec["refuse"], spec["start_s"]) == ({}, {UUID: "spent"}, 30)


def test_one_gpu_is_not_given_more_than_its_day_allows() -> None:
    wanted = ApplicationXidArguments(fault="real", code=13)
    guard = GuardArguments()
    times = Counter({("", ""): guard.repeats_per_day + 1})
    planning = Planning(None, Settings(), guard, "run", Watchers(), [], Counter(), times)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="5 application faults may all hit one GPU, which may have 4 a day"):
        _check_repeats(planning, wanted)
    planning.times[("", "")] -= 1
    _check_repeats(planning, wanted)
