"""Run a command inside a pod and talk to it line by line, over the API server's websocket."""

import json
import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import certifi
from kubernetes.stream.ws_client import websocket_proxycare
from websocket import ABNF, WebSocket, WebSocketException

from chaos_gpu.cluster.client import Api
from chaos_gpu.errors import ApiUnavailable

PROTOCOLS = "v5.channel.k8s.io,v4.channel.k8s.io"
_STDIN, _STDOUT, _STATUS = 0, 1, 3


class Exec:
    """A command running in a container; use as a context manager. A pod of several needs one of them named."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        pod: str,
        command: Sequence[str],
        timeout_s: float = 10.0,
        container: str = "",
    ) -> None:
        options = [("stdin", "true"), ("stdout", "true"), *([("container", container)] if container else [])]
        query = urlencode([("command", part) for part in command] + options)
        url = f"{api.host}/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/exec?{query}"
        self._what = f"exec in pod {namespace}/{pod}"
        self._rest = b""
        try:
            self._socket = _connect(api, "ws" + url.removeprefix("http"), timeout_s)
        except (WebSocketException, OSError) as failure:
            raise ApiUnavailable(f"{self._what}: {type(failure).__name__}: {str(failure)[:200]}") from failure

    def send_line(self, text: str = "") -> None:
        """Write one line to the command's standard input."""
        try:
            self._socket.send(bytes([_STDIN]) + text.encode() + b"\n", opcode=ABNF.OPCODE_BINARY)
        except (WebSocketException, OSError) as failure:
            raise ApiUnavailable(f"{self._what}: {failure}") from failure

    def read_line(self) -> str:
        """Read one line of its standard output. Raises ApiUnavailable when it ended or stays silent."""
        while b"\n" not in self._rest:
            try:
                frame = self._socket.recv()
            except (WebSocketException, OSError) as failure:
                raise ApiUnavailable(f"{self._what}: {failure}") from failure
            data = frame.encode() if isinstance(frame, str) else frame
            if not data:
                raise ApiUnavailable(f"{self._what}: closed by the server")
            if data[0] == _STATUS:
                raise ApiUnavailable(f"{self._what}: the command ended: {_status(data[1:])}")
            if data[0] == _STDOUT:
                self._rest += data[1:]
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._socket.close(timeout=0)


def _connect(api: Api, url: str, timeout_s: float) -> Any:
    """Open the websocket as the official client does, but with a time limit, which that one does not take."""
    settings = api.configuration
    tls: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE}
    tls |= {"ca_certs": settings.ssl_ca_cert or certifi.where()} if settings.verify_ssl else {}
    tls |= {"check_hostname": settings.assert_hostname} if settings.assert_hostname is not None else {}
    named = {"certfile": settings.cert_file, "keyfile": settings.key_file, "server_hostname": settings.tls_server_name}
    tls |= {key: value for key, value in named.items() if value}
    header = [f"sec-websocket-protocol: {PROTOCOLS}"]
    if token := api.authorization():
        header.append(f"authorization: {token}")
    options: dict[str, Any] = {"header": header, "timeout": timeout_s}
    if settings.proxy or settings.proxy_headers:
        options = websocket_proxycare(options, settings, url, {})
    socket: Any = WebSocket(sslopt=tls, skip_utf8_validation=False)
    socket.connect(url, **options)
    return socket


def _status(data: bytes) -> str:
    try:
        return str(json.loads(data).get("message") or "exit code 0")
    except ValueError:
        return data[:100].decode(errors="replace")
