"""What the control plane's process 1 is told to run: etcd, API server, controller manager, scheduler, nodes, Kueue."""

import sys
from pathlib import Path
from typing import Any

from tests.cluster import kueue, node
from tests.cluster.builds import Programs
from tests.cluster.layout import (
    API_PORT,
    API_SERVICE,
    ENTRANCE,
    GATEWAY,
    INSIDE,
    NODES,
    SERVICES,
    Layout,
    node_address,
    pod_range,
)
from tests.cluster.pki import Authority

Service = dict[str, Any]
ENTRANCE_PROGRAM = Path(__file__).with_name("entrance.py")
ETCD = "http://127.0.0.1:2379"
NODE_GRACE_S = 12
"""A dead node is NotReady after about so long; a cluster's default is 50 s."""
EVICT_AFTER_S = 15


def plan(layout: Layout, programs: Programs) -> dict[str, Any]:
    """Make keys and configuration of everything, and the plan; see `control_init`."""
    authority = Authority(layout.pki)
    admin = authority.issue("admin", "cluster-admin", "system:masters")
    authority.kubeconfig(layout.inside_kubeconfig, INSIDE, admin)
    services = [
        _etcd(layout),
        _api_server(authority),
        *_controllers(layout, authority),
        *(node.service(layout, programs, authority, index) for index in range(len(NODES))),
        kueue.service(layout),
        _entrance(),
    ]
    return {
        "run": str(layout.run),
        "gateway": GATEWAY,
        "api_service": API_SERVICE,
        "routes": {pod_range(index): node_address(index) for index in range(len(NODES))},
        "services": [{**service, "env": {**programs.environment, **service.get("env", {})}} for service in services],
    }


def _entrance() -> Service:
    argv = [sys.executable, "-B", str(ENTRANCE_PROGRAM), str(ENTRANCE), GATEWAY, str(API_PORT)]
    return {"name": "entrance", "argv": argv, "fds": [ENTRANCE]}


def _etcd(layout: Layout) -> Service:
    peer = "http://127.0.0.1:2380"
    argv = [
        "etcd",
        "--name=cluster",
        f"--data-dir={layout.root}/etcd",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=cluster={peer}",
    ]
    return {"name": "etcd", "argv": argv}


def _api_server(authority: Authority) -> Service:
    names = ("127.0.0.1", GATEWAY, API_SERVICE, "localhost", "kubernetes.default.svc")
    serving = authority.issue("apiserver", "kube-apiserver", names=names)
    front = authority.issue("front-proxy", "front-proxy-client")
    to_kubelet = authority.issue("apiserver-kubelet", "apiserver-kubelet-client", "system:masters")
    token_key, ca = authority.token_key(), authority.pair.cert
    argv = [
        "kube-apiserver",
        f"--etcd-servers={ETCD}",
        "--bind-address=0.0.0.0",
        f"--secure-port={API_PORT}",
        f"--advertise-address={GATEWAY}",
        f"--tls-cert-file={serving.cert}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={ca}",
        f"--kubelet-client-certificate={to_kubelet.cert}",
        f"--kubelet-client-key={to_kubelet.key}",
        f"--kubelet-certificate-authority={ca}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={token_key}",
        f"--service-account-signing-key-file={token_key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICES}",
        "--endpoint-reconciler-type=none",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        f"--default-not-ready-toleration-seconds={EVICT_AFTER_S}",
        f"--default-unreachable-toleration-seconds={EVICT_AFTER_S}",
        f"--requestheader-client-ca-file={ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={front.cert}",
        f"--proxy-client-key-file={front.key}",
    ]
    return {"name": "kube-apiserver", "argv": argv, "needs": f"{ETCD}/health"}


def _controllers(layout: Layout, authority: Authority) -> list[Service]:
    manager = [
        f"--root-ca-file={authority.pair.cert}",
        f"--service-account-private-key-file={layout.pki}/tokens.key",
        "--use-service-account-credentials=true",
        f"--node-monitor-grace-period={NODE_GRACE_S}s",
        "--node-monitor-period=2s",
    ]
    return [
        _controller(layout.pki, authority, "kube-controller-manager", 10257, manager),
        _controller(layout.pki, authority, "kube-scheduler", 10259, []),
    ]


def _controller(folder: Path, authority: Authority, name: str, port: int, flags: list[str]) -> Service:
    config = authority.kubeconfig(folder / f"{name}.kubeconfig", INSIDE, authority.issue(name, f"system:{name}"))
    argv = [
        name,
        f"--kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--profiling=false",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
        *flags,
    ]
    return {"name": name, "argv": argv, "needs": f"https://127.0.0.1:{API_PORT}/readyz"}
