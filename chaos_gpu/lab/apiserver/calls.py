"""What a request asks for, read from its method, path and query as the real server reads them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from chaos_gpu.lab.apiserver.resources import Resource
from chaos_gpu.lab.apiserver.status import bad_request, invalid, no_such_path

# Go's strconv.ParseBool; Python clients up to 36 send `True`.
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})


class Target(NamedTuple):
    """The resource path of a request; `plural` "" means the group version itself (discovery)."""

    group: str
    version: str
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class User(NamedTuple):
    """Who asks."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether every right is granted without looking."""
        return "system:masters" in self.groups


class Query:
    """The query parameters, with the types that the API gives them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a parameter, "" if absent."""
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a boolean parameter, false if absent.

        Raises:
            StatusError: 400, not a boolean.
        """
        value = self.text(name)
        if value in _TRUE:
            return True
        if value in _FALSE:
            return False
        raise bad_request(f"the parameter {name} is not a boolean: {value!r}")

    def number(self, name: str) -> int | None:
        """Return a whole, not negative number; None if absent.

        Raises:
            StatusError: 400, not such a number.
        """
        value = self.text(name)
        if not value:
            return None
        if not re.fullmatch(r"\d{1,18}", value, re.ASCII):
            raise bad_request(f"the parameter {name} is not a whole number from 0: {value!r}")
        return int(value)

    def has(self, name: str) -> bool:
        """Say whether the parameter is there and not empty."""
        return bool(self.text(name))


@dataclass(frozen=True)
class Call:
    """One request for a resource."""

    verb: str  # get, list, watch, create, update, patch, delete, deletecollection
    target: Target
    query: Query
    user: User = field(default=User("system:anonymous"))
    agent: str = ""  # the User-Agent header

    @property
    def manager(self) -> str:
        """The field manager: as given, else the program's name."""
        return (self.query.text("fieldManager") or self.agent.partition("/")[0] or "unknown")[:128]

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored.

        Raises:
            StatusError: 422, a value that is not known.
        """
        value = self.query.text("dryRun")
        if value not in ("", "All"):
            causes = [
                {"reason": "FieldValueNotSupported", "message": f"Unsupported value: {value!r}", "field": "dryRun"}
            ]
            raise invalid("Options", "meta.k8s.io", "", causes)
        return value == "All"


@dataclass(frozen=True)
class Bound:
    """A call whose resource is served here."""

    call: Call
    resource: Resource

    @property
    def namespace(self) -> str:
        """Namespace of the object or collection; "" for cluster-wide."""
        return self.call.target.namespace

    @property
    def name(self) -> str:
        """Name of the object; "" for a collection."""
        return self.call.target.name


def parse_path(raw_path: str) -> Target | None:
    """Read a resource path (still percent-encoded, from `/api` or `/apis` on); None for any other page.

    Raises:
        StatusError: 404, a path that cannot be a resource.
    """
    parts = [unquote(part) for part in raw_path.split("/") if part]
    if any("/" in part or part in (".", "..") for part in parts):
        raise no_such_path()
    if parts[:1] == ["api"] and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise no_such_path()
    plural, name, subresource = (*rest, "", "", "")[:3]
    return Target(group, version, plural, namespace, name, subresource)


_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def verb_of(method: str, target: Target, query: Query) -> str:
    """Return the API verb of a request; "" for a method that the API does not have."""
    verb = _VERBS.get(method, "")
    if verb == "get" and not target.subresource and query.flag("watch"):
        return "watch"
    if not target.name:
        return {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    return verb


def named_by_selector(query: Query) -> str:
    """Return the name that a collection request is limited to by its field selector, "" if it is not."""
    match = re.fullmatch(r"metadata\.name==?([^,=!\\]+)", query.text("fieldSelector"))
    return match[1] if match else ""
