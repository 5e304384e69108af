"""Read a platform's records from where its site keeps them, and see how far its clock is from ours."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import urllib3
from urllib3.exceptions import HTTPError

from chaos_gpu.cluster.client import Api
from chaos_gpu.cluster.clock import ClockOffset, compare_with_server
from chaos_gpu.criteria.health.record import Record
from chaos_gpu.criteria.health.source import REMEDY, Source, read_source, records_in
from chaos_gpu.errors import ApiError, ApiUnavailable, UsageError
from chaos_gpu.faults.obstacle import Obstacle
from chaos_gpu.faults.settings import Settings
from chaos_gpu.redact import redact_text

MAX_BYTES = 64 << 20
PIECE_BYTES = 1 << 16
LOOK_S, LOOK_SHARE, LOOK_MOST_S = 0.1, 0.02, 30.0
READING_SHARE = 0.2
"""How often records are read while one is waited for: each 2 % of the time waited, in bounds, but never for more than a
fifth of the time: a large fleet's take seconds."""
_HTTP = urllib3.PoolManager(retries=False)

REMEDY_CLUSTER = "let the run's user get and list them: docs/records.md has the Role"
REMEDY_HTTP = "see whether that address answers from here, and with the token that token_env names"
REMEDY_EMPTY = "see whether its JSONPath leads to the records, and whether the platform has written any"


def read_records(api: Api, settings: Settings) -> list[Record]:
    """Return every record that there is.

    Raises: UsageError where no source is declared, or what is there is none; ApiError and ApiUnavailable as they come.
    """
    source = read_source(settings.records)
    if source is None:
        raise UsageError("no source of records is declared", remedy=REMEDY)
    return records_in(_from_cluster(api, source) if source.kubernetes else _from_http(api, source), source)


def obstacle(api: Api, settings: Settings) -> Obstacle | None:
    """Say why nothing can be judged by the platform's records, None when it can. Raises UsageError for bad input."""
    source = read_source(settings.records)
    if source is None:
        return Obstacle("CHAOS_GPU_RECORDS does not say where the platform keeps its records", REMEDY)
    try:
        found = read_records(api, settings)
    except (ApiError, ApiUnavailable) as failure:
        remedy = REMEDY_CLUSTER if source.kubernetes else REMEDY_HTTP
        return Obstacle(f"the records of {source.name} cannot be read: {failure.reason}", remedy)
    return None if found else Obstacle(f"{source.name} holds no record", REMEDY_EMPTY)


def wait_for_records(
    api: Api,
    settings: Settings,
    seen: Callable[[list[Record]], bool],
    until_s: float,
    pause: Callable[[float], None],
) -> list[Record]:
    """Read the records until they show something, or until monotonic `until_s`; return them as read last.

    Args:
        api: the connection.
        settings: where they are.
        seen: says whether what is waited for is there.
        until_s: when to give up.
        pause: sleeps; the run's raises when it must stop.
    """
    begun_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        records, now_s = read_records(api, settings), time.monotonic()
        if seen(records) or now_s >= until_s:
            return records
        wanted_s = max(LOOK_S, LOOK_SHARE * (now_s - begun_s), (now_s - asked_s) * (1 / READING_SHARE - 1))
        pause(min(LOOK_MOST_S, wanted_s, until_s - now_s))


def skew_problem(api: Api, settings: Settings) -> tuple[str, ClockOffset]:
    """Say whether the cluster's clock is surely further from ours than `skew_s`: ("" or what is wrong, measured)."""
    measured = compare_with_server(api)
    over = abs(measured.offset_s) - measured.error_s > settings.skew_s
    told = f"the API server's clock is {measured.offset_s:+.1f} s from ours, {settings.skew_s:g} s may be"
    return (told if over else ""), measured


def epoch_offset_s() -> float:
    """Return seconds since the epoch minus the runner's monotonic seconds."""
    return datetime.now(UTC).timestamp() - time.monotonic()


def _from_cluster(api: Api, source: Source) -> Any:
    """Read a list whole, page by page, with the query that the site gave."""
    path, _, text = source.kubernetes.partition("?")
    query = dict(parse_qsl(text))
    items = list(api.items(path, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", "")))
    return {"items": items}


def _whole(answer: urllib3.BaseHTTPResponse, until_s: float) -> bytes:
    """Read a body of up to a byte more than may be; a server that drips is given up. Raises TimeoutError."""
    raw = bytearray()  # bytes would be copied whole for each piece
    try:
        while len(raw) <= MAX_BYTES and (piece := answer.read1(PIECE_BYTES, decode_content=True)):
            raw += piece
            if time.monotonic() > until_s:
                raise TimeoutError("the answer did not come to an end")
    finally:
        answer.close()
    return bytes(raw)


def _from_http(api: Api, source: Source) -> Any:
    token = os.environ.get(source.token_env, "") if source.token_env else ""
    headers = {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    limits = api.deadlines
    timeout = urllib3.Timeout(connect=limits.connect_s, read=limits.read_s, total=limits.total_s)
    try:
        answer = _HTTP.request(
            "GET", source.http, headers=headers, timeout=timeout, redirect=False, preload_content=False
        )
        raw = _whole(answer, time.monotonic() + limits.total_s)
    except (HTTPError, TimeoutError) as failure:
        raise ApiUnavailable(f"{source.name}: {redact_text(str(failure))[:200]}") from failure
    if answer.status != 200:
        raise ApiError(f"{source.name} answered HTTP {answer.status}", answer.status)
    if len(raw) > MAX_BYTES:
        raise ApiError(f"{source.name} gives more than {MAX_BYTES >> 20} MiB", answer.status)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        raise ApiError(f"{source.name} gives no JSON", answer.status) from None
