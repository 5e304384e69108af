"""One way to talk to an API server: raw JSON in and out, explicit context, a timeout and a deadline on every call.

The official client loads credentials (exec plugins, certificates, tokens) and builds the TLS pool; requests go through
that pool directly, because its typed models differ between 36 and 37 and cost seconds on large lists.
"""

import json
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import tenacity
import urllib3
import yaml
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.config.config_exception import ConfigException
from urllib3.exceptions import HTTPError

from chaos_gpu.errors import ApiError, ApiUnavailable, Conflict, Forbidden, Gone, Invalid, NotFound, UsageError
from chaos_gpu.payloads.wire import encoded

logger = logging.getLogger("chaostoolkit.gpu")

CONNECT_S = 3.0
READ_S = 10.0
DEADLINE_S = 30.0
PAGE = 500
IN_CLUSTER = "in-cluster"

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

JsonObject = dict[str, Any]
_BY_STATUS = {400: Invalid, 401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone, 422: Invalid}
_TRANSIENT = {429, 500, 502, 503, 504}
_REMEDIES = {
    Forbidden: "log in again, or check what the user may do: chaos-gpu doctor",
    Invalid: "correct the value that the API server does not accept",
}


class _Transient(Exception):  # noqa: N818 - a signal between two functions here, never seen outside
    """A failure worth another try before the deadline."""


@dataclass(frozen=True)
class Deadlines:
    """How long a call may take: seconds to connect, between bytes, and in all, retries included."""

    connect_s: float = CONNECT_S
    read_s: float = READ_S
    total_s: float = DEADLINE_S


class Api:
    """A connection to one API server, safe to share between threads."""

    def __init__(self, client: ApiClient, context: str, deadlines: Deadlines | None = None) -> None:
        self.configuration: Configuration = client.configuration
        self.context = context
        self.host: str = self.configuration.host.rstrip("/")
        self.deadlines = deadlines or Deadlines()
        self._pool: urllib3.PoolManager = client.rest_client.pool_manager

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        deadline_s: float | None = None,
    ) -> JsonObject:
        """Send one request, trying again on transient failures until the deadline.

        A repeated POST may find its own first try: callers treat `Conflict` on objects named after the run as theirs.

        Returns: the answer's JSON object ({"text": …} for logs and other plain text).
        Raises: ApiError by status; ApiUnavailable when the deadline passed without an answer.
        """
        limit = deadline_s or self.deadlines.total_s
        attempt = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Transient),
            wait=tenacity.wait_exponential(multiplier=0.1, max=2.0) + tenacity.wait_random(0, 0.1),
            stop=tenacity.stop_before_delay(limit),
            reraise=True,
        )
        try:
            return attempt(self._once, method, self._url(path, query), body, content_type, time.monotonic() + limit)
        except _Transient as failure:
            raise ApiUnavailable(
                f"{method} {path}: {failure} (gave up after {limit:g} s)",
                remedy=f"check that the API server of context {self.context!r} answers: kubectl get --raw /readyz",
            ) from failure

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> JsonObject:
        """Read one object, or one page of a list."""
        return self.request("GET", path, query)

    def find(self, path: str) -> JsonObject | None:
        """Read one object; None when there is none."""
        try:
            return self.get(path)
        except NotFound:
            return None

    def items(self, path: str, labels: str = "", fields: str = "") -> Iterator[JsonObject]:
        """Read a list page by page, filtered by the server."""
        query: dict[str, Any] = {"limit": PAGE}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        while True:
            page = self.get(path, query)
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create an object. Raises Conflict when it exists."""
        return self.request("POST", path, body=body)

    def patch(self, path: str, body: Any, content_type: str = MERGE_PATCH) -> JsonObject:
        """Change an object. Raises Invalid when a JSON-patch `test` does not hold."""
        return self.request("PATCH", path, body=body, content_type=content_type)

    def delete(self, path: str, grace_s: int | None = None, uid: str = "", background: bool = False) -> bool:
        """Delete an object if it is (still) the one with `uid`; False when it was gone already."""
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid:
            options["preconditions"] = {"uid": uid}
        if background:
            options["propagationPolicy"] = "Background"
        try:
            self.request("DELETE", path, body=options)
        except NotFound:
            return False
        return True

    def watch(
        self, path: str, query: Mapping[str, Any], read_s: float, opened: Callable[[], object] = bool
    ) -> Iterator[JsonObject]:
        """Read a watch event by event, until the server ends it or `read_s` passed without a byte.

        `opened` is called once the server has begun to answer: from then on it is a watch.

        Raises: ApiError by status (also for an ERROR event), ApiUnavailable when the connection broke or what came
        through it is no event.
        """
        for line in self.lines(path, query, read_s, opened):
            if line.strip():
                yield _event(line)

    def lines(
        self, path: str, query: Mapping[str, Any], read_s: float, opened: Callable[[], object] = bool
    ) -> Iterator[bytes]:
        """Read an answer line by line as it comes: a watch, or a log that is followed. Raises as `watch` does."""
        timeout = urllib3.Timeout(connect=self.deadlines.connect_s, read=read_s)
        url, headers = self._url(path, query), self._headers()
        try:
            response = self._pool.request(
                "GET", url, headers=headers, timeout=timeout, retries=False, preload_content=False
            )
            try:
                if response.status >= 300:
                    raise error_of(response.status, response.read())
                opened()
                yield from _split(response.stream(65536, decode_content=True))
            finally:
                response.close()
        except HTTPError as failure:
            raise ApiUnavailable(f"reading {path}: {_short(failure)}") from failure

    def date(self) -> str:
        """Return what the API server says the time is: the `Date` of an answer, "" where it says none.

        Raises: ApiUnavailable when it does not answer.
        """
        limits = self.deadlines
        timeout = urllib3.Timeout(connect=limits.connect_s, read=limits.read_s)
        try:
            answer = self._pool.request(
                "GET", self._url("/version", None), headers=self._headers(), timeout=timeout, retries=False
            )
        except HTTPError as failure:
            raise ApiUnavailable(f"reading /version: {_short(failure)}") from failure
        return str(answer.headers.get("Date", ""))

    def authorization(self) -> str:
        """The Authorization header's value, "" for none; asks the credential plugin when it is due.

        Raises: UsageError for a token that no header can hold (an HTTP library would show it in its own error).
        """
        settings = self.configuration.auth_settings()
        value = str(settings.get("BearerToken", {}).get("value") or "")
        if not (value.isascii() and value.isprintable()):
            raise UsageError(
                f"the token of context {self.context!r} holds a character that no HTTP header may",
                remedy="log in again; a token is one line of printable ASCII",
            )
        return value

    def _once(self, method: str, url: str, body: Any, content_type: str, give_up_at: float) -> JsonObject:
        left = max(0.1, give_up_at - time.monotonic())
        timeout = urllib3.Timeout(
            connect=min(self.deadlines.connect_s, left), read=min(self.deadlines.read_s, left), total=left
        )
        headers = self._headers({"Content-Type": content_type} if body is not None else {})
        data = None if body is None else encoded(body)
        try:
            response = self._pool.request(method, url, body=data, headers=headers, timeout=timeout, retries=False)
        except HTTPError as failure:
            if _is_distrust(failure):
                raise ApiUnavailable(
                    f"the API server of context {self.context!r} is not trusted: {_short(failure)}",
                    remedy="check certificate-authority(-data) and the server's name in the kubeconfig",
                ) from failure
            raise _Transient(_short(failure)) from failure
        if response.status in _TRANSIENT and not _is_policy(response.status, response.data):
            raise _Transient(f"HTTP {response.status}: {error_of(response.status, response.data).reason}")
        if response.status >= 300:
            raise error_of(response.status, response.data)
        return _decode(response.data)

    def _url(self, path: str, query: Mapping[str, Any] | None) -> str:
        return f"{self.host}{quote(path, safe='/')}" + (f"?{urlencode(query, doseq=True)}" if query else "")

    def _headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "chaos-gpu", **(more or {})}
        if token := self.authorization():
            headers["Authorization"] = token
        return headers


UNLOADABLE = (ConfigException, OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError)
"""What the client's loader raises for a kubeconfig that it cannot use."""


def connect(context: str, deadlines: Deadlines | None = None) -> Api:
    """Connect to the cluster that `context` names; the kubeconfig's current-context never counts.

    Args:
        context: a context of the kubeconfig ($KUBECONFIG or ~/.kube/config), or `in-cluster` for the pod's own
            ServiceAccount.
        deadlines: limits of each call.

    Raises: UsageError when the context is empty or cannot be loaded.
    """
    if not context:
        raise UsageError(
            "no cluster named: the current-context of a kubeconfig is never used",
            remedy="set CHAOS_GPU_CONTEXT to a context of your kubeconfig, or to in-cluster",
        )
    settings = Configuration()
    settings.retries = False
    try:
        if context == IN_CLUSTER:
            config.load_incluster_config(client_configuration=settings)
        else:
            config.load_kube_config(context=context, client_configuration=settings)
        _load_certificates(settings)
    except UNLOADABLE as failure:
        raise UsageError(
            f"context {context!r} cannot be loaded: {_without_content(failure)}",
            remedy=f"{_contexts_there()}; KUBECONFIG says where to look",
        ) from failure
    return Api(ApiClient(settings), context, deadlines)


def _contexts_there() -> str:
    try:
        known, _ = config.list_kube_config_contexts()
        names = ", ".join(sorted(str(each["name"]) for each in known))
    except UNLOADABLE:
        names = ""
    return f"contexts there: {names}" if names else "kubectl config get-contexts lists what there is"


def error_of(status: int, data: bytes) -> ApiError:
    """Make the error for an HTTP status; only a Kubernetes Status's own message is kept, cut, never the body."""
    message = ""
    try:
        body = json.loads(data)
        if isinstance(body, dict) and body.get("kind") == "Status":
            message = str(body.get("message") or "")[:256]
    except ValueError:
        pass
    kind = _BY_STATUS.get(status, ApiError)
    return kind(message or f"the API server answered HTTP {status}", status, _REMEDIES.get(kind, ""))


def _split(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _event(line: bytes) -> JsonObject:
    try:
        event: JsonObject = json.loads(line)
    except ValueError as failure:
        raise ApiUnavailable("the watch broke off in the middle of an event") from failure
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise ApiUnavailable("the watch brought something else than events")
    if event.get("type") == "ERROR":
        status = event.get("object") or {}
        raise error_of(int(status.get("code") or 500), json.dumps(status).encode())
    return event


def _decode(data: bytes) -> JsonObject:
    try:
        value = json.loads(data)
    except ValueError:
        return {"text": data.decode(errors="replace")}
    return value if isinstance(value, dict) else {"text": data.decode(errors="replace")}


def _is_policy(status: int, data: bytes) -> bool:
    """A 429 that a disruption budget gave is an answer, not a busy server."""
    return status == 429 and b"DisruptionBudget" in data


def _short(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {str(failure)[:200]}"


def _load_certificates(settings: Configuration) -> None:
    """Read the certificates now: at the first request, one that is none would look like a server that is not there."""
    probe = ssl.create_default_context()
    if settings.ssl_ca_cert:
        probe.load_verify_locations(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        probe.load_cert_chain(settings.cert_file, settings.key_file)


def _without_content(failure: BaseException) -> str:
    """Say why a kubeconfig cannot be read, never what is in it."""
    if isinstance(failure, ConfigException | OSError):
        return _short(failure)
    mark = getattr(failure, "problem_mark", None)
    where = f" near line {mark.line + 1}" if mark else ""
    return f"it is not a kubeconfig ({type(failure).__name__}{where})"


def _is_distrust(failure: HTTPError) -> bool:
    """A certificate that does not verify will not verify at the next try either."""
    causes = (failure, failure.__cause__, *failure.args)
    return any(isinstance(each, ssl.SSLCertVerificationError) for each in causes)
