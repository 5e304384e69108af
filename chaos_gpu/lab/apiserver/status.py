"""Errors as the API speaks them: a Status object with code, reason and message."""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]


class StatusError(Exception):
    """A request that ends in an error; the server answers with `as_json()` and the HTTP status `code`."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details or {}

    def as_json(self) -> Json:
        """Return the Status object."""
        return status("Failure", self.code, self.reason, str(self), self.details)


def status(outcome: str, code: int, reason: str = "", message: str = "", details: Json | None = None) -> Json:
    """Build a Status; empty fields are left out as a real server does."""
    body: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": outcome}
    body |= {k: v for k, v in (("message", message), ("reason", reason), ("details", details)) if v}
    return body | {"code": code}


def success(code: int = 200, details: Json | None = None) -> Json:
    """Build the Status of a request that did what it was asked."""
    return status("Success", code, details=details)


def cause(reason: str, message: str, field: str = "") -> Json:
    """Build one entry of `details.causes`."""
    return {"reason": reason, "message": message} | ({"field": field} if field else {})


def bad_request(message: str) -> StatusError:
    """400: the request cannot be understood."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """401: no identity, or a token that is not or no longer valid."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def no_such_path() -> StatusError:
    """404: no resource or page of that name is served."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def not_found(plural: str, group: str, name: str) -> StatusError:
    """404: no object of that name."""
    return StatusError(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', _about(plural, group, name))


def already_exists(plural: str, group: str, name: str) -> StatusError:
    """409: an object of that name is there."""
    message = f'{qualified(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _about(plural, group, name))


def conflict(plural: str, group: str, name: str, why: str) -> StatusError:
    """409: the object is not what the caller thought it was."""
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _about(plural, group, name))


def forbidden(plural: str, group: str, name: str, why: str) -> StatusError:
    """403: the caller may not, or the object's surroundings do not allow it."""
    subject = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", _about(plural, group, name))


def method_not_allowed() -> StatusError:
    """405: this resource has no such verb."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def expired(message: str) -> StatusError:
    """410: that resourceVersion is no longer in the history."""
    return StatusError(410, "Expired", message)


def unsupported_media(message: str) -> StatusError:
    """415: a body in a format that is not read here."""
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(kind: str, group: str, name: str, causes: Sequence[Json]) -> StatusError:
    """422: the object is well formed, but breaks these rules."""
    told = "; ".join(f"{c['field']}: {c['message']}" if "field" in c else c["message"] for c in causes)
    subject = f"{kind}.{group}" if group else kind
    details = {"name": name, "group": group, "kind": kind, "causes": list(causes)}
    return StatusError(422, "Invalid", f'{subject} "{name}" is invalid: {told}', details)


def qualified(plural: str, group: str) -> str:
    """Return `pods` or `jobs.batch`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def _about(plural: str, group: str, name: str) -> Json:
    return {k: v for k, v in (("name", name), ("group", group), ("kind", plural)) if v}
