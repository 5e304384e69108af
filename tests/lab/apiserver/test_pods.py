"""Logs, exec and eviction."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from chaos_gpu.lab.apiserver.streams import CommandNotStarted, NotRunning
from tests.lab.apiserver.conftest import PODS, WAIT_S, FakeSession, Served, pod

MERGE = "application/merge-patch+json"
STDOUT, STDERR, ERROR = 1, 2, 3
Message = tuple[int, bytes]


def text(served: Served, **parameters: str) -> bytes:
    response = served.http.get(f"{served.url}/{PODS}/p/log", params=parameters)
    assert response.status_code == 200, response.text
    return response.content


@pytest.fixture(autouse=True)
def one_pod(served: Served) -> None:
    served.ok("POST", PODS, pod())


def test_a_log(served: Served) -> None:
    assert text(served) == b"one\ntwo\n"
    assert served.streams.calls[0]["container"] == "main"


def test_an_empty_log(served: Served) -> None:
    served.streams.chunks = []
    assert text(served) == b""


def test_a_follower_of_a_silent_log_is_answered_at_once(served: Served) -> None:
    served.streams.chunks, served.streams.endless = [], True
    with served.http.stream("GET", f"{served.url}/{PODS}/p/log", params={"follow": "true"}) as response:
        assert response.status_code == 200
    assert served.streams.ended.wait(WAIT_S)


def test_what_a_log_is_asked_for_reaches_the_kubelet(served: Served) -> None:
    text(served, tailLines="2", timestamps="true", previous="True", limitBytes="9", container="main", sinceSeconds="5")
    call = served.streams.calls[0]
    assert (call["tail_lines"], call["timestamps"], call["previous"], call["limit_bytes"]) == (2, True, True, 9)
    assert call["since"] is not None
    assert not call["follow"]


def test_a_log_that_is_not_there_yet_is_400(served: Served) -> None:
    served.streams.fault = NotRunning('container "main" is waiting to start')
    for follow in ("false", "true"):
        code, answer = served.call("GET", f"{PODS}/p/log", params={"follow": follow})
        assert (code, answer["message"]) == (400, 'container "main" is waiting to start')


def test_a_container_must_be_there_and_be_named_if_there_are_several(served: Served) -> None:
    assert served.call("GET", f"{PODS}/p/log", params={"container": "ghost"})[0] == 400
    both = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    served.ok("POST", PODS, pod("q", containers=both))
    code, answer = served.call("GET", f"{PODS}/q/log")
    assert code == 400
    assert "[a b]" in answer["message"]


def test_following_ends_when_the_reader_leaves(served: Served) -> None:
    served.streams.endless = True
    with served.http.stream("GET", f"{served.url}/{PODS}/p/log", params={"follow": "True"}) as response:
        lines = response.iter_lines()
        assert [next(lines), next(lines)] == ["one", "two"]
        assert not served.streams.ended.is_set()
    assert served.streams.ended.wait(WAIT_S)


Talk = Callable[[aiohttp.ClientWebSocketResponse], Awaitable[None]]


async def _silence(_socket: aiohttp.ClientWebSocketResponse) -> None:
    """Say nothing."""


def run(served: Served, talk: Talk = _silence, protocol: str = "v5.channel.k8s.io", **parameters: str) -> list[Message]:
    """Exec over a websocket; returns the messages until the server closes."""

    async def session() -> list[Message]:
        query = {"command": "x", "stdout": "1", "stderr": "1", **parameters}
        url = f"{served.url}/{PODS}/p/exec"
        async with (
            aiohttp.ClientSession() as http,
            asyncio.timeout(WAIT_S),
            http.ws_connect(url, params=query, protocols=[protocol]) as socket,
        ):
            assert socket.protocol == protocol
            await talk(socket)
            return [(m.data[0], m.data[1:]) async for m in socket if m.type == aiohttp.WSMsgType.BINARY]

    return asyncio.run(session())


def status(messages: list[Message]) -> Any:
    channel, payload = messages[-1]
    assert channel == ERROR
    return json.loads(payload)


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
def test_output_comes_by_channel_and_then_success(served: Served, protocol: str) -> None:
    served.streams.make = lambda: FakeSession(out=b"hello", err=b"oops")
    messages = run(served, protocol=protocol)
    assert sorted(messages[:-1]) == [(STDOUT, b"hello"), (STDERR, b"oops")]
    assert status(messages)["status"] == "Success"


def test_an_exit_code_comes_as_a_cause(served: Served) -> None:
    served.streams.make = lambda: FakeSession(code=7)
    told = status(run(served))
    assert (told["status"], told["reason"]) == ("Failure", "NonZeroExitCode")
    assert told["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


def test_a_program_that_is_not_there_is_the_runtimes_failure_and_has_no_exit_code(served: Served) -> None:
    served.streams.fault = CommandNotStarted("no such program")
    told = status(run(served))
    assert (told["status"], told["reason"]) == ("Failure", "InternalError")
    assert told["message"].endswith("error executing command in container: no such program")
    assert "reason" not in told["details"]["causes"][0]


def test_a_container_that_does_not_run_refuses_the_upgrade(served: Served) -> None:
    served.streams.fault = NotRunning("not running")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        run(served)
    assert refused.value.status == 500


def test_exec_without_a_websocket_or_a_command_is_400(served: Served) -> None:
    assert served.call("POST", f"{PODS}/p/exec", params={"command": "x"})[0] == 400
    assert served.call("GET", f"{PODS}/p/exec")[0] == 400
    assert served.call("GET", f"{PODS}/ghost/exec", params={"command": "x"})[0] == 404


def test_what_is_asked_reaches_the_kubelet(served: Served) -> None:
    run(served, stdin="True", tty="true", container="main")
    assert served.streams.calls[0] == {"container": "main", "command": ["x"], "stdin": True, "tty": True}


def test_stdin_goes_in_and_its_end_too(served: Served) -> None:
    served.streams.make = lambda: FakeSession(echo=True)

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.send_bytes(b"\x00ping")
        await socket.send_str("\x00pong")
        await socket.send_bytes(b"\xff\x00")

    messages = run(served, talk, stdin="1")
    assert b"".join(data for channel, data in messages if channel == STDOUT) == b"pingpong"
    assert status(messages)["status"] == "Success"


def test_sizes_reach_the_terminal_and_nonsense_does_not(served: Served) -> None:
    session = FakeSession(echo=True)
    served.streams.make = lambda: session

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        for size in (b'{"Width":80,"Height":24}', b"{", b"[]", b'{"Width":"x","Height":1}', b'{"Width":0,"Height":1}'):
            await socket.send_bytes(b"\x04" + size)
        await socket.send_bytes(b"")
        await socket.send_bytes(b"\x09unknown")
        await socket.send_bytes(b"\xff\x00")

    run(served, talk, stdin="1", tty="1")
    assert session.sizes == [(80, 24)]


def test_a_command_is_killed_when_its_client_leaves(served: Served) -> None:
    session = FakeSession(hang=True)
    served.streams.make = lambda: session

    async def talk(socket: aiohttp.ClientWebSocketResponse) -> None:
        await socket.close()

    run(served, talk, stdin="1")
    assert session.killed.wait(WAIT_S)


def run_pod(served: Served, name: str, *, ready: bool = True, phase: str = "Running") -> None:
    served.ok("POST", PODS, pod(name, nodeName="n") | {"metadata": {"name": name, "labels": {"app": "x"}}})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    served.ok("PATCH", f"{PODS}/{name}/status", {"status": {"phase": phase, "conditions": conditions}}, media=MERGE)


def budget(served: Served, **spec: Any) -> None:
    spec = {"selector": {"matchLabels": {"app": "x"}}, **spec}
    served.make("apis/policy/v1/namespaces/default/poddisruptionbudgets", "b", spec=spec)


def evict(served: Served, name: str, **body: Any) -> tuple[int, Any]:
    return served.call("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}, **body})


def test_an_eviction_is_a_graceful_deletion(served: Served) -> None:
    run_pod(served, "a")
    assert evict(served, "a", deleteOptions={"gracePeriodSeconds": 3})[0] == 201
    assert served.ok("GET", f"{PODS}/a")["metadata"]["deletionGracePeriodSeconds"] == 3


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 0),
        ({"minAvailable": 1}, 1),
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"minAvailable": "51%"}, 0),
        ({"minAvailable": "50%"}, 1),
    ],
)
def test_a_budget_limits_evictions(served: Served, spec: dict[str, Any], allowed: int) -> None:
    run_pod(served, "a")
    run_pod(served, "b")
    budget(served, **spec)
    codes = [evict(served, name)[0] for name in ("a", "b")]
    assert codes == [201, 429] if allowed else [429, 429]


def test_a_refused_eviction_names_the_budget(served: Served) -> None:
    run_pod(served, "a")
    budget(served, minAvailable=1)
    code, answer = evict(served, "a")
    assert (code, answer["reason"]) == (429, "TooManyRequests")
    assert answer["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in served.ok("GET", f"{PODS}/a")["metadata"]


def test_a_controllers_count_is_believed_and_charged(served: Served) -> None:
    run_pod(served, "a")
    run_pod(served, "b")
    budget(served, minAvailable=2)
    path = "apis/policy/v1/namespaces/default/poddisruptionbudgets/b"
    served.ok("PATCH", f"{path}/status", {"status": {"disruptionsAllowed": 1}}, media=MERGE)
    assert [evict(served, name)[0] for name in ("a", "b")] == [201, 429]
    assert served.ok("GET", path)["status"]["disruptionsAllowed"] == 0


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_a_pod_that_does_no_work_may_always_go(served: Served, phase: str) -> None:
    run_pod(served, "a", phase=phase)
    budget(served, minAvailable=1)
    assert evict(served, "a")[0] == 201


def test_a_dry_eviction_leaves_the_pod(served: Served) -> None:
    run_pod(served, "a")
    assert evict(served, "a", deleteOptions={"dryRun": ["All"]})[0] == 201
    assert "deletionTimestamp" not in served.ok("GET", f"{PODS}/a")["metadata"]
