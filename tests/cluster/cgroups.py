"""The cgroups of the cluster: one tree of its own in every v1 hierarchy. Stdlib only: nodes import this."""

import contextlib
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def hierarchies() -> list[Path]:
    """List the v1 hierarchies of this machine."""
    return [each for each in ROOT.iterdir() if (each / "tasks").exists()]


def trees() -> list[Path]:
    """List those and the v2 tree beside them, where runc makes groups of the same names."""
    return [each for each in ROOT.iterdir() if (each / "cgroup.procs").exists()]


def make(path: str) -> None:
    """Create a group everywhere; a new cpuset group must be given cpus and memory nodes."""
    for group in hierarchies():
        for part in path.strip("/").split("/"):
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / name).exists() and not (group / name).read_text().strip():
                    (group / name).write_text((parent / name).read_text())


def join(path: str) -> None:
    """Put this process into a group, everywhere."""
    for hierarchy in hierarchies():
        (hierarchy / path.strip("/") / "cgroup.procs").write_text("0")


def remove(path: str) -> bool:
    """Remove a tree of groups, deepest first; say whether all is gone (a group with a process in it stays)."""
    for hierarchy in trees():
        for folder, _, _ in os.walk(hierarchy / path.strip("/"), topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
    return not any((hierarchy / path.strip("/")).exists() for hierarchy in trees())
