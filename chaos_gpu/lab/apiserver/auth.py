"""Who asks: the administrator by a secret in the URL, ServiceAccounts by tokens that this server gave out."""

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from chaos_gpu.lab.apiserver.calls import User
from chaos_gpu.lab.apiserver.clock import rfc3339, utc_now
from chaos_gpu.lab.apiserver.resources import PODS, SERVICE_ACCOUNTS, Resource
from chaos_gpu.lab.apiserver.shapes import TOKEN_REQUEST, check
from chaos_gpu.lab.apiserver.status import Json, cause, invalid, not_found, unauthorized
from chaos_gpu.lab.apiserver.store import Store

ADMIN = User("system:admin", ("system:masters", "system:authenticated"))
_MIN_TOKEN_S = 600
_DEFAULT_TOKEN_S = 3600
_MAX_TOKEN_S = 1 << 32


@dataclass(frozen=True)
class _Grant:
    namespace: str
    account: str
    account_uid: str
    pod: tuple[str, str]  # name and UID of the pod that the token is bound to, or ("", "")
    expires: datetime


class Authenticator:
    """Knows the two secrets and the tokens given out."""

    def __init__(self, store: Store, admin_secret: str, pod_secret: str) -> None:
        self._store = store
        self._admin_secret = admin_secret.encode()
        self._pod_secret = pod_secret.encode()
        self._grants: dict[str, _Grant] = {}

    def knows(self, secret: str) -> bool:
        """Say whether this first segment of a URL opens anything."""
        return self._is(secret, self._admin_secret) or self._is(secret, self._pod_secret)

    def user(self, secret: str, authorization: str) -> User:
        """Return who asks.

        Args:
            secret: first segment of the URL's path; one that `knows` accepts.
            authorization: the request's header, "" if there is none.

        Raises:
            StatusError: 401, a token that does not count, or none where one is needed.
        """
        if not authorization and self._is(secret, self._admin_secret):
            return ADMIN
        scheme, _, token = authorization.partition(" ")
        grant = self._grants.get(token.strip()) if scheme.lower() == "bearer" else None
        if grant is None or not self._counts(grant):
            raise unauthorized()
        return service_account(grant.namespace, grant.account, grant.account_uid)

    def grant(self, resource: Resource, namespace: str, name: str, body: Json) -> Json:
        """Answer a TokenRequest for a ServiceAccount.

        Raises:
            StatusError: 404, no such account, or no such pod to bind to; 422, a lifetime out of range.
        """
        spec = check(body, TOKEN_REQUEST).get("spec") or {}
        account = self._store.get(SERVICE_ACCOUNTS, namespace, name)
        if account is None:
            raise not_found(resource.plural, resource.group, name)
        seconds = spec.get("expirationSeconds") or _DEFAULT_TOKEN_S
        if not _MIN_TOKEN_S <= seconds <= _MAX_TOKEN_S:
            message = f"must be from {_MIN_TOKEN_S} to {_MAX_TOKEN_S}"
            raise invalid("TokenRequest", "authentication.k8s.io", name, [_range(message)])
        pod = self._pod(namespace, spec.get("boundObjectRef") or {})
        token = secrets.token_urlsafe(32)
        expires = utc_now() + timedelta(seconds=seconds)
        self._grants[token] = _Grant(namespace, name, account.data["metadata"]["uid"], pod, expires)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": rfc3339()},
            "spec": {"audiences": [], **spec, "expirationSeconds": seconds},
            "status": {"token": token, "expirationTimestamp": rfc3339(expires)},
        }

    def _pod(self, namespace: str, reference: Json) -> tuple[str, str]:
        if reference.get("kind") != "Pod":
            return ("", "")
        name = reference.get("name", "")
        pod = self._store.get(PODS, namespace, name)
        if pod is None or reference.get("uid") not in (None, "", pod.data["metadata"]["uid"]):
            raise not_found("pods", "", name)
        return (name, pod.data["metadata"]["uid"])

    def _counts(self, grant: _Grant) -> bool:
        account = self._store.get(SERVICE_ACCOUNTS, grant.namespace, grant.account)
        if account is None or account.data["metadata"]["uid"] != grant.account_uid or utc_now() >= grant.expires:
            return False
        if not grant.pod[0]:
            return True
        pod = self._store.get(PODS, grant.namespace, grant.pod[0])
        return pod is not None and pod.data["metadata"]["uid"] == grant.pod[1]

    @staticmethod
    def _is(given: str, secret: bytes) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret)


def _range(message: str) -> Json:
    return cause("FieldValueInvalid", message, "spec.expirationSeconds")


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user that a ServiceAccount is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)
