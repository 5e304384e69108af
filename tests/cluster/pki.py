"""Certificates, keys and kubeconfig files of one cluster, made with openssl(1)."""

import base64
import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.cluster.errors import ClusterError
from tests.cluster.layout import CONTEXT, write_atomic

DAYS = "30"
MINIMAL = "[req]\ndistinguished_name = name\n[name]\n"
"""A configuration of its own: the system's would add extensions of a CA to every certificate."""


class Pair(NamedTuple):
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority that lives in one directory."""

    def __init__(self, folder: Path) -> None:
        """Make the authority unless it exists."""
        self._folder = folder
        self._config = folder / "openssl.cnf"
        self.pair = Pair(folder / "ca.crt", folder / "ca.key")
        if not self.pair.cert.exists():
            folder.mkdir(parents=True, mode=0o700)
            self._config.write_text(MINIMAL)
            self._request(self.pair, "/CN=cluster-ca", ["basicConstraints=critical,CA:TRUE"], [])

    def issue(self, name: str, user: str, group: str = "", names: tuple[str, ...] = ()) -> Pair:
        """Issue a certificate for a client (user and group) that may also serve under `names` (DNS or IP)."""
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        subject = f"/O={group}/CN={user}" if group else f"/CN={user}"
        extensions = ["extendedKeyUsage=clientAuth,serverAuth"]
        if names:
            extensions.append("subjectAltName=" + ",".join(map(_alternative, names)))
        self._request(pair, subject, extensions, ["-CA", str(self.pair.cert), "-CAkey", str(self.pair.key)])
        return pair

    def token_key(self) -> Path:
        """Make the key of ServiceAccount tokens; the API server reads it as "EC PRIVATE KEY" only, not as PKCS8."""
        path = self._folder / "tokens.key"
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
        return path

    def kubeconfig(self, path: Path, server: str, pair: Pair) -> Path:
        """Write a kubeconfig for a client certificate."""
        user = {"client-certificate-data": inline(pair.cert), "client-key-data": inline(pair.key)}
        write_atomic(path, kubeconfig(server, inline(self.pair.cert), user))
        return path

    def _request(self, pair: Pair, subject: str, extensions: list[str], signer: list[str]) -> None:
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(pair.key)]
        adding = [part for each in extensions for part in ("-addext", each)]
        config = ["-config", str(self._config), "-subj", subject, "-days", DAYS]
        _openssl("req", "-x509", *key, *config, *adding, *signer, "-out", str(pair.cert))


def kubeconfig(server: str, authority: str, user: dict[str, str]) -> str:
    """Make a kubeconfig with one context (JSON is YAML). `authority`: the CA's certificate, base64."""
    cluster = {"server": server, "certificate-authority-data": authority}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTEXT,
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": CONTEXT, "user": user}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
    }
    return json.dumps(document, indent=1)


def inline(file: Path) -> str:
    """Return a file as base64."""
    return base64.b64encode(file.read_bytes()).decode()


def _alternative(name: str) -> str:
    return f"IP:{name}" if name.replace(".", "").isdecimal() else f"DNS:{name}"


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"openssl {arguments[0]}: {done.stderr.strip()}")
