"""The container images, made from Debian packages without a registry, as one OCI archive.

`TOOLS` has python3, busybox, nsenter and procps; `PAUSE`, the sandbox of every pod, busybox only.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster import debian
from tests.cluster.layout import part_of

PAUSE = "cluster.test/pause:1"
TOOLS = "cluster.test/tools:1"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = (
    *("busybox-static", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
    *("libc6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libcrypt1"),
    *("util-linux", "libmount1", "libblkid1", "libsmartcols1", "libselinux1", "libpcre2-8-0"),
    *("libcap-ng0", "libtinfo6", "procps", "libproc2-0", "libncursesw6"),
)
_UNWANTED = (
    *(f"usr/share/{name}" for name in ("doc", "man", "locale", "bash-completion", "lintian", "perl5")),
    *(f"usr/lib/python3.11/{name}" for name in ("test", "lib2to3", "pydoc_data")),
    *(f"usr/lib/x86_64-linux-gnu/{name}" for name in ("gconv", "perl-base")),
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}


def make(archive: Path, downloads: Path) -> None:
    """Make the archive; it appears when it is whole."""
    root, fresh = part_of(archive.with_name("rootfs")), part_of(archive)
    debian.unpack(debian.fetch(PACKAGES, downloads), root)
    _furnish(root)
    _write(fresh, root)
    fresh.replace(archive)
    shutil.rmtree(root)


def _furnish(root: Path) -> None:
    """Remove what no container needs, and add the few files that one does."""
    for name in _UNWANTED:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("proc", "sys", "dev", "run", "tmp", "root", "etc", "var/log"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    for name in ("python3", "python"):
        (root / "usr/bin" / name).unlink(missing_ok=True)
        (root / "usr/bin" / name).symlink_to("python3.11")
    applets = subprocess.run([root / "bin/busybox", "--list"], check=True, text=True, stdout=subprocess.PIPE)
    for applet in applets.stdout.split():
        taken = [root / "usr" / folder / applet for folder in ("bin", "sbin")]
        if not any(os.path.lexists(path) for path in taken):
            taken[0].symlink_to("busybox")
    subprocess.run(["ldconfig", "-r", root], check=True)


def _write(path: Path, root: Path) -> None:
    with tarfile.open(path, "w") as tar:
        archive = _Archive(tar)
        sleep = {"Env": [PATH], "Entrypoint": ["/usr/bin/busybox", "sleep", "2147483647"]}
        archive.add_image(PAUSE, _layer(root, ["bin", "usr/bin/busybox"]), sleep)
        archive.add_image(
            TOOLS, _layer(root, sorted(path.name for path in root.iterdir())), {"Env": [PATH], "Cmd": ["/bin/sh"]}
        )
        archive.close()


class _Archive:
    """An OCI image layout, written straight into a tar file."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._index: list[dict[str, Any]] = []

    def add_image(self, name: str, layer: tuple[bytes, str], config: dict[str, Any]) -> None:
        """Add an image of one layer: gzip data and the SHA-256 of the plain tar."""
        data, digest = layer
        rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
        document = {"architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs}
        kind = "application/vnd.oci.image"
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": self._add_blob(json.dumps(document).encode(), f"{kind}.config.v1+json"),
            "layers": [self._add_blob(data, f"{kind}.layer.v1.tar+gzip")],
        }
        entry = self._add_blob(json.dumps(manifest).encode(), f"{kind}.manifest.v1+json")
        tag = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
        self._index.append({**entry, "annotations": tag})

    def close(self) -> None:
        """Write what makes the files an image layout."""
        self._add_file("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        self._add_file("index.json", json.dumps({"schemaVersion": 2, "manifests": self._index}).encode())

    def _add_blob(self, data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        self._add_file(f"blobs/sha256/{digest}", data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    def _add_file(self, name: str, data: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))


def _layer(root: Path, names: Sequence[str]) -> tuple[bytes, str]:
    """Pack paths of a tree reproducibly, compressed only a little: it is unpacked on every node."""

    def clean(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name in names:
            tar.add(root / name, name, filter=clean)
    data = plain.getvalue()
    return gzip.compress(data, compresslevel=1, mtime=0), hashlib.sha256(data).hexdigest()
