"""The health policy's faults: what they plan, what they refuse, that they take back; and where records are read."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from chaos_gpu.cluster.client import Deadlines
from chaos_gpu.cluster.clock import compare_with_server
from chaos_gpu.errors import ApiError, ApiUnavailable, Refused, UsageError
from chaos_gpu.faults.admission import AdmissionArguments, Mark, plan_admission
from chaos_gpu.faults.detectors import Watchers
from chaos_gpu.faults.gpu_job import JobArguments, plan_job
from chaos_gpu.faults.plan import Plan
from chaos_gpu.faults.planning import Planning
from chaos_gpu.faults.pods import payload_source
from chaos_gpu.faults.records import REMEDY_EMPTY, obstacle, read_records, skew_problem
from chaos_gpu.faults.settings import GuardArguments, Settings

MARK = {"key": "x.example/r2", "confirmed": "x.example/by"}
UUID = "GPU-11111111-2222-3333-4444-555555555555"
RECORD = {"node": "n0", "gpu_uuid": UUID, "level": "r2", "result": "Pass", "action": "return", "ended_at": 1795946400}
CONFIG_MAPS = {"kubernetes": "/api/v1/configmaps?labelSelector=a%3Db", "items": "$.items[*].data.*"}


class Api:
    """What planning asks of a cluster, answered from memory."""

    context, deadlines = "test", Deadlines(1, 1, 2)

    def __init__(self, records: list[Any] | None = None) -> None:
        self.records = [RECORD] if records is None else records
        self.asked: list[tuple[str, str, str]] = []

    def items(self, path: str, labels: str = "", fields: str = "") -> Iterator[dict[str, Any]]:
        self.asked.append((path, labels, fields))
        if path == "/api/v1/configmaps":
            yield {"data": {str(n): json.dumps(record) for n, record in enumerate(self.records)}}

    def date(self) -> str:
        return formatdate(usegmt=True)


def node(**annotations: str) -> dict[str, Any]:
    meta = {"name": "n0", "uid": "u0", "annotations": annotations, "labels": {"nvidia.com/gpu.count": "8"}}
    return {"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def planning(api: Api, fleet: list[dict[str, Any]], **settings: Any) -> Planning:
    chosen = Settings(**{"records": json.dumps(CONFIG_MAPS), "admission": json.dumps(MARK), **settings})
    watchers, guard = Watchers(), GuardArguments()
    return Planning(api, chosen, guard, "run", watchers, fleet, Counter(), Counter())  # type: ignore[arg-type]


def admission(standing: str, target: dict[str, Any], api: Api | None = None, **settings: Any) -> Plan:
    wanted = AdmissionArguments.model_validate({"fault": "r2-gone", "standing": standing})
    return plan_admission(planning(api or Api(), [target], **settings), wanted)


@given(
    st.sampled_from(["none", "warn", "fail"]),
    st.dictionaries(st.sampled_from([*MARK.values(), "a/b~c"]), st.text(max_size=4)).filter(lambda x: MARK["key"] in x),
)
def test_what_is_changed_on_the_node_is_taken_back_to_the_letter(standing: str, annotations: dict[str, str]) -> None:
    before = node(**annotations)
    (change,) = admission(standing, before).changes
    assert (change.path, change.uid) == ("/api/v1/nodes/n0", "u0")
    during = jsonpatch.apply_patch(deepcopy(before), list(change.patch))
    held = during["metadata"]["annotations"]
    assert held[MARK["key"]] == {"none": "none", "warn": "Warn", "fail": "Fail"}[standing]
    assert MARK["confirmed"] not in held
    assert jsonpatch.apply_patch(during, list(change.undo)) == before


def test_what_the_platform_wrote_meanwhile_is_left() -> None:
    (change,) = admission("none", node(**{MARK["key"]: "Pass"})).changes
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(node(**{MARK["key"]: "Warn"}), list(change.undo))
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(node(**{MARK["key"]: "Warn"}), list(change.patch))


@pytest.mark.parametrize(
    ("settings", "target", "told"),
    [
        ({"admission": ""}, node(**{MARK["key"]: "Pass"}), "CHAOS_GPU_ADMISSION does not say"),
        ({}, node(), "the node has no x.example/r2 among its annotations"),
        ({}, node(**{MARK["key"]: "none"}), "is 'none' already: nothing would change"),
        ({"records": ""}, node(**{MARK["key"]: "Pass"}), "CHAOS_GPU_RECORDS does not say"),
    ],
)
def test_what_cannot_be_shown_is_said_before_anything_is_changed(settings: Any, target: Any, told: str) -> None:
    plan = admission("none", target, **settings)
    assert told in plan.obstacles["DEV-01"].why
    assert "docs/records.md" in plan.obstacles["DEV-01"].remedy
    assert "CHAOS_GPU_RECORDS" in told or plan.changes == ()


def test_an_empty_source_shows_nothing() -> None:
    plan = admission("none", node(**{MARK["key"]: "Pass"}), Api([]))
    assert plan.obstacles == {"DEV-01": (f"{CONFIG_MAPS['kubernetes']} holds no record", REMEDY_EMPTY)}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"place": "spec", "key": "x"}', '{"keys": "x"}', '{"key": "x", "none": "Fail"}']
)
def test_a_mark_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="mark of admission"):
        Mark.read(text)


@pytest.mark.parametrize(
    "key", ["kubernetes.io/hostname", "node-role.kubernetes.io/worker", "chaos-gpu/protected", "nvidia.com/gpu.present"]
)
@pytest.mark.parametrize("field", ["key", "confirmed"])
def test_a_mark_that_is_others_word_is_refused(field: str, key: str) -> None:
    with pytest.raises(UsageError, match="not a platform's own word"):
        Mark.read(json.dumps({"key": "x", field: key, "place": "labels"}))


def test_the_job_asks_for_gpus_and_for_nothing_else() -> None:
    plan = plan_job(planning(Api(), [node()]), JobArguments(fault="our-job", gpus=1))
    assert plan.obstacles == {}
    assert plan.consequence is None
    assert plan.pod is not None
    (container,) = plan.pod["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["securityContext"]["runAsNonRoot"]
    assert not plan.pod["spec"]["automountServiceAccountToken"]
    assert plan.pod["spec"]["nodeName"] == "n0"
    assert all(mount.get("readOnly") for mount in container["volumeMounts"])
    lacking = plan_job(planning(Api([]), [node()]), JobArguments(fault="our-job"))
    assert set(lacking.obstacles) == {"DEV-02", "DEV-03", "DEV-05"}


def test_the_job_takes_no_more_gpus_than_the_guard_allows() -> None:
    with pytest.raises(Refused, match="asks for 2 GPUs, 1 may be touched"):
        plan_job(planning(Api(), [node()]), JobArguments(fault="our-job", gpus=2))
    with pytest.raises(ValidationError):
        JobArguments(fault="our-job", gpus=0)


def test_the_job_says_what_it_was_given_and_ends_when_told(tmp_path: Path) -> None:
    gpus = tmp_path / "gpus" / "0000:3b:00.0"
    gpus.mkdir(parents=True)
    (gpus / "information").write_text(f"GPU UUID: \t {UUID}\nBus Location: \t 0000:3b:00.0\n")
    (tmp_path / "payload.py").write_text(payload_source("gpu_job"))
    (tmp_path / "spec.json").write_text('{"deadline_s": 60}')
    environment = {**os.environ, "NVIDIA_PROC_PATH": str(tmp_path), "NVIDIA_VISIBLE_DEVICES": UUID}
    command = [sys.executable, "-I", str(tmp_path / "payload.py"), "--spec", str(tmp_path / "spec.json")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout
        said = [json.loads(job.stdout.readline()) for _ in range(3)]
        job.send_signal(signal.SIGTERM)
        said.append(json.loads(job.stdout.readline()))
    assert [each["event"] for each in said] == ["started", "landed", "holding", "reverted"]
    evidence = said[1]["evidence"]
    assert (evidence["given"], evidence["gpu"]["pci"]) == ([UUID], "0000:3b:00")
    assert evidence["between_ns"][0] <= evidence["between_ns"][1]
    assert job.returncode == 0


class TestRecords:
    """From the cluster, and from HTTP."""

    def test_the_sites_query_goes_to_the_server(self) -> None:
        api = Api()
        (record,) = read_records(api, Settings(records=json.dumps(CONFIG_MAPS)))  # type: ignore[arg-type]
        assert (record.node, record.problems) == ("n0", ())
        assert api.asked == [("/api/v1/configmaps", "a=b", "")]

    def test_an_experiment_may_say_it_in_its_own_text(self) -> None:
        assert Settings.model_validate({"records": CONFIG_MAPS}) == Settings(records=json.dumps(CONFIG_MAPS))

    def test_without_a_source_there_is_nothing_to_read(self) -> None:
        with pytest.raises(UsageError, match="no source of records"):
            read_records(Api(), Settings())  # type: ignore[arg-type]

    @pytest.fixture
    def site(self) -> Iterator[SimpleNamespace]:
        """An inventory on HTTP: what it says, and what it was sent."""
        state = SimpleNamespace(status=200, body=json.dumps({"items": [RECORD]}).encode(), sent=[], url="")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                state.sent.append(self.headers.get("Authorization"))
                self.send_response(state.status)
                if state.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(state.body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}/records"
        yield state
        server.shutdown()
        server.server_close()

    @pytest.fixture
    def dripping(self) -> Iterator[str]:
        """An inventory whose answer never ends: a byte now and then."""
        over = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                with suppress(OSError):
                    while not over.wait(0.05):
                        self.wfile.write(b" ")

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/records"
        over.set()
        server.shutdown()
        server.server_close()

    def test_an_answer_that_never_ends_is_given_up(self, dripping: str) -> None:
        with pytest.raises(ApiUnavailable, match="did not come to an end"):
            read_records(Api(), self.settings(dripping))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "address", ["http://inventory.example.com/x", "http://10.0.0.1/x", "http://localhost.evil/x"]
    )
    def test_a_token_is_shown_to_nobody_on_the_way(self, address: str) -> None:
        with pytest.raises(UsageError, match="https"):
            read_records(Api(), self.settings(address, token_env="INVENTORY"))  # type: ignore[arg-type]

    def settings(self, url: str, **more: str) -> Settings:
        return Settings(records=json.dumps({"http": url, **more}))

    def test_http_with_a_token_of_the_environment(self, site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INVENTORY", "s3cret")
        (record,) = read_records(Api(), self.settings(site.url, token_env="INVENTORY"))  # type: ignore[arg-type]
        assert record.problems == ()
        assert site.sent == ["Bearer s3cret"]

    @pytest.mark.parametrize(
        ("status", "body"), [(500, b"{}"), (302, b"{}"), (404, b"{}"), (200, b"<html>"), (200, b"")]
    )
    def test_an_answer_that_is_none(self, site: Any, status: int, body: bytes) -> None:
        site.status, site.body = status, body
        with pytest.raises(ApiError):
            read_records(Api(), self.settings(site.url))  # type: ignore[arg-type]
        found = obstacle(Api(), self.settings(site.url))  # type: ignore[arg-type]
        assert found is not None
        assert "cannot be read" in found.why
        assert "address answers" in found.remedy

    def test_nobody_answers(self) -> None:
        with pytest.raises(ApiUnavailable) as failure:
            read_records(Api(), self.settings("http://ann:s3cret@127.0.0.1:9/records?token=x"))  # type: ignore[arg-type]
        assert "s3cret" not in str(failure.value)
        assert "token" not in str(failure.value)


class TestClock:
    """The API server's time, to half a second."""

    def test_it_is_ours(self) -> None:
        found = compare_with_server(Api())  # type: ignore[arg-type]
        assert abs(found.offset_s) <= found.error_s
        assert skew_problem(Api(), Settings(skew_s=0))[0] == ""  # type: ignore[arg-type]

    def test_an_hour_behind(self) -> None:
        behind = Api()
        behind.date = lambda: "Sun, 29 Nov 2020 10:00:00 GMT"  # type: ignore[method-assign]
        told, measured = skew_problem(behind, Settings())  # type: ignore[arg-type]
        assert measured.offset_s < -1e6
        assert "clock is -" in told

    @pytest.mark.parametrize("said", ["", "yesterday"])
    def test_a_server_that_does_not_say(self, said: str) -> None:
        silent = Api()
        silent.date = lambda: said  # type: ignore[method-assign]
        with pytest.raises(ApiUnavailable, match="what time it is"):
            compare_with_server(silent)  # type: ignore[arg-type]
