"""Know again what this very run made: a creation whose answer got lost, and never what another process made."""

from typing import Any

from chaos_gpu.cluster.client import Api, JsonObject
from chaos_gpu.errors import Conflict

TOKEN = "chaos-gpu/runner"  # noqa: S105 - the name of an annotation


def create(api: Api, collection: str, body: JsonObject, token: str) -> JsonObject:
    """Create an object that bears the token; one that is there already and bears it was our own first try.

    Raises: Conflict when somebody else made it, a run of the same id among them.
    """
    metadata: dict[str, Any] = body["metadata"]
    marked = {**metadata, "annotations": {**metadata.get("annotations", {}), TOKEN: token}}
    try:
        return api.create(collection, {**body, "metadata": marked})
    except Conflict:
        found = api.find(f"{collection}/{metadata['name']}")
        if found is None or not bears(found, token):
            raise
        return found


def bears(found: JsonObject, token: str) -> bool:
    """Say whether an object was made with this token."""
    return (found["metadata"].get("annotations") or {}).get(TOKEN) == token


def drop(api: Api, path: str, token: str) -> None:
    """Delete an object if it is there and ours."""
    found = api.find(path)
    if found and bears(found, token):
        api.delete(path, uid=found["metadata"]["uid"], background=True)
