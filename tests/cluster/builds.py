"""The programs of the cluster: Kubernetes and Kueue built from their Go modules, the rest from Debian.

All is kept in a cache whose name holds the versions: building takes many minutes, once.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.cluster import debian, images
from tests.cluster.errors import ClusterError
from tests.cluster.layout import cache, part_of

GO = Path(__file__).parent / "go"
MODULES = ("kubernetes", "kueue")
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
    def kueue_manifests(self) -> Path:
        """Kueue's own definitions and webhook configurations."""
        return self.folder / "kueue-manifests"

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
    """Name what has to be fetched or built."""
    return [target.name for target, _make in _steps(programs(), to_stderr) if not target.exists()]


def fetch(tell: Tell) -> None:
    """Download what is missing to build from. Only this needs the servers of Debian and of Go's modules.

    Raises: ClusterError with the words of what failed.
    """
    found = programs()
    found.bin.mkdir(parents=True, exist_ok=True)
    if not missing():
        return
    with _alone(found.folder, tell):
        tell("fetching Debian packages")
        debian.fetch((*debian.RUNTIME, *images.PACKAGES), found.folder / "debs")
        for module in MODULES:
            tell(f"fetching the Go modules of {module}")
            _go(GO / module, "mod", "download")


def ensure(tell: Tell) -> Programs:
    """Build and fetch what is missing, saying so; waits for another process that does. Killed, it is simply run again.

    Raises: ClusterError with the words of what failed.
    """
    found = programs()
    found.bin.mkdir(parents=True, exist_ok=True)
    if missing():
        with _alone(found.folder, tell):
            _remove_parts(found)
            for target, make in _steps(found, tell):
                if not target.exists():
                    _timed(target, make, tell)
    return found


def _steps(found: Programs, tell: Tell) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Yield what there must be in the cache and how it is made; each appears whole, as the last thing its step does."""
    debs = found.folder / "debs"
    yield found.debian, lambda: debian.install(debian.RUNTIME, debs, found.debian)
    yield found.images, lambda: images.make(found.images, debs)
    yield found.kueue_manifests, lambda: _copy_manifests(found.kueue_manifests)
    for name, module, package, flags in _recipes():
        yield found.bin / name, partial(_build, found.bin / name, module, package, flags)


def _timed(target: Path, make: Callable[[], object], tell: Tell) -> None:
    tell(f"making {target.name}")
    began = time.monotonic()
    make()
    tell(f"made {target.name} in {time.monotonic() - began:.0f} s")


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


def _build(target: Path, module: str, package: str, flags: str) -> None:
    fresh = part_of(target)
    _go(GO / module, "build", "-trimpath", f"-ldflags=-s -w {flags}", "-o", str(fresh), package)
    fresh.replace(target)


def _copy_manifests(target: Path) -> None:
    module = json.loads(_go(GO / "kueue", "mod", "download", "-json", "sigs.k8s.io/kueue"))
    source = Path(module["Dir"]) / "config/components"
    fresh = part_of(target)
    fresh.mkdir()
    for path in (*source.glob("crd/bases/*.yaml"), source / "webhook/manifests.yaml"):
        (fresh / path.name).write_bytes(path.read_bytes())
    fresh.replace(target)


def _go(module: Path, *arguments: str) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    argv = ["nice", "-n", "19", "go", *arguments]
    done = subprocess.run(argv, cwd=module, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"go {' '.join(arguments)}: {done.stderr[-2000:].strip()}")
    return done.stdout


@contextmanager
def _alone(where: Path, tell: Tell) -> Iterator[None]:
    """Hold the cache; the kernel drops the lock of a killed holder."""
    with (where / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another process is building; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _remove_parts(found: Programs) -> None:
    for folder in (found.folder, found.bin):
        for part in folder.glob(".*.part"):
            shutil.rmtree(part) if part.is_dir() else part.unlink()


def to_stderr(text: str) -> None:
    """Show progress."""
    sys.stderr.write(f"cluster: {text}\n")
    sys.stderr.flush()
