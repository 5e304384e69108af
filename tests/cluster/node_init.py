"""A node's own namespaces: `link` enters a new network, `run` is process 1 of a node. Stdlib only.

Started by the control plane's supervisor as `unshare --net --mount --uts python node_init.py link PLAN`. The node's
root is an overlay of the machine's: what a pod writes through hostPath stays in the node, and the end of process 1
ends every process, mount and interface of the node at once.
"""

import ctypes
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cgroups
import network
import supervisor

MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 0x1000, 0x4000, 1 << 18, 1 << 20
DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    "kmsg": (1, 11),
    "fuse": (10, 229),
}
NVIDIA_MAJOR = 195
UNIFIED = "sys/fs/cgroup/unified"
CONTROL_PLANE = 1
"""Seen from a node's `link` step, process 1 is the control plane's supervisor."""
Plan = dict[str, Any]


def mount(source: str | Path, target: Path | str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Call mount(2): no /etc/fstab, no /run/mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [text.encode() or None for text in (str(source), str(target), kind)]
    if libc.mount(*words, flags, data.encode() or None):
        code = ctypes.get_errno()
        raise OSError(code, f"mount {source} on {target} ({kind or 'bind'}): {os.strerror(code)}")


def link(plan: Plan, file: str) -> None:
    """Join cgroup and network, then become the parent of the node's process 1."""
    end = time.monotonic() + 20  # of its last life there may be processes that the kernel has not ended yet
    while not cgroups.remove(plan["cgroup"]) and time.monotonic() < end:
        time.sleep(0.1)
    cgroups.make(f"{plan['cgroup']}/system")
    cgroups.join(f"{plan['cgroup']}/system")
    network.set_up_node(CONTROL_PLANE, plan["link"], plan["address"], plan["gateway"], plan["routes"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    own = [sys.executable, "-B", __file__, "run", file]
    os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--", *own])


def run(plan: Plan) -> None:
    """Be process 1 of the node."""
    enter_root(plan)
    subprocess.run(["hostname", plan["name"]], check=True)
    for name, text in plan["files"].items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    supervisor.supervise(Path(plan["run"]), plan["services"])


def enter_root(plan: Plan) -> None:
    """Make an overlay of / the root of this mount namespace."""
    base = Path(plan["folder"])
    root = base / "root"
    for name in ("root", "upper", "work", "kubelet", "containerd"):
        (base / name).mkdir(parents=True, exist_ok=True)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("overlay", root, "overlay", data=f"lowerdir=/,upperdir={base}/upper,workdir={base}/work")
    mount("proc", root / "proc", "proc")
    mount("sysfs", root / "sys", "sysfs")
    mount("/sys/fs/cgroup", root / "sys/fs/cgroup", flags=MS_BIND | MS_REC)
    if not plan["unified"] and (root / UNIFIED).exists():  # a machine with cgroup v1 alone
        subprocess.run(["umount", root / UNIFIED], check=True)
    for name in ("run", "tmp", "dev"):
        mount("tmpfs", root / name, "tmpfs", data="mode=1777" if name == "tmp" else "mode=755")
    make_devices(root / "dev", plan["gpus"])
    binds = {"var/lib/kubelet": base / "kubelet", "var/lib/containerd": base / "containerd"}
    binds |= {path.lstrip("/"): Path(path) for path in plan["shared"]}
    for target, source in binds.items():
        (root / target).mkdir(parents=True, exist_ok=True)
        mount(source, root / target, flags=MS_BIND)
    mount(plan["driver"], root / "proc/driver", flags=MS_BIND)  # nvidia/gpus below it, as the driver would show
    pivot(root)


def pivot(root: Path) -> None:
    """Leave the machine's root for this one."""
    (root / "run/old").mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "run/old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "-l", "/run/old"], check=True)
    Path("/run/old").rmdir()
    mount("none", "/", flags=MS_REC | MS_SHARED)


def make_devices(dev: Path, gpus: int) -> None:
    """Fill /dev. No driver answers behind /dev/nvidiaN: open gives ENXIO, or EPERM without permission."""
    devices = DEVICES | {f"nvidia{index}": (NVIDIA_MAJOR, index) for index in range(gpus)}
    devices["nvidiactl"] = (NVIDIA_MAJOR, 255)
    mask = os.umask(0)
    for name, (major, minor) in devices.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(mask)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
    mount("devpts", dev / "pts", "devpts", data="newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("tmpfs", dev / "shm", "tmpfs", data="mode=1777")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "fd").symlink_to("/proc/self/fd")


def main(step: str, file: str) -> None:
    """Do a step of the plan in a file."""
    plan: Plan = json.loads(Path(file).read_text())
    if step == "link":
        link(plan, file)
    run(plan)


if __name__ == "__main__":
    main(*sys.argv[1:])
