"""The API server, as the health policy's ServiceAccount: requests and one watch. Stdlib only.

One part of the controller's single file; see `policy_source` in `health_manifests`.
"""

import json
import os
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chaos_gpu.lab.platform.wire import encoded

if os.environ.get("KUBERNETES_API_URL", "").startswith("http:"):
    sys.modules["ssl"] = None  # type: ignore[assignment] # a quarter of the start-up time, and not needed then
import http.client

Json = dict[str, Any]
WATCH_S = 240


class Refused(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status = status


TROUBLES = (Refused, OSError, http.client.HTTPException, ValueError, LookupError, TypeError)
"""No answer, an error, or an answer of an unexpected shape: tried again at the next look."""


class Api:
    """Sends requests; each opens a connection of its own, so that threads may share it."""

    def __init__(self) -> None:
        self._account = Path(os.environ.get("SERVICEACCOUNT_DIR", "/var/run/secrets/kubernetes.io/serviceaccount"))
        host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        self._url = urllib.parse.urlsplit(os.environ.get("KUBERNETES_API_URL") or f"https://{host}:{port}")

    def request(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Json:
        """Send one request; plain text is returned as {"text": …}.

        Raises:
            Refused: the server said no.
            OSError, http.client.HTTPException: no answer.
        """
        connection = self._connect(10)
        try:
            raw = self._send(connection, method, path, body, kind).read()
        finally:
            connection.close()
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        return found if isinstance(found, dict) else {"text": raw.decode(errors="replace")}

    def items(self, path: str, labels: str = "", fields: str = "") -> Iterator[Json]:
        """Read a list page by page."""
        query = {"limit": "500", "labelSelector": labels, "fieldSelector": fields}
        while True:
            page = self.request("GET", f"{path}?{urllib.parse.urlencode({k: v for k, v in query.items() if v})}")
            yield from page.get("items") or ()
            query["continue"] = (page.get("metadata") or {}).get("continue", "")
            if not query["continue"]:
                return

    def changes(self, path: str, labels: str) -> Iterator[None]:
        """Yield once at first and once for each change of a list, until the server ends the watch."""
        selector = urllib.parse.urlencode({"labelSelector": labels})
        version = self.request("GET", f"{path}?{selector}&limit=1")["metadata"]["resourceVersion"]
        yield
        connection = self._connect(WATCH_S + 10)
        try:
            query = f"{selector}&watch=true&resourceVersion={version}&timeoutSeconds={WATCH_S}"
            for _ in self._send(connection, "GET", f"{path}?{query}", None, ""):
                yield
        finally:
            connection.close()

    def _connect(self, limit_s: float) -> http.client.HTTPConnection:
        address, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(address, port, timeout=limit_s)
        import ssl

        context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
        return http.client.HTTPSConnection(address, port, timeout=limit_s, context=context)

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, kind: str
    ) -> http.client.HTTPResponse:
        token = (self._account / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = kind
        data = None if body is None else encoded(body)
        connection.request(method, self._url.path.rstrip("/") + path, data, headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise Refused(response.status, response.read()[:300].decode(errors="replace"))
        return response
