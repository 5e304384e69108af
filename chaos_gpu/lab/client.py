"""The API client of the lab's kubelet and controllers: raw JSON over HTTP, and informers that follow a collection.

They talk to the server as any client would, so that they see what a client sees.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace ("" for cluster-wide objects) and name."""

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
TIMEOUT = aiohttp.ClientTimeout(total=30, connect=3)
WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=3)
WATCH_S = 3600


class ApiFailure(Exception):
    """The server answered with a Status; `code` is the HTTP status, `reason` the Status reason."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        """Keep what the Status says."""
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


TRANSIENT = (aiohttp.ClientError, TimeoutError, ApiFailure)
"""What a control loop tries again after."""


def key_of(obj: Json) -> Key:
    """Return namespace and name of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def path_of(collection: str, key: Key, subresource: str = "") -> str:
    """Return the URL path of an object; `collection` is "api/v1/pods" or "apis/batch/v1/jobs"."""
    prefix, _, plural = collection.rpartition("/")
    middle = f"namespaces/{key[0]}/" if key[0] else ""
    return f"{prefix}/{middle}{plural}/{key[1]}" + (f"/{subresource}" if subresource else "")


class Api:
    """A connection to the API server, as one identity."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        """Talk to the server at `url` (with its secret path) through `session`."""
        self.url = url.rstrip("/")
        self._session = session

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request and return the answer.

        Raises:
            ApiFailure: the server answered with an error Status.
            aiohttp.ClientError, TimeoutError: no answer.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        async with self._session.request(
            method,
            f"{self.url}/{path}",
            data=data,
            params=params,
            headers={"Content-Type": content_type} if data else None,
            timeout=TIMEOUT,
        ) as response:
            raw = await response.read()
            return _answer(response.status, raw)

    async def get(self, collection: str, key: Key) -> Json:
        """Return one object."""
        return await self.request("GET", path_of(collection, key))

    async def list(self, collection: str, **params: str) -> Json:
        """Return a list of objects with its resourceVersion."""
        return await self.request("GET", collection, params=params)

    async def create(self, collection: str, obj: Json) -> Json:
        """Create an object in the namespace it names."""
        return await self.request("POST", path_of(collection, (obj["metadata"].get("namespace", ""), ""))[:-1], obj)

    async def patch(self, collection: str, key: Key, body: Any, kind: str = "merge", subresource: str = "") -> Json:
        """Patch an object; `kind` is one of `PATCH_TYPES`."""
        return await self.request("PATCH", path_of(collection, key, subresource), body, content_type=PATCH_TYPES[kind])

    async def delete(self, collection: str, key: Key, *, uid: str = "", **options: Any) -> None:
        """Delete an object (only that with `uid`, if given); one that is not there is no error."""
        body: Json = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", path_of(collection, key), body)
        except ApiFailure as failure:
            if failure.code not in (404, 409):
                raise

    async def watch(self, collection: str, version: str) -> AsyncIterator[Json]:
        """Yield watch events after `version` until the server ends the watch."""
        params = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_S), "allowWatchBookmarks": "1"}
        async with self._session.get(f"{self.url}/{collection}", params=params, timeout=WATCH_TIMEOUT) as response:
            if response.status != 200:
                _answer(response.status, await response.read())
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)


def _answer(status: int, raw: bytes) -> Json:
    try:
        answer: Json = json.loads(raw) if raw else {}
    except json.JSONDecodeError:
        answer = {"message": raw[:200].decode(errors="replace")}
    if status >= 400:
        raise ApiFailure(status, answer.get("reason", ""), answer.get("message", ""))
    return answer


Handler = Callable[[str, Json], None]
"""Called with ADDED, MODIFIED or DELETED and the object, on the event loop; must not block."""


class Informer:
    """A local copy of one collection. Objects in it are the server's and must not be changed."""

    def __init__(self, api: Api, collection: str) -> None:
        """Follow `collection` ("apis/batch/v1/jobs") once `run` is awaited."""
        self.collection = collection
        self.objects: dict[Key, Json] = {}
        self.synced = asyncio.Event()
        self._api = api
        self._handlers: list[Handler] = []

    def on_event(self, handler: Handler) -> None:
        """Call `handler` at each change from now on."""
        self._handlers.append(handler)

    async def run(self, pause_s: float = 0.2) -> None:
        """Follow the collection until cancelled; after a lost or outdated watch, list again."""
        while True:
            try:
                await self._follow(await self._relist())
            except TRANSIENT:
                await asyncio.sleep(pause_s)

    async def _relist(self) -> str:
        answer = await self._api.list(self.collection)
        fresh = {key_of(obj): obj for obj in answer["items"]}
        for key in self.objects.keys() - fresh.keys():
            self._apply("DELETED", self.objects[key])
        for key, obj in fresh.items():
            known = self.objects.get(key)
            if known is None or known["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
                self._apply("MODIFIED" if known else "ADDED", obj)
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        async for event in self._api.watch(self.collection, version):
            if event["type"] == "ERROR":
                return
            if event["type"] != "BOOKMARK":
                self._apply(event["type"], event["object"])

    def _apply(self, kind: str, obj: Json) -> None:
        if kind == "DELETED":
            self.objects.pop(key_of(obj), None)
        else:
            self.objects[key_of(obj)] = obj
        for handler in self._handlers:
            handler(kind, obj)
