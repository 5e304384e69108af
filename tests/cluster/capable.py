"""Whether this machine can run the cluster, in one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster import builds, cgroups

_PROGRAMS = ("apt-get", "chroot", "dpkg-deb", "ip", "nsenter", "openssl", "pivot_root", "unshare")
_CONTROLLERS = ("cpu", "cpuset", "devices", "freezer", "memory", "pids")
_NAMESPACES = ("unshare", "--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "true")


def obstacle() -> str:
    """Say what this machine lacks, "" if nothing; in a few hundredths of a second."""
    if sys.platform != "linux":
        return "needs Linux"
    if os.geteuid() != 0:
        return "needs root (namespaces, mounts, cgroups)"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)} on PATH"
    if builds.missing() and shutil.which("go") is None:
        return "needs Go to build Kubernetes and Kueue"
    if "bookworm" not in Path("/etc/os-release").read_text():
        return "needs Debian 12 (container images are made from its packages)"
    groups = {each.name for each in cgroups.hierarchies() if os.access(each, os.W_OK)}
    if not groups.issuperset(_CONTROLLERS):
        return f"needs cgroup v1 hierarchies {', '.join(_CONTROLLERS)} below {cgroups.ROOT}"
    if not os.access("/dev/kmsg", os.R_OK | os.W_OK):
        return "needs /dev/kmsg"
    if subprocess.run(_NAMESPACES, capture_output=True, check=False).returncode:
        return "needs namespaces of its own, which this container does not allow"
    return ""
