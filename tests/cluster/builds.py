"""The programs of the cluster: Kubernetes and Kueue built from their Go modules, the rest from Debian.

All is kept in a cache whose name holds the versions: building takes many minutes, once.
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cluster import debian, images
from tests.cluster.errors import ClusterError
from tests.cluster.layout import cache

GO = Path(__file__).parent / "go"
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
_VERSION = r"^(?:require |\t)%s v(\S+)"
_STAMPED = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
Tell = Callable[[str], None]


class Programs(NamedTuple):
    """Where the programs are."""

    folder: Path

    @property
    def bin(self) -> Path:
        """What was built here."""
        return self.folder / "bin"

    @property
    def debian(self) -> Path:
        """The unpacked Debian packages."""
        return self.folder / "debian"

    @property
    def images(self) -> Path:
        """The container images."""
        return self.folder / "images.tar"

    @property
    def kueue_source(self) -> Path:
        """Kueue's own manifests, in the module cache."""
        return Path(_go(GO / "kueue", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue").strip())

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find the others."""
        path = [self.bin, self.debian / "usr/bin", self.debian / "usr/sbin"]
        system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {
            "PATH": ":".join([*map(str, path), system]),
            "LD_LIBRARY_PATH": str(self.debian / "usr/lib/x86_64-linux-gnu"),
        }


def version(module: str, path: str) -> str:
    """Read the version of a Go module from a go.mod of ours."""
    found = re.search(_VERSION % re.escape(path), (GO / module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"go/{module}/go.mod requires no {path}")
    return found[1]


def folder() -> Path:
    """Return where these versions are kept; the digest covers every line that could change what is built."""
    sources = sorted(path for path in GO.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:8]
    kubernetes, kueue = version("kubernetes", "k8s.io/kubernetes"), version("kueue", "sigs.k8s.io/kueue")
    return cache() / f"kubernetes-{kubernetes}-kueue-{kueue}-{digest}"


def programs() -> Programs:
    """Return where the programs are, or will be."""
    return Programs(folder())


def missing() -> list[str]:
    """Name what has to be built."""
    built = programs().bin
    return [name for name, *_ in _recipes() if not (built / name).exists()]


def ensure(tell: Tell) -> Programs:
    """Build and fetch what is missing, saying so. Raises ClusterError with the compiler's words."""
    found = programs()
    found.bin.mkdir(parents=True, exist_ok=True)
    with _alone(found.folder):
        if not (found.debian / ".complete").exists():
            tell(f"fetching {', '.join(debian.RUNTIME)} from Debian")
            debian.unpack(debian.fetch(debian.RUNTIME, found.folder / "debs"), found.debian)
            (found.debian / ".complete").touch()
        images.ensure(found.folder)
        for name, module, package, flags in _recipes():
            if not (found.bin / name).exists():
                _build(found.bin / name, module, package, flags, tell)
    return found


def _recipes() -> Iterator[tuple[str, str, str, str]]:
    """Yield what to build: name, our module, package, linker flags."""
    kubernetes = version("kubernetes", "k8s.io/kubernetes")
    major, minor, _patch = kubernetes.split(".")
    stamp = {"gitVersion": f"v{kubernetes}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X {package}.{key}={value}" for package in _STAMPED for key, value in stamp.items())
    for name in KUBERNETES:
        yield name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", flags
    yield "gpu-device-plugin", "kubernetes", "./deviceplugin", ""
    yield "kueue", "kueue", "sigs.k8s.io/kueue/cmd/kueue", ""


def _build(target: Path, module: str, package: str, flags: str, tell: Tell) -> None:
    tell(f"building {target.name} ({package}); the first time this takes minutes")
    began = time.monotonic()
    fresh = target.with_name(f".{target.name}.part")
    _go(GO / module, "build", "-trimpath", f"-ldflags=-s -w {flags}", "-o", str(fresh), package)
    fresh.replace(target)
    tell(f"built {target.name} in {time.monotonic() - began:.0f} s, {target.stat().st_size / 1e6:.0f} MB")


def _go(module: Path, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    argv = ["nice", "-n", "19", "go", *arguments]
    done = subprocess.run(argv, cwd=module, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"go {' '.join(arguments)}: {done.stderr[-2000:].strip()}")
    return done.stdout


@contextmanager
def _alone(where: Path) -> Iterator[None]:
    with (where / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def to_stderr(text: str) -> None:
    """Show progress."""
    sys.stderr.write(f"cluster: {text}\n")
    sys.stderr.flush()
