"""The API server: HTTP in front of the store. Loopback only, behind secret URL paths."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

from aiohttp import web

from chaos_gpu.lab.apiserver.audit import AuditLog
from chaos_gpu.lab.apiserver.auth import Authenticator
from chaos_gpu.lab.apiserver.bodies import MAX_BODY_BYTES, read_json
from chaos_gpu.lab.apiserver.bootstrap import seed
from chaos_gpu.lab.apiserver.calls import Bound, Call, Query, Target, User, parse_path, verb_of
from chaos_gpu.lab.apiserver.clock import stamp
from chaos_gpu.lab.apiserver.conversion import served
from chaos_gpu.lab.apiserver.deletion import Deleter, delete_options
from chaos_gpu.lab.apiserver.discovery import OPENAPI_V2, OPENAPI_V2_TYPE, page
from chaos_gpu.lab.apiserver.eviction import evict
from chaos_gpu.lab.apiserver.metrics import GROUP as METRICS
from chaos_gpu.lab.apiserver.metrics import read_metrics
from chaos_gpu.lab.apiserver.objects import Objects, scale_of
from chaos_gpu.lab.apiserver.podexec import run_exec
from chaos_gpu.lab.apiserver.podlog import stream_log
from chaos_gpu.lab.apiserver.rbac import Ask, ask_of, authorize
from chaos_gpu.lab.apiserver.reading import Form, list_page, predicate
from chaos_gpu.lab.apiserver.resources import PODS, Registry
from chaos_gpu.lab.apiserver.reviews import review
from chaos_gpu.lab.apiserver.shapes import BINDING, check, check_object
from chaos_gpu.lab.apiserver.status import Json, StatusError, bad_request, method_not_allowed, no_such_path, success
from chaos_gpu.lab.apiserver.store import Store, dump
from chaos_gpu.lab.apiserver.streams import ExecSession, NoStreams, Streams
from chaos_gpu.lab.apiserver.watch import watch

__all__ = ["ApiServer", "ExecSession", "Streams", "write_kubeconfig"]

_log = logging.getLogger(__name__)
_HEALTH = ({"healthz"}, {"livez"}, {"readyz"})
_STOP_S = 0.5  # that open requests have to end when the server stops
_Answer = tuple[int, Json]


class ApiServer:
    """A Kubernetes API on loopback.

    Args:
        admin_secret: first segment of the URL that makes a client the administrator.
        pod_secret: first segment of the URL under which a ServiceAccount's token is needed.
        audit_path: where to append the audit log; None for none.
        streams: the kubelet's logs and exec; None if no kubelet runs.
    """

    def __init__(
        self, admin_secret: str, pod_secret: str, audit_path: Path | None = None, streams: Streams | None = None
    ) -> None:
        self._admin_secret = admin_secret
        self._pod_secret = pod_secret
        self._audit = AuditLog(audit_path)
        self._streams: Streams = streams or NoStreams()
        self._store = Store()
        self._registry = Registry()
        self._deleter = Deleter(self._store, self._registry)
        self._objects = Objects(self._store, self._registry, self._deleter)
        self._auth = Authenticator(self._store, admin_secret, pod_secret)
        self._runner: web.AppRunner | None = None
        self._open: set[asyncio.Task[Any]] = set()
        self._base = ""
        seed(self._objects, self._registry)

    @property
    def admin_url(self) -> str:
        """Base URL of the administrator; known once the server has started."""
        return f"{self._base}/{self._admin_secret}"

    @property
    def pod_url(self) -> str:
        """Base URL for pods, which show a ServiceAccount's token; known once the server has started."""
        return f"{self._base}/{self._pod_secret}"

    def use_streams(self, streams: Streams) -> None:
        """Take logs and exec from this kubelet from now on."""
        self._streams = streams

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen, and return the administrator's URL; port 0 takes a free one.

        Raises:
            OSError: the address cannot be had.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_STOP_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self._base = f"http://{host}:{self._runner.addresses[0][1]}"
        return self.admin_url

    async def stop(self) -> None:
        """End every open request and stop listening; idempotent."""
        self._store.close()
        for task in self._open:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._audit.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw_path = request.rel_url.raw_path.lstrip("/")
        secret, _, rest = raw_path.partition("/")
        if not self._auth.knows(secret):
            return web.Response(status=404)
        task = asyncio.current_task()
        if task is not None:
            self._open.add(task)
            task.add_done_callback(self._open.discard)
        try:
            return await self._answer(request, secret, rest)
        except StatusError as e:
            return _json(e.as_json(), e.code)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            _log.exception("%s %s", request.method, rest)
            error = StatusError(500, "InternalError", "the lab's API server failed on this request; its log says where")
            return _json(error.as_json(), error.code)

    async def _answer(self, request: web.Request, secret: str, path: str) -> web.StreamResponse:
        user = self._auth.user(secret, request.headers.get("Authorization", ""))
        target = parse_path(path)
        if target is None or not target.plural:
            return self._page(request.method, path, user)
        call = self._call(request, target, user)
        moment = stamp()
        try:
            response = await self._serve(request, call)
        except StatusError as e:
            self._audit.write(call, e.code, "", moment)
            raise
        return response

    def _call(self, request: web.Request, target: Target, user: User) -> Call:
        query = Query(request.query)
        verb = verb_of(request.method, target, query)
        if not verb:
            raise method_not_allowed()
        return Call(verb, target, query, user, request.headers.get("User-Agent", ""))

    def _page(self, method: str, path: str, user: User) -> web.Response:
        parts = [part for part in path.split("/") if part]
        authorize(self._store, user, Ask("get", path="/" + "/".join(parts)))
        if method not in ("GET", "HEAD"):
            raise method_not_allowed()
        if set(parts[:1]) in _HEALTH:
            return web.Response(text="ok")
        if parts == ["openapi", "v2"]:
            return web.Response(body=OPENAPI_V2, content_type=OPENAPI_V2_TYPE)
        return _json(page(parts, self._registry))

    async def _serve(self, request: web.Request, call: Call) -> web.StreamResponse:
        authorize(self._store, call.user, ask_of(call))
        target = call.target
        resource = self._registry.find(target.group, target.version, target.plural)
        if resource is None or (target.namespace and not resource.namespaced):
            raise no_such_path()
        if target.subresource and target.subresource not in resource.subresources:
            raise no_such_path()
        if not target.subresource and call.verb not in resource.verbs:
            raise method_not_allowed()
        if call.verb in ("update", "patch") and not target.name:
            raise method_not_allowed()
        bound = Bound(call, resource)
        if target.name and resource.namespaced and not target.namespace:
            raise no_such_path()
        if call.verb in ("get", "list", "watch"):
            return await self._read(request, bound)
        return await self._write(request, bound)

    async def _read(self, request: web.Request, bound: Bound) -> web.StreamResponse:
        call, subresource = bound.call, bound.call.target.subresource
        if bound.resource.group == METRICS:
            return _json(read_metrics(bound, self._store))
        form = Form.of(request)
        if call.verb == "watch":
            self._audit.write(call, 200, str(self._store.revision), stamp())
            return await watch(request, bound, self._store, form)
        if call.verb == "list":
            body = list_page(bound, self._store, form)
            self._audit.write(call, 200, str(self._store.revision), stamp())
            return web.Response(body=body, content_type="application/json")
        stored = self._objects.need(bound.resource, bound.namespace, bound.name)
        if subresource == "log":
            return await stream_log(request, bound, stored.data, self._streams)
        if subresource == "exec":
            return await self._exec(request, bound, stored.data)
        if subresource == "scale":
            return _json(scale_of(bound.resource, stored.data))
        if subresource not in ("", "status"):
            raise method_not_allowed()
        return _json(form.one(bound.resource, stored.data))

    async def _exec(self, request: web.Request, bound: Bound, pod: Json) -> web.StreamResponse:
        self._audit.write(bound.call, 101, "", stamp())
        return await run_exec(request, bound, pod, self._streams)

    async def _write(self, request: web.Request, bound: Bound) -> web.StreamResponse:
        if bound.resource.key == PODS and bound.call.target.subresource == "exec":
            return await self._exec(
                request, bound, self._objects.need(bound.resource, bound.namespace, bound.name).data
            )
        body = await read_json(request)
        before = self._store.revision
        code, answer = self._changed(bound, request.content_type, body)
        moment = self._store.changed if self._store.revision != before else stamp()
        revision = (answer.get("metadata") or {}).get("resourceVersion", "")
        self._audit.write(bound.call, code, revision, moment)
        if "uid" in (answer.get("metadata") or {}) and answer.get("kind") != "Scale":
            answer = Form.of(request).one(bound.resource, answer)
        return _json(answer, code)

    def _changed(self, bound: Bound, media_type: str, body: Any) -> _Answer:
        """Carry out a write; everything between reading the store and changing it happens here, at once."""
        verb, subresource = bound.call.verb, bound.call.target.subresource
        if verb == "create":
            return 201, self._created(bound, subresource, body)
        if verb == "delete" and not subresource:
            options = delete_options(bound, body or {})
            return 200, self._deleter.delete(bound.resource, bound.namespace, bound.name, options)
        if verb == "deletecollection":
            return 200, self._delete_collection(bound, body or {})
        if subresource not in ("", "status", "scale") or verb not in ("update", "patch"):
            raise method_not_allowed()
        if verb == "update":
            return 200, self._objects.replace(bound, body)
        existed = self._store.get(bound.resource.key, bound.namespace, bound.name) is not None
        if not existed:
            authorize(self._store, bound.call.user, ask_of(bound.call)._replace(verb="create"))
        return 200 if existed else 201, self._objects.patch(bound, media_type, body)

    def _created(self, bound: Bound, subresource: str, body: Any) -> Json:
        if bound.resource.group in ("authorization.k8s.io", "authentication.k8s.io"):
            return review(bound.resource, check_object(bound.resource, body or {}), bound.call.user, self._store)
        if subresource == "eviction":
            return evict(bound, body or {}, self._store, self._deleter)
        if subresource == "binding":
            self._objects.bind(bound, check(body, BINDING)["target"]["name"])
            return success(201)
        if subresource == "token":
            return self._auth.grant(bound.resource, bound.namespace, bound.name, body or {})
        if subresource or bound.name:
            raise method_not_allowed()
        if body is None:
            raise bad_request("the body is empty")
        made = self._objects.create(bound, body)
        if made["metadata"].get("ownerReferences"):  # looked at when this is answered, as a garbage collector would
            asyncio.get_running_loop().call_soon(self._deleter.collect, bound.resource, made["metadata"]["uid"])
        return made

    def _delete_collection(self, bound: Bound, body: Json) -> Json:
        options = delete_options(bound, body)
        resource = bound.resource
        if resource.namespaced and not bound.namespace:
            raise method_not_allowed()
        found = list(self._store.select(resource.key, bound.namespace, predicate(bound)))
        for stored in found:
            name = stored.data["metadata"]["name"]
            if self._store.get(resource.key, bound.namespace, name) is not None:
                self._deleter.delete(resource, bound.namespace, name, options)
        items = [served(resource, stored.data) for stored in found]
        meta = {"resourceVersion": str(self._store.revision)}
        return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": meta, "items": items}


def _json(body: Json, code: int = 200) -> web.Response:
    return web.Response(body=dump(body), content_type="application/json", status=code)


def write_kubeconfig(path: Path, url: str, token: str = "", namespace: str = "default") -> None:
    """Write a kubeconfig, readable by its owner only, with the one context `lab`.

    Args:
        path: where to write it; an older one is replaced.
        url: base URL with its secret.
        token: bearer token to show, "" for none.
        namespace: the context's default namespace.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": url}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": namespace}}],
        "users": [{"name": "lab", "user": {"token": token} if token else {}}],
    }
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    draft.replace(path)
