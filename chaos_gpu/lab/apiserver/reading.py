"""Lists and single objects: selectors, pages, tables."""

import base64
import binascii
import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiohttp import web

from chaos_gpu.lab.apiserver.calls import Bound, Query
from chaos_gpu.lab.apiserver.conversion import served, served_raw
from chaos_gpu.lab.apiserver.resources import Resource
from chaos_gpu.lab.apiserver.selectors import match_fields, match_labels, parse_fields, parse_labels
from chaos_gpu.lab.apiserver.status import Json, StatusError, bad_request, expired
from chaos_gpu.lab.apiserver.store import Name, Predicate, Store, Stored, dump
from chaos_gpu.lab.apiserver.tables import partial, table


@dataclass(frozen=True)
class Form:
    """The form in which a client wants objects."""

    kind: str  # "", Table or PartialObjectMetadata
    include: str  # of a Table's rows: None, Metadata, Object

    @classmethod
    def of(cls, request: web.Request) -> "Form":
        """Read the Accept header: the first form that is known."""
        include = request.query.get("includeObject") or "Metadata"
        for option in request.headers.get("Accept", "").split(","):
            for kind in ("Table", "PartialObjectMetadata"):
                if f"as={kind}" in option and "json" in option:
                    return cls(kind, include)
            if "application/json" in option and "as=" not in option:
                break
        return cls("", include)

    def one(self, resource: Resource, obj: Json) -> Json:
        """Return one stored object in this form."""
        if self.kind == "Table":
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            return table(resource, [obj], meta, include=self.include)
        return partial(obj) if self.kind else served(resource, obj)

    def many(self, resource: Resource, objects: list[Stored], meta: Json) -> bytes:
        """Return a list in this form, encoded."""
        if self.kind == "Table":
            return dump(table(resource, (o.data for o in objects), meta, include=self.include))
        if self.kind:
            items = [partial(o.data) for o in objects]
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            return dump({**head, "metadata": meta, "items": items})
        whole: Json = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta}
        return dump(whole)[:-1] + b',"items":[' + b",".join(served_raw(resource, o) for o in objects) + b"]}"


def predicate(bound: Bound) -> Predicate | None:
    """Return what the request's selectors and name ask of an object; None if nothing.

    Raises:
        StatusError: 400, a selector that cannot be read or is not supported.
    """
    query, resource = bound.call.query, bound.resource
    tests: list[Predicate] = []
    if query.has("labelSelector"):
        tests.append(match_labels(parse_labels(query.text("labelSelector"))))
    if query.has("fieldSelector"):
        supported = {"metadata.name": "metadata.name", **resource.fields}
        if resource.namespaced:
            supported["metadata.namespace"] = "metadata.namespace"
        tests.append(match_fields(parse_fields(query.text("fieldSelector"), supported)))
    if bound.name:
        tests.append(lambda obj: bool(obj["metadata"]["name"] == bound.name))
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def list_page(bound: Bound, store: Store, form: Form) -> bytes:
    """Return one page of a list, encoded.

    Raises:
        StatusError: 400, a parameter that cannot be read; 504, a resourceVersion from the future.
    """
    query, resource = bound.call.query, bound.resource
    matches = predicate(bound)
    limit = query.number("limit") or 0
    revision, after = _resume(query, store)
    found = store.select(resource.key, bound.namespace, matches, after)
    page = list(islice(found, limit)) if limit else list(found)
    meta: dict[str, Any] = {"resourceVersion": str(revision)}
    if limit and len(page) == limit and (remaining := sum(1 for _ in found)):
        last = page[-1].data["metadata"]
        meta["continue"] = _token(revision, (last.get("namespace") or "", last["name"]))
        if matches is None:
            meta["remainingItemCount"] = remaining
    return form.many(resource, page, meta)


def _resume(query: Query, store: Store) -> tuple[int, Name | None]:
    """Return the revision that a list speaks of, and after which object it goes on."""
    if not query.has("continue"):
        future(query, store)
        return store.revision, None
    try:
        revision, namespace, name = json.loads(base64.urlsafe_b64decode(query.text("continue")))
        after: Name | None = (str(namespace), str(name))
        number = int(revision)
    except (ValueError, TypeError, binascii.Error) as e:
        raise bad_request("continue key is not valid") from e
    if not 0 < number <= store.revision:
        raise expired("the continue key is not from this server's life; list again from the start")
    return number, after


def _token(revision: int, last: Name) -> str:
    return base64.urlsafe_b64encode(dump([revision, *last])).decode()


def future(query: Query, store: Store) -> int:
    """Return the resourceVersion asked for, 0 if none.

    Raises:
        StatusError: 400, not a number; 504, one that this server has not reached.
    """
    revision = query.number("resourceVersion") or 0
    if revision > store.revision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        message = f"Too large resource version: {revision}, current: {store.revision}"
        raise StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})
    return revision
