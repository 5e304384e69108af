"""The lab's dcgm-exporter: `/metrics` and `/health` on its pod's address, gathered from the engine at each scrape.

Environment: POD_IP, DCGM_EXPORTER_LISTEN (`:9400`), NODE_NAME; LAB_DCGM_PATH. With DCGM_REMOTE_HOSTENGINE_INFO it
shows the node's standalone engine; without, its embedded one, into which nobody can inject: what the GPUs say.

It answers one request at a time, and imports little before the first, so that a node costs little.
"""

import contextlib
import os
import socket
import sys
from pathlib import Path

TIMEOUT_S = 5
HEAD_BYTES = 8192


def metrics() -> str:
    """Return the metrics now; "" without an engine to ask."""
    from chaos_gpu.lab.dcgm.defects import planted
    from chaos_gpu.lab.dcgm.engine import is_running, opened
    from chaos_gpu.lab.dcgm.metrics import rendered

    directory = Path(os.environ["LAB_DCGM_PATH"])
    remote = bool(os.environ.get("DCGM_REMOTE_HOSTENGINE_INFO"))
    if remote and not is_running(directory):
        return ""
    with opened(directory) as engine:
        if remote:
            engine.watch_exported()
        return rendered(engine, os.environ["NODE_NAME"], live=not remote or planted("not-updated", "exporter"))


def answer(head: bytes) -> bytes:
    """Return the response to the head of a request: HTTP/1.0, so that the connection ends with it."""
    words = head.split(None, 2)
    path = words[1] if len(words) > 1 else b""
    if path == b"/metrics":
        text = metrics()
        status, body = ("200 OK", text) if text else ("503 Service Unavailable", "no host engine\n")
    else:
        status, body = ("200 OK", "OK\n") if path == b"/health" else ("404 Not Found", "not found\n")
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return f"HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _serve(connection: socket.socket) -> None:
    connection.settimeout(TIMEOUT_S)
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES:
        part = connection.recv(HEAD_BYTES)
        if not part:
            return
        head += part
    connection.sendall(answer(head))


def main() -> None:
    """Serve until killed."""
    address = os.environ["POD_IP"], int(os.environ.get("DCGM_EXPORTER_LISTEN", ":9400").rpartition(":")[2])
    with socket.create_server(address) as listener:
        sys.stdout.write(f"listening on {address[0]}:{address[1]}\n")
        sys.stdout.flush()
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                _serve(connection)


if __name__ == "__main__":
    main()
