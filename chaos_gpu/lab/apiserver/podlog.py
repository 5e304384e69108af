"""The log of a pod's container, as the kubelet gives it."""

import asyncio
from datetime import timedelta

from aiohttp import web

from chaos_gpu.lab.apiserver.calls import Bound
from chaos_gpu.lab.apiserver.clock import parse_rfc3339, utc_now
from chaos_gpu.lab.apiserver.status import Json, bad_request
from chaos_gpu.lab.apiserver.streams import NotRunning, Streams

_SILENCE_S = 0.1  # after which a follower of a silent log is answered, so that it knows that it follows


def chosen_container(pod: Json, asked: str) -> str:
    """Return the container that a request means.

    Raises:
        StatusError: 400, no such container, or several and none named.
    """
    spec = pod.get("spec") or {}
    names = [c["name"] for part in ("containers", "initContainers") for c in spec.get(part) or ()]
    name = pod["metadata"]["name"]
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {name}")
    if not asked and len(spec.get("containers") or ()) > 1:
        told = " ".join(c["name"] for c in spec["containers"])
        raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{told}]")
    return asked or names[0]


async def stream_log(request: web.Request, bound: Bound, pod: Json, streams: Streams) -> web.StreamResponse:
    """Stream a container's log.

    Raises:
        StatusError: 400, the container has no log, or a parameter cannot be read.
    """
    query = bound.call.query
    container = chosen_container(pod, query.text("container"))
    since = parse_rfc3339(query.text("sinceTime")) if query.has("sinceTime") else None
    seconds = query.number("sinceSeconds")
    if seconds is not None:
        since = utc_now() - timedelta(seconds=min(seconds, 1 << 31))
    chunks = streams.logs(
        pod,
        container,
        follow=query.flag("follow"),
        tail_lines=query.number("tailLines"),
        since=since,
        timestamps=query.flag("timestamps"),
        previous=query.flag("previous"),
        limit_bytes=query.number("limitBytes"),
    )
    first = asyncio.ensure_future(anext(chunks, b""))
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    try:
        await asyncio.wait({first}, timeout=_SILENCE_S if query.flag("follow") else None)
        if first.done():
            first.result()
        await response.prepare(request)
        await response.write(await first)
        async for chunk in chunks:
            await response.write(chunk)
    except NotRunning as e:
        if not response.prepared:
            raise bad_request(str(e)) from e
    except ConnectionError:
        pass  # the client has left
    finally:
        first.cancel()
    return response
