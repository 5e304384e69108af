"""Request bodies: read within bounds, decoded, or turned away with a Status that says how to send it instead."""

import json
from typing import Any

from aiohttp import web

from chaos_gpu.lab.apiserver.protobuf import decode_protobuf
from chaos_gpu.lab.apiserver.shapes import MAX_DEPTH
from chaos_gpu.lab.apiserver.status import StatusError, bad_request, unsupported_media

MAX_BODY_BYTES = 3 << 20
_JSON_TYPES = frozenset({"", "application/json", "application/octet-stream", "text/plain"})


async def read_json(request: web.Request) -> Any:
    """Return the decoded body, JSON or protobuf; None for an empty one.

    Raises:
        StatusError: 400, broken; 413, too large; 415, a media type or a protobuf message that is not read.
    """
    raw = await _read(request)
    if not raw:
        return None
    media_type = request.content_type
    if media_type == "application/vnd.kubernetes.protobuf":
        return decode_protobuf(raw)
    if media_type not in _JSON_TYPES and "json" not in media_type and media_type != "application/apply-patch+yaml":
        raise unsupported_media(f"{media_type} is not read here; send application/json")
    return decode(raw)


async def _read(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as e:
        message = f"Request entity too large: limit is {MAX_BODY_BYTES}"
        raise StatusError(413, "RequestEntityTooLarge", message) from e


def decode(raw: bytes) -> Any:
    """Decode JSON, strictly: no NaN, nothing infinite, no more than MAX_DEPTH levels.

    Raises:
        StatusError: 400, anything else.
    """
    try:
        value = json.loads(raw, parse_constant=_reject, parse_float=_finite)
    except (ValueError, RecursionError) as e:
        raise bad_request(f"the body is not JSON that is read here: {str(e)[:200]}") from e
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise bad_request(f"the body is nested deeper than {MAX_DEPTH} levels")
    return value


def _reject(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is out of range")
    return number


def _deeper_than(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        layer = [inner for outer in layer for inner in _inside(outer)]
        if not layer:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
