"""Where a platform keeps its records, and how to find them in what is read there: JSONPath (RFC 9535)."""

import json
from typing import Any, Self
from urllib.parse import urlsplit

import jsonpath
from jsonpath.exceptions import JSONPathError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from chaos_gpu.criteria.health.record import ACTION_WORDS, RESULT_WORDS, Record, read_record
from chaos_gpu.errors import UsageError

FIELDS = ("node", "gpu_uuid", "level", "result", "action", "ended_at")
OPTIONAL_FIELDS = ("started_at", "confirmed_by")
MOST_RECORDS = 50_000
"""Some thousand nodes' of a month; each takes a fraction of a millisecond, and they may be read several times."""
REMEDY = "docs/records.md shows how a source of records is declared (CHAOS_GPU_RECORDS)"


class Source(BaseModel):
    """A source of records: one list of objects of the cluster, or one HTTP address.

    Attributes:
        kubernetes: path of a list in the Kubernetes API, with its query.
        http: address of a JSON document, `http://` or `https://`.
        token_env: environment variable that holds a bearer token for `http`, "" for none.
        items: where the records are; one that is a text is read as JSON itself.
        fields: where a record's fields are, each from the record.
        words: the site's own words for results and actions → pass, warn, fail, skip, admit, hold, isolate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kubernetes: str = ""
    http: str = ""
    token_env: str = ""
    items: str = "$.items[*]"
    fields: dict[str, str] = Field(default_factory=lambda: {name: f"$.{name}" for name in (*FIELDS, *OPTIONAL_FIELDS)})
    words: dict[str, str] = Field(default_factory=dict)

    @field_validator("items", "fields")
    @classmethod
    def _paths(cls, value: Any) -> Any:
        for path in value.values() if isinstance(value, dict) else [value]:
            try:
                jsonpath.compile(path)
            except JSONPathError as failure:
                raise ValueError(f"{path!r} is no JSONPath: {failure}") from None
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.kubernetes) == bool(self.http):
            raise ValueError("exactly one of kubernetes and http must be given")
        if self.kubernetes and not self.kubernetes.startswith(("/api/", "/apis/")):
            raise ValueError("kubernetes must be a path: /api/… or /apis/…")
        if self.http and not _is_address(self.http):
            raise ValueError("http must be an address: http://… or https://…")
        if self.token_env and not _is_private(self.http):
            raise ValueError("a token is sent to https:// only, or to this machine itself")
        if unknown := set(self.fields) - {*FIELDS, *OPTIONAL_FIELDS}:
            raise ValueError(f"fields: {', '.join(sorted(unknown))} are no fields of a record")
        if missing := [name for name in FIELDS if name not in self.fields]:
            raise ValueError(f"fields: {', '.join(missing)} must be given")
        known = {*RESULT_WORDS, *ACTION_WORDS}
        if strange := [word for word in self.words.values() if word not in known]:
            raise ValueError(f"words: {', '.join(strange)} is no result and no action")
        return self

    @property
    def name(self) -> str:
        """Say for people where it is, without a user or a query: they may hold a secret."""
        address = urlsplit(self.http)
        return self.kubernetes or f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"


def read_source(text: str) -> Source | None:
    """Read how a site declares its records; None for nothing.

    Raises:
        UsageError: it is no JSON, or not a source.
    """
    if not text.strip():
        return None
    try:
        return Source.model_validate(json.loads(text))
    except ValidationError as failure:
        found = failure.errors(include_url=False)
        told = "; ".join(f"{'.'.join(map(str, each['loc']))} {each['msg']}".strip() for each in found)
        raise UsageError(f"the source of records: {told}", remedy=REMEDY) from failure
    except (ValueError, RecursionError):
        raise UsageError("the source of records is no JSON", remedy=REMEDY) from None


def records_in(document: Any, source: Source) -> list[Record]:
    """Return every record that a document holds, as well as each can be read.

    Raises:
        UsageError: it is nested too deeply, or holds too many records, to look through.
    """
    if not isinstance(document, dict | list):  # of a text the library would read what is written in it
        return []
    fields = {name: jsonpath.compile(path) for name, path in source.fields.items()}
    try:
        items = jsonpath.compile(source.items).findall(document)
        if len(items) > MOST_RECORDS:
            told = f"{source.name} holds {len(items):,} records, {MOST_RECORDS:,} are looked through at the most"
            raise UsageError(told, remedy="narrow it by a query, to the last weeks or to the newest of each GPU")
        return [read_record(_fields(_item(item), fields), source.words) for item in items]
    except (JSONPathError, RecursionError) as failure:
        raise UsageError(f"the records of {source.name} cannot be looked through: {failure}", remedy=REMEDY) from None


def _is_private(address: str) -> bool:
    """Say whether nobody on the way can read what is sent there."""
    parts = urlsplit(address)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def _is_address(text: str) -> bool:
    try:
        address = urlsplit(text)
    except ValueError:
        return False
    return address.scheme in ("http", "https") and bool(address.hostname)


def _item(item: Any) -> Any:
    if not isinstance(item, str):
        return item
    try:
        return json.loads(item)
    except (ValueError, RecursionError):
        return {}


def _fields(item: Any, paths: dict[str, Any]) -> dict[str, Any]:
    """Return what the paths lead to; a field of which there are several is none."""
    if not isinstance(item, dict | list):
        return {}
    found = {name: path.findall(item) for name, path in paths.items()}
    return {name: values[0] for name, values in found.items() if len(values) == 1}
