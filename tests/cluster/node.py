"""What a node is told: addresses, containerd and kubelet, and its GPUs: devices, label, files of driver and DCGM."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from chaos_gpu.lab.dcgm.bundle import STATE
from chaos_gpu.lab.dcgm.nodes import inventory
from chaos_gpu.lab.kubelet.devices import GPU_RESOURCE, GPUS_PER_NODE, PRODUCT, gpus_of, write_driver_files
from tests.cluster.builds import Programs
from tests.cluster.images import PAUSE
from tests.cluster.layout import (
    API_PORT,
    GATEWAY,
    INSIDE,
    NODES,
    Layout,
    node_address,
    pod_range,
    write_atomic,
)
from tests.cluster.pki import Authority

INIT = Path(__file__).with_name("node_init.py")
LEASE_S = 8
SOCKET = "/run/containerd/containerd.sock"
_LABELS = {"present": "true", "count": str(GPUS_PER_NODE), "product": PRODUCT}
"""What GPU feature discovery would say below nvidia.com/gpu."""


def service(layout: Layout, programs: Programs, authority: Authority, index: int) -> dict[str, Any]:
    """Make a node's files and return it as a service of the control plane's supervisor."""
    name = NODES[index]
    folder = layout.node(name)
    folder.mkdir(parents=True)
    write_driver_files(folder / "driver/nvidia", gpus_of(index))
    set_devices(layout, name, {GPU_RESOURCE: {"count": GPUS_PER_NODE}})
    plan = folder / "plan.json"
    write_atomic(plan, json.dumps(_plan(layout, programs, authority, index)))
    argv = ["unshare", "--net", "--mount", "--uts", "--", sys.executable, "-B", str(INIT), "link", str(plan)]
    return {"name": name, "argv": argv, "needs": f"https://127.0.0.1:{API_PORT}/readyz"}


def set_devices(layout: Layout, name: str, resources: dict[str, dict[str, Any]]) -> None:
    """Tell the node's device plugin what to advertise; it follows at once."""
    write_atomic(layout.node(name) / "devices.json", json.dumps(resources))


def link_of(index: int) -> str:
    """Name the bridge's end of a node's link."""
    return f"node{index}"


def _plan(layout: Layout, programs: Programs, authority: Authority, index: int) -> dict[str, Any]:
    name, address = NODES[index], node_address(index)
    pair = authority.issue(name, f"system:node:{name}", "system:nodes", (address, name))
    kubeconfig = authority.kubeconfig(layout.pki / f"{name}.kubeconfig", INSIDE, pair)
    cgroup = f"/chaos-gpu-{layout.id}/{name}"
    kubelet = _kubelet_config(str(authority.pair.cert), str(pair.cert), str(pair.key), cgroup)
    others = [other for other in range(len(NODES)) if other != index]
    return {
        "name": name,
        "folder": str(layout.node(name)),
        "run": str(layout.node(name) / "run"),
        "driver": str(layout.node(name) / "driver"),
        "gpus": GPUS_PER_NODE,
        "cgroup": cgroup,
        "unified": index % 2 == 0,
        "shared": [str(layout.root), str(programs.folder)],
        "link": link_of(index),
        "address": address,
        "gateway": GATEWAY,
        "routes": {pod_range(other): node_address(other) for other in others},
        "services": _services(layout, programs, name, address, kubeconfig),
        "files": {
            "/etc/containerd/config.toml": _containerd_config(programs),
            "/etc/cni/net.d/10-cluster.conflist": json.dumps(_cni_config(pod_range(index))),
            "/etc/kubernetes/kubelet.json": json.dumps(kubelet),
            "/etc/machine-id": hashlib.sha256(f"{layout.id}{name}".encode()).hexdigest()[:32] + "\n",
            "/etc/resolv.conf": "nameserver 127.0.0.1\n",
            f"{STATE}/engine.json": json.dumps(inventory(gpus_of(index), index)),
        },
    }


def _services(layout: Layout, programs: Programs, name: str, address: str, kubeconfig: Path) -> list[dict[str, Any]]:
    labels = ",".join(f"{GPU_RESOURCE}.{key}={value}" for key, value in _LABELS.items())
    imported = str(layout.images_of(name))
    importing = '[ -e "$2" ] || { ctr --namespace k8s.io images import "$1" && touch "$2"; } && exec sleep infinity'
    kubelet = [
        "kubelet",
        "--config=/etc/kubernetes/kubelet.json",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        f"--node-ip={address}",
        f"--node-labels={labels}",
        "--v=1",
    ]
    plugin = ["gpu-device-plugin", f"--control={layout.node(name)}/devices.json", f"--node={name}"]
    services = [
        {"name": "containerd", "argv": ["containerd", "--config=/etc/containerd/config.toml"]},
        {"name": "images", "argv": ["sh", "-c", importing, "sh", str(programs.images), imported], "needs": SOCKET},
        {"name": "kubelet", "argv": kubelet, "needs": SOCKET},
        {"name": "gpu-device-plugin", "argv": plugin, "needs": "/var/lib/kubelet/device-plugins/kubelet.sock"},
    ]
    return [{**each, "env": programs.environment} for each in services]


def _containerd_config(programs: Programs) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
oom_score = 0
[grpc]
  address = "{SOCKET}"
[{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  enable_unprivileged_ports = true
  [{cri}.containerd]
    snapshotter = "overlayfs"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [{cri}.cni]
    bin_dir = "{programs.debian}/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""


def _cni_config(pods: str) -> dict[str, Any]:
    ranges = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": ranges,
    }
    return {"cniVersion": "0.4.0", "name": "cluster", "plugins": [bridge]}


def _kubelet_config(ca: str, cert: str, key: str, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}, "x509": {"clientCAFile": ca}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": cert,
        "tlsPrivateKeyFile": key,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "healthzBindAddress": "127.0.0.1",
        "resolvConf": "/etc/resolv.conf",
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeLeaseDurationSeconds": LEASE_S,
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "shutdownGracePeriod": "0s",
    }
