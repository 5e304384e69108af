"""A server of our own for each test, spoken to as any client would: over HTTP."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from chaos_gpu.lab.apiserver.server import ApiServer
from chaos_gpu.lab.apiserver.status import StatusError

Json = dict[str, Any]
WAIT_S = 10


@dataclass
class FakeSession:
    """An exec whose command is a Python function of its input; records what it was told."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0
    echo: bool = False  # say what comes in on stdout, until it is closed
    hang: bool = False  # run until killed
    sizes: list[tuple[int, int]] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._end = asyncio.Event()

    async def stdout(self) -> AsyncIterator[bytes]:
        if self.out:
            yield self.out
        while self.echo and (data := await self._input.get()) is not None:
            yield data
        if self.hang:
            await self._end.wait()

    async def stderr(self) -> AsyncIterator[bytes]:
        if self.err:
            yield self.err

    async def write_stdin(self, data: bytes) -> None:
        self._input.put_nowait(data)

    async def close_stdin(self) -> None:
        self._input.put_nowait(None)

    async def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))

    async def wait(self) -> int:
        return self.code

    async def kill(self) -> None:
        self._end.set()
        self.killed.set()


class FakeStreams:
    """A kubelet's streams with scripted content; records each request."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = [b"one\n", b"two\n"]
        self.endless = False
        self.ended = threading.Event()
        self.make: Callable[[], FakeSession] = FakeSession
        self.fault: Exception | None = None
        self.calls: list[Json] = []

    async def logs(self, pod: Json, container: str, **options: Any) -> AsyncIterator[bytes]:
        self.calls.append({"container": container, **options})
        try:
            if self.fault:
                raise self.fault
            for chunk in self.chunks:
                yield chunk
            if self.endless:
                await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def exec(self, pod: Json, container: str, command: Sequence[str], *, stdin: bool, tty: bool) -> FakeSession:
        self.calls.append({"container": container, "command": list(command), "stdin": stdin, "tty": tty})
        if self.fault:
            raise self.fault
        return self.make()


@dataclass
class Served:
    """A running server, and what the tests ask of it."""

    url: str
    pod_url: str
    audit: Path
    streams: FakeStreams
    http: httpx.Client

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        """Send a request as the administrator; returns code and decoded body."""
        headers = options.pop("headers", {})
        base = options.pop("base", self.url)
        media = options.pop("media", "application/json")
        content = None
        if body is not None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"Content-Type": media, **headers}
        response = self.http.request(method, f"{base}/{path}", content=content, headers=headers, **options)
        return response.status_code, response.json() if response.content[:1] in (b"{", b"[") else response.content

    def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """Send a request that must succeed."""
        code, answer = self.call(method, path, body, **options)
        assert code < 300, answer
        return answer

    def make(self, path: str, name: str, **rest: Any) -> Any:
        """Create an object."""
        meta = {"name": name, **rest.pop("metadata", {})}
        return self.ok("POST", path, {"metadata": meta, **rest})

    def audit_lines(self) -> list[Json]:
        """Return the audit log."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Run a server in a thread of its own."""
    streams = FakeStreams()
    loop = asyncio.new_event_loop()
    server = ApiServer("admin-secret", "pod-secret", tmp_path / "audit.jsonl", streams)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.start(), loop).result(WAIT_S)
    with httpx.Client(timeout=WAIT_S, trust_env=False) as http:
        yield Served(server.admin_url, server.pod_url, tmp_path / "audit.jsonl", streams, http)
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(WAIT_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_S)
    loop.close()


def code_of(function: Callable[..., Any], *args: Any) -> int:
    """Call a function; returns the code of the StatusError that it raises, 0 if it does not."""
    try:
        function(*args)
    except StatusError as e:
        return e.code
    return 0


def pod(name: str = "p", **spec: Any) -> Json:
    """Return a pod of one container."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "i"}], **spec}}


PODS = "api/v1/namespaces/default/pods"
MAPS = "api/v1/namespaces/default/configmaps"
NODES = "api/v1/nodes"
