"""An API server whose every answer a test writes down beforehand."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from chaos_gpu.cluster.client import Api, Deadlines, connect

Json = dict[str, Any]
TOKEN = "t0ken-that-nobody-may-see"


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    body: Any
    headers: dict[str, str]
    at_s: float = field(default_factory=time.monotonic)


Answer = Callable[[BaseHTTPRequestHandler], None]

SILENCE_S = 60.0
"""A server that says nothing for so long: whoever has ended before did not wait for it, on any machine."""


def reply(status: int, body: Any = None, wait_s: float = 0.0, **headers: str) -> Answer:
    """Answer with JSON (or with text as it is), after some time."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(wait_s)
        data = body.encode() if isinstance(body, str) else json.dumps(body or {}).encode()
        handler.send_response(status)
        for key, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(data)

    return send


def status(code: int, message: str = "said the test") -> Answer:
    return reply(code, {"kind": "Status", "status": "Failure", "code": code, "message": message})


def stream(*parts: Any, then: str = "end") -> Answer:
    """Answer with JSON lines one by one; a number waits so many seconds, an event until it is set; then it ends."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in parts:
            if isinstance(part, threading.Event):
                part.wait(SILENCE_S)
                continue
            if isinstance(part, int | float):
                time.sleep(part)
                continue
            data = part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n"
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            handler.wfile.flush()
        if then == "end":
            handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    return send


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection without a word."""
    handler.close_connection = True
    handler.connection.shutdown(2)


class Server:
    """Gives its answers in turn, and the last one for ever."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._answers: list[Answer] = [reply(200)]
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                parts = urlsplit(self.path)
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
                body = json.loads(raw) if raw else None
                with server._lock:
                    server.requests.append(Request(self.command, parts.path, query, body, dict(self.headers)))
                    answer = server._answers[0] if len(server._answers) == 1 else server._answers.pop(0)
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def answers(self, *answers: Answer) -> None:
        """Set what comes next."""
        with self._lock:
            self._answers = list(answers)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def make_api(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Api]:
    def make(connect_s: float = 0.5, read_s: float = 0.5, total_s: float = 1.0, token: str = TOKEN) -> Api:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        }
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(config))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(file))
        return connect("test", Deadlines(connect_s, read_s, total_s))

    return make


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    return make_api()
