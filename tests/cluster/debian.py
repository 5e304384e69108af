"""Debian packages, fetched and unpacked into the cache: nothing is installed on the machine."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import part_of

RUNTIME = ("etcd-server", "containerd", "runc", "libseccomp2", "containernetworking-plugins")
"""What the cluster runs that is not built here."""


def install(names: Sequence[str], downloads: Path, root: Path) -> None:
    """Make a folder that holds the unpacked packages; it appears when it is whole."""
    fresh = part_of(root)
    unpack(fetch(names, downloads), fresh)
    fresh.replace(root)


def fetch(names: Sequence[str], folder: Path) -> list[Path]:
    """Download the packages that the folder lacks. Raises ClusterError with apt's own words."""
    missing = [name for name in names if not _found(folder, name)]
    if missing:
        arriving = part_of(folder)
        arriving.mkdir(parents=True, exist_ok=True)
        _download(missing, arriving)
        folder.mkdir(exist_ok=True)
        for package in arriving.glob("*.deb"):
            package.replace(folder / package.name)
        arriving.rmdir()
    return [_found(folder, name)[0] for name in names]


def unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack packages into a merged-/usr tree."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        files = _run(["dpkg-deb", "--fsys-tarfile", str(package)], root).stdout
        # tar keeps the links to /usr that `dpkg -x` would replace by directories
        done = subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", root], input=files, check=False)
        if done.returncode:
            raise ClusterError(f"{package.name} could not be unpacked")


def _found(folder: Path, name: str) -> list[Path]:
    return sorted(folder.glob(f"{name}_*.deb"))


def _download(names: Sequence[str], folder: Path) -> None:
    argv = ["apt-get", "download", "-q", *names]
    try:
        _run(argv, folder)
    except ClusterError:  # the lists of this machine may be old, or there may be none
        _run(["apt-get", "update", "-q"], folder)
        _run(argv, folder)


def _run(argv: list[str], folder: Path) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.decode(errors='replace').strip()}")
    return done
