"""Kueue beside the cluster: its own API, webhooks and manager, the manager as a process of the control plane.

The manager reads certificates at fixed paths (/visibility, /etc/kueue), so it gets a small directory as its root. The
API server calls its webhooks on loopback.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.builds import Programs
from tests.cluster.kubectl import Kubectl, until
from tests.cluster.layout import Layout, write_atomic
from tests.cluster.pki import Authority, inline
from tests.cluster.queues import API, Queues, objects

NAMESPACE = "kueue-system"
HEALTH, METRICS, WEBHOOK, VISIBILITY = 8081, 8080, 9443, 8082
_SERVED_GROUPS = {"kueue.x-k8s.io", "batch", ""}
"""Webhooks for API groups that this cluster does not serve would only be dead weight."""
WEBHOOKS = "manifests.yaml"


def service(layout: Layout) -> dict[str, Any]:
    """Return the manager as a service; it starts once `begin` has filled its root."""
    argv = ["chroot", str(layout.kueue), "/manager", "--config=/kueue.yaml", "--kubeconfig=/kubeconfig"]
    return {
        "name": "kueue",
        "argv": [*argv, "--zap-log-level=2"],
        "env": {"NAMESPACE": NAMESPACE},
        "needs": str(_configured(layout)),
    }


def begin(layout: Layout, programs: Programs, kubectl: Kubectl) -> None:
    """Install Kueue's API and let its manager start; begun before and not finished, it goes on."""
    definitions = [path.read_text() for path in sorted(programs.kueue_manifests.glob("kueue*.yaml"))]
    kubectl.apply_text("\n---\n".join(definitions))  # some 1.6 MB, which Python would read for 5 s
    kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
    until(lambda: "workloads" in kubectl.try_raw(f"/apis/{API}"), 30, "Kueue's API is not served")
    if not _configured(layout).exists():
        _fill_root(layout, programs)
    kubectl.apply(_webhooks(layout, programs.kueue_manifests / WEBHOOKS))


def finish(kubectl: Kubectl) -> None:
    """Wait for the manager and make the queues. Raises ClusterError when its webhooks do not answer."""
    until(lambda: kubectl.accepts(objects(Queues())[0]), 60, "Kueue's webhooks do not answer")
    kubectl.apply(objects(Queues()))


def _configured(layout: Layout) -> Path:
    """The last file of the manager's root to appear."""
    return layout.kueue / "kueue.yaml"


def _fill_root(layout: Layout, programs: Programs) -> None:
    shutil.rmtree(layout.kueue, ignore_errors=True)
    authority = Authority(layout.pki)
    pair = authority.issue("kueue", "kueue", names=("127.0.0.1", "localhost"))
    for folder in ("visibility", "etc/kueue/metrics/certs", "webhook"):
        (layout.kueue / folder).mkdir(parents=True)
        for source, name in ((pair.cert, "tls.crt"), (pair.key, "tls.key"), (authority.pair.cert, "ca.crt")):
            shutil.copy(source, layout.kueue / folder / name)
    (layout.kueue / "tmp").mkdir()
    shutil.copy(layout.inside_kubeconfig, layout.kueue / "kubeconfig")
    try:
        os.link(programs.bin / "kueue", layout.kueue / "manager")
    except OSError:  # another file system
        shutil.copy2(programs.bin / "kueue", layout.kueue / "manager")
    write_atomic(_configured(layout), json.dumps(_configuration()))


def _configuration() -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{HEALTH}"},
        "metrics": {"bindAddress": f"127.0.0.1:{METRICS}", "enableClusterQueueResources": True},
        "webhook": {"host": "127.0.0.1", "port": WEBHOOK, "certDir": "/webhook"},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": VISIBILITY},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }


def _webhooks(layout: Layout, manifests: Path) -> list[dict[str, Any]]:
    """Read Kueue's webhook configurations, pointed at loopback and cut to what is served here."""
    documents = list(yaml.safe_load_all(manifests.read_text()))
    for document in documents:
        document["metadata"]["name"] = f"kueue-{document['metadata']['name']}"
        document["webhooks"] = [_pointed(layout, hook) for hook in document["webhooks"] if _is_served(hook)]
    return documents


def _is_served(hook: dict[str, Any]) -> bool:
    return {group for rule in hook["rules"] for group in rule["apiGroups"]} <= _SERVED_GROUPS


def _pointed(layout: Layout, hook: dict[str, Any]) -> dict[str, Any]:
    path = hook["clientConfig"]["service"]["path"]
    authority = inline(Authority(layout.pki).pair.cert)
    config = {"url": f"https://127.0.0.1:{WEBHOOK}{path}", "caBundle": authority}
    pointed = {**hook, "clientConfig": config}
    if "-pod" in path:
        own = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}
        pointed["namespaceSelector"] = {"matchExpressions": [own]}
    return pointed
