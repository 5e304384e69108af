"""Exec in a pod's container over a websocket: protocols v4.channel.k8s.io and v5.channel.k8s.io.

The first byte of each message names its channel: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 terminal sizes;
in v5 the client sends 255 and a channel to close it.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NoReturn

from aiohttp import WSMsgType, web

from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.podlog import chosen_container
from chaos_gpu.lab.apiserver.status import Json, StatusError, bad_request, cause, status, success
from chaos_gpu.lab.apiserver.store import dump
from chaos_gpu.lab.apiserver.streams import CommandNotStarted, ExecSession, NotRunning, Streams

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255


class _ClientGone(Exception):
    """The client closed the connection before the command ended."""


async def run_exec(request: web.Request, bound: Bound, pod: Json, streams: Streams) -> web.StreamResponse:
    """Run one command, pass its streams on, and end with its exit code.

    Raises:
        StatusError: 400, no command, no such container, no websocket; 500, the container does not run.
    """
    query = bound.call.query
    command = request.query.getall("command", [])
    if not command:
        raise bad_request("you must specify at least 1 command for the container")
    container = chosen_container(pod, query.text("container"))
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=0)
    if not socket.can_prepare(request).ok:
        raise bad_request("exec needs a websocket (kubectl 1.30 or later); SPDY is not served")
    tty = query.flag("tty")
    stdin = query.flag("stdin")
    try:
        session = await streams.exec(pod, container, command, stdin=stdin, tty=tty)
    except NotRunning as e:
        raise StatusError(500, "InternalError", str(e)) from e
    except CommandNotStarted as e:
        await socket.prepare(request)
        await _finish(socket, _not_started(str(e)))
        return socket
    try:
        await socket.prepare(request)
        await _finish(socket, await _serve(socket, session))
    except (ConnectionError, _ClientGone):
        pass  # nobody is left to tell
    finally:
        await session.kill()
    return socket


async def _serve(socket: web.WebSocketResponse, session: ExecSession) -> Json:
    """Pass the streams on until the command has ended and said everything; returns the final Status."""
    feeding = asyncio.create_task(_feed(socket, session))
    ending = asyncio.create_task(_until_end(socket, session))
    try:
        await asyncio.wait({feeding, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            feeding.result()
        code = await ending
    finally:
        for task in (feeding, ending):
            task.cancel()
        await asyncio.gather(feeding, ending, return_exceptions=True)
    return success() if code == 0 else _failed(code, f"command terminated with exit code {code}")


async def _until_end(socket: web.WebSocketResponse, session: ExecSession) -> int:
    async with asyncio.TaskGroup() as group:
        group.create_task(_pass_on(socket, _STDOUT, session.stdout()))
        group.create_task(_pass_on(socket, _STDERR, session.stderr()))
    return await session.wait()


async def _pass_on(socket: web.WebSocketResponse, channel: int, chunks: AsyncIterator[bytes]) -> None:
    async for chunk in chunks:
        await socket.send_bytes(bytes([channel]) + chunk)


async def _feed(socket: web.WebSocketResponse, session: ExecSession) -> NoReturn:
    """Pass on what the client sends until it leaves."""
    async for message in socket:
        if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
            break
        data = message.data if isinstance(message.data, bytes) else message.data.encode("utf-8", "surrogatepass")
        await _take(data, session)
    raise _ClientGone


async def _take(data: bytes, session: ExecSession) -> None:
    channel, payload = (data[0], data[1:]) if data else (-1, b"")
    if channel == _STDIN:
        await session.write_stdin(payload)
    elif channel == _CLOSE and payload[:1] == bytes([_STDIN]):
        await session.close_stdin()
    elif channel == _RESIZE:
        size = _size(payload)
        if size:
            await session.resize(*size)


def _size(payload: bytes) -> tuple[int, int] | None:
    """Return columns and rows; None for anything that is no size of a terminal."""
    try:
        size = json.loads(payload)
        columns, rows = int(size["Width"]), int(size["Height"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return (columns, rows) if 0 < columns < 1 << 16 and 0 < rows < 1 << 16 else None


def _failed(code: int, message: str) -> Json:
    return status("Failure", 500, "NonZeroExitCode", message, {"causes": [cause("ExitCode", str(code))]})


def _not_started(why: str) -> Json:
    """Say what a kubelet and an API server say of a runtime's failure: each puts the same words before it."""
    prefix = "Internal error occurred: "
    message = f"{prefix}error executing command in container: {why}"
    return status("Failure", 500, "InternalError", prefix + message, {"causes": [{"message": message}]})


async def _finish(socket: web.WebSocketResponse, final: Json) -> None:
    await socket.send_bytes(bytes([_ERROR]) + dump(final))
    await socket.close()
