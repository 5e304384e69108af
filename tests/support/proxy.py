"""An API server that misbehaves on cue: a reverse proxy between one client and a lab, with hooks on its requests.

    with Proxy(lab.kubeconfig, tmp_path / "kubeconfig") as proxy:
        proxy.on(request("POST", "/leases"), answer(403))                      # every such request
        proxy.on(request("PATCH", "/nodes/", nth=2), drop, stage=AFTER)        # the server acts, nobody hears of it
        proxy.on(at(17), send_signal(runner.pid, signal.SIGKILL))              # before the 17th request is passed on
        run(["chaos", "run", …], KUBECONFIG=str(proxy.kubeconfig))
    print(proxy.exchanges)

It runs in a thread of its own, passes watches and followed logs on as they come, and exec through as the websocket
it is. Paths are those behind the lab's secret: `/api/v1/nodes`. Hooks run on the proxy's event loop, in the order in
which they were set; the first that returns something else than None decides.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from aiohttp import (
    ClientConnectionError,
    ClientSession,
    ClientTimeout,
    TCPConnector,
    WSMsgType,
    WSServerHandshakeError,
    web,
)

BEFORE, AFTER = "before", "after"
"""Stages: before the server gets a request; after it has acted, when nothing of its answer was passed on."""

_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive", "upgrade", "host"}
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired"}


@dataclass
class Exchange:
    """One request and what became of it.

    Attributes:
        ordinal: 1 for the first request through this proxy.
        nth: 1 for the first of this method and path.
        path: behind the lab's secret, without query.
        status: of the server's answer, 0 while there is none.
        at_s: monotonic time of arrival.
    """

    ordinal: int
    nth: int
    method: str
    path: str
    query: dict[str, str]
    body: bytes
    at_s: float = field(default_factory=time.monotonic)
    status: int = 0

    @property
    def is_stream(self) -> bool:
        """Whether the answer comes bit by bit: a watch, or a log that is followed."""
        return any(self.query.get(name) in ("true", "1") for name in ("watch", "follow"))

    def __str__(self) -> str:
        query = "&".join(f"{key}={value}" for key, value in self.query.items())
        return f"{self.ordinal:3} {self.method} {self.path}{'?' if query else ''}{query} -> {self.status or '-'}"


class Cut(NamedTuple):
    """What a hook returns to pass on so many bytes of the answer's body, and then to break the connection."""

    after_bytes: int = 0


Reply = web.StreamResponse | Cut | None
Hook = Callable[[Exchange], Awaitable[Reply]]
When = Callable[[Exchange], bool]

# --- when --------------------------------------------------------------------------------------------------------


def anything(_: Exchange) -> bool:
    """Every request."""
    return True


def at(ordinal: int) -> When:
    """The request of this number."""
    return lambda exchange: exchange.ordinal == ordinal


def request(method: str = "", path: str = "", nth: int = 0, stream: bool | None = None) -> When:
    """Requests of a method ("" for any) whose path fits a regular expression; only the nth of those if nth > 0.

    `stream`: only watches and followed logs, or only others.
    """
    seen: list[int] = []

    def fits(exchange: Exchange) -> bool:
        if method and exchange.method != method or not re.search(path, exchange.path):
            return False
        if stream is not None and exchange.is_stream != stream:
            return False
        if exchange.ordinal not in seen:
            seen.append(exchange.ordinal)
        return not nth or seen.index(exchange.ordinal) == nth - 1

    return fits


# --- what --------------------------------------------------------------------------------------------------------


def answer(status: int, message: str = "said the proxy") -> Hook:
    """Answer with a Kubernetes Status instead of asking the server (BEFORE), or instead of what it said (AFTER)."""
    reason = _REASONS.get(status, "InternalError")
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}

    async def hook(_: Exchange) -> Reply:
        return web.json_response({**body, "message": message}, status=status)

    return hook


def delay(seconds: float) -> Hook:
    """Go on only after some time."""

    async def hook(_: Exchange) -> Reply:
        await asyncio.sleep(seconds)
        return None

    return hook


async def hang(_: Exchange) -> Reply:
    """Never answer; the client has to give up."""
    await asyncio.Event().wait()
    return None


async def drop(_: Exchange) -> Reply:
    """Break the connection without a byte: BEFORE, the server never hears of the request; AFTER, it has acted."""
    return Cut(0)


def cut(after_bytes: int) -> Hook:
    """Break the connection in the middle of the answer; meant for AFTER."""

    async def hook(_: Exchange) -> Reply:
        return Cut(after_bytes)

    return hook


def send_signal(pid: int | Callable[[], int], number: signal.Signals, group: bool = True) -> Hook:
    """Send a signal to a process (its group by default). A killed client's request ends here and is not passed on.

    `pid` may be a function, for a process that does not run yet when the hook is set.
    """

    async def hook(_: Exchange) -> Reply:
        target = pid() if callable(pid) else pid
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(target, number)
        return Cut(0) if number is signal.SIGKILL else None

    return hook


def call(function: Callable[[Exchange], object]) -> Hook:
    """Call a function (a short one: it runs on the proxy's event loop) and go on."""

    async def hook(exchange: Exchange) -> Reply:
        function(exchange)
        return None

    return hook


# --- the proxy ---------------------------------------------------------------------------------------------------


class Proxy:
    """A reverse proxy for one kubeconfig's cluster; `kubeconfig` is the way through it."""

    def __init__(self, upstream: Path, kubeconfig: Path, context: str = "lab") -> None:
        """Stand before the cluster of `upstream` (a JSON kubeconfig as labs write it); write `kubeconfig` on entry."""
        self.kubeconfig = kubeconfig
        self.exchanges: list[Exchange] = []
        self._config = json.loads(upstream.read_text())
        server = urlsplit(next(each["cluster"]["server"] for each in self._config["clusters"]))
        self._origin, self._secret = f"{server.scheme}://{server.netloc}", server.path.rstrip("/")
        self._hooks: list[tuple[str, When, Hook]] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._links: set[asyncio.Transport] = set()
        self._reachable = True
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._session: ClientSession
        self._runner: web.AppRunner

    def on(self, when: When, hook: Hook, stage: str = BEFORE) -> None:
        """Set a hook for the requests for which `when` holds."""
        self._hooks.append((stage, when, hook))

    def clear(self) -> None:
        """Take all hooks away."""
        self._hooks.clear()

    def cut_off(self) -> None:
        """Break every connection, and each new one at its first request, until `restore`."""
        self._reachable = False
        self._do(self._break_links())

    def restore(self) -> None:
        """Pass requests on again."""
        self._reachable = True

    def wait_for(self, when: When, limit_s: float = 30.0) -> Exchange:
        """Wait until a request (an earlier one counts) fulfils `when`. Raises TimeoutError."""
        end = time.monotonic() + limit_s
        with self._changed:
            while True:
                found = next((each for each in self.exchanges if when(each)), None)
                if found:
                    return found
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise TimeoutError(f"no such request in {limit_s:g} s")

    def __enter__(self) -> Self:
        self._thread.start()
        port = self._do(self._start())
        for each in self._config["clusters"]:
            each["cluster"]["server"] = f"http://127.0.0.1:{port}{self._secret}"
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps(self._config))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(30)

    async def _start(self) -> int:
        link = TCPConnector(ssl=self._authority())
        self._session = ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False, connector=link)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    def _authority(self) -> ssl.SSLContext | bool:
        """Trust what the kubeconfig trusts; a lab speaks plain HTTP."""
        given = (each["cluster"].pop("certificate-authority-data", "") for each in self._config["clusters"])
        text = base64.b64decode(next(given)).decode()
        return ssl.create_default_context(cadata=text) if text else True

    async def _stop(self) -> None:
        await self._break_links()
        await self._runner.cleanup()
        await self._session.close()

    async def _break_links(self) -> None:
        for link in list(self._links):
            link.abort()

    async def _handle(self, incoming: web.Request) -> web.StreamResponse:
        link = incoming.transport
        assert isinstance(link, asyncio.Transport)
        self._links.add(link)
        try:
            if not self._reachable:
                return _broken(incoming)
            return await self._exchange(incoming, self._record(incoming, await incoming.read()))
        except WSServerHandshakeError as refused:
            return web.Response(status=refused.status, text=refused.message)
        except (ClientConnectionError, ConnectionResetError):
            return _broken(incoming)
        finally:
            self._links.discard(link)

    def _record(self, incoming: web.Request, body: bytes) -> Exchange:
        path = incoming.path.removeprefix(self._secret)
        self._counts[incoming.method, path] += 1
        nth = self._counts[incoming.method, path]
        query = {**incoming.query}
        exchange = Exchange(len(self.exchanges) + 1, nth, incoming.method, path, query, body)
        with self._changed:
            self.exchanges.append(exchange)
            self._changed.notify_all()
        return exchange

    async def _ask(self, stage: str, exchange: Exchange) -> Reply:
        for of_stage, when, hook in list(self._hooks):
            if of_stage == stage and when(exchange):
                reply = await hook(exchange)
                if reply is not None:
                    return reply
        return None

    async def _exchange(self, incoming: web.Request, exchange: Exchange) -> web.StreamResponse:
        reply = await self._ask(BEFORE, exchange)
        if isinstance(reply, web.StreamResponse):
            return reply
        if isinstance(reply, Cut):
            return _broken(incoming)
        if incoming.headers.get("Upgrade", "").lower() == "websocket":
            return await self._websocket(incoming, exchange)
        return await self._forward(incoming, exchange)

    async def _forward(self, incoming: web.Request, exchange: Exchange) -> web.StreamResponse:
        url, headers = self._origin + incoming.raw_path, _kept(incoming.headers)
        async with self._session.request(incoming.method, url, data=exchange.body or None, headers=headers) as answered:
            body = b"" if exchange.is_stream else await answered.read()
            self._note(exchange, answered.status)
            reply = await self._ask(AFTER, exchange)
            if isinstance(reply, web.StreamResponse):
                return reply
            limit = reply.after_bytes if isinstance(reply, Cut) else None
            if limit == 0:
                return _broken(incoming)
            outgoing = web.StreamResponse(status=answered.status, headers=_kept(answered.headers))
            if not exchange.is_stream:
                outgoing.content_length = len(body)
            await outgoing.prepare(incoming)
            async for chunk in answered.content.iter_any() if exchange.is_stream else _once(body):
                await outgoing.write(chunk[:limit])
                if limit is not None and (limit := limit - len(chunk)) <= 0:
                    return _broken(incoming)
            await outgoing.write_eof()
            return outgoing

    async def _websocket(self, incoming: web.Request, exchange: Exchange) -> web.StreamResponse:
        wanted = [name.strip() for name in incoming.headers.get("Sec-WebSocket-Protocol", "").split(",") if name]
        headers = {k: v for k, v in _kept(incoming.headers).items() if not k.lower().startswith("sec-websocket")}
        url = self._origin + incoming.raw_path
        async with self._session.ws_connect(url, protocols=wanted, headers=headers, max_msg_size=0) as there:
            self._note(exchange, 101)
            reply = await self._ask(AFTER, exchange)
            if isinstance(reply, web.StreamResponse):
                return reply
            if isinstance(reply, Cut):
                return _broken(incoming)
            here = web.WebSocketResponse(protocols=[there.protocol] if there.protocol else (), max_msg_size=0)
            await here.prepare(incoming)
            ways = [asyncio.ensure_future(_pipe(here, there)), asyncio.ensure_future(_pipe(there, here))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await here.close(code=there.close_code or 1000)
            return here

    def _note(self, exchange: Exchange, status: int) -> None:
        with self._changed:
            exchange.status = status
            self._changed.notify_all()


async def _pipe(source: Any, sink: Any) -> None:
    async for message in source:
        if message.type is WSMsgType.BINARY:
            await sink.send_bytes(message.data)
        elif message.type is WSMsgType.TEXT:
            await sink.send_str(message.data)


async def _once(body: bytes) -> Any:
    if body:
        yield body


def _kept(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP}


def _broken(incoming: web.Request) -> web.StreamResponse:
    if incoming.transport is not None:
        incoming.transport.abort()
    return web.Response(status=502)
