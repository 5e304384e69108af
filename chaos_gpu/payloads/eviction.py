"""Have the API server end one pod, from inside a pod that may.

Environment: KUBERNETES_API_URL or KUBERNETES_SERVICE_HOST and _PORT; SERVICEACCOUNT_DIR where it is not the usual one.
"""

import json
import os
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Dict, Tuple

ACCOUNT_DIR = Path(os.environ.get("SERVICEACCOUNT_DIR", "/var/run/secrets/kubernetes.io/serviceaccount"))
ANSWER_S = 10.0
BY_API = ("delete", "force", "evict")
POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def remove_pod(namespace: str, pod: str, means: str) -> str:
    """Delete (`delete`), delete by force (`force`) or evict (`evict`) a pod; return what the server said.

    Raises: OSError when it refused or did not answer; ValueError for what is no name: without one, all pods are meant.
    """
    if not POD_NAME.fullmatch(pod):
        raise ValueError(f"{pod[:100]!r} is no name of a pod")
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    if means == "evict":
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
        status, found = _request("POST", path + "/eviction", body)
    else:
        options: Dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        status, found = _request("DELETE", path, {**options, "gracePeriodSeconds": 0} if means == "force" else options)
    if status >= 300:
        raise OSError("{} pod {}: HTTP {} {}".format(means, pod, status, str(found.get("message", ""))[:200]))
    return f"{means} of pod {pod}: HTTP {status}"


def _request(method: str, path: str, body: Dict[str, Any]) -> Tuple[int, Dict[str, Any]]:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    base = os.environ.get("KUBERNETES_API_URL") or f"https://{host}:{port}"
    headers = {
        "Authorization": "Bearer " + (ACCOUNT_DIR / "token").read_text().strip(),
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(base.rstrip("/") + path, json.dumps(body).encode(), headers, method=method)  # noqa: S310 - the API server's
    authority = ACCOUNT_DIR / "ca.crt"
    tls = ssl.create_default_context(cafile=str(authority)) if authority.exists() else None
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=tls) as answer:  # noqa: S310
            return answer.status, _object(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, _object(error.read())


def _object(data: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
