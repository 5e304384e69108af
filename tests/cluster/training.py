"""The lab's training as a team of the cluster would give it, and what can be seen of it from outside the product."""

import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from chaos_gpu.lab.trainer.manifest import CODE_PATH, SAVE_S, SLOW_SAVE_S, trainer_objects
from tests.cluster.images import TOOLS
from tests.cluster.kubectl import Json
from tests.cluster.product import OURS, Site

STORE = "/var/lib/trainings"
"""Directory of a node that its trainings save to."""
WIDTH = "480"
"""Ten times the lab's: no write of a save is more than a twentieth of it."""
LOOK_S = 0.05
ROLE = "chaos-gpu/training"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def give(folder: Path, defects: Sequence[str] = ()) -> dict[str, str]:
    """Write the manifest of the training, with its planted defects, and return the settings that name it."""
    save_s = SLOW_SAVE_S if "trainer-grace-too-short" in defects else SAVE_S
    config, job = trainer_objects(STORE, image=TOOLS, save_s=save_s)
    job["spec"]["backoffLimit"] = 2  # a kubelet waits 10 s before the second start, and twice as long before each next
    config["data"]["platform.json"] = json.dumps({"defects": list(defects)})
    settings = {"LAB_PLATFORM_FILE": f"{CODE_PATH}/platform.json", "INPUTS": WIDTH}
    environment: list[Json] = job["spec"]["template"]["spec"]["containers"][0]["env"]
    environment += [{"name": name, "value": value} for name, value in settings.items()]
    path = folder / "trainer.yaml"
    path.write_text(yaml.safe_dump_all([config, job]))
    return {"job": str(path)}


def variant(folder: Path, experiment: str, **arguments: Any) -> str:
    """Write a shipped experiment with other arguments of its fault, and return the file's name."""
    made: Json = yaml.safe_load((EXPERIMENTS / f"{experiment}.yaml").read_text())
    made["method"][0]["provider"]["arguments"] |= arguments
    path = folder / "variant.json"
    path.write_text(json.dumps(made))
    return str(path)


@dataclass
class Seen:
    """What the API server said of a run's training, and what looks into its node's directory showed, up to now."""

    store: Path
    kept: Path
    past: frozenset[Path]
    """What other runs have left there."""
    copied: dict[tuple[str, str], int] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    graces_s: dict[str, int] = field(default_factory=dict)
    """Pod → how long it was given to end; when it has, its kubelet says 0."""
    deaths: list[Json] = field(default_factory=list)
    """How its containers had ended, of those that were started again."""
    first_life: list[Json] = field(default_factory=list)
    """What the training logged before its container was started again."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Name of a file in its store → its size when it was last seen."""

    def take(self, pod: Json) -> bool:
        """Take down a pod's state; say whether its container has been started again since."""
        name, now = pod["metadata"]["name"], container(pod)
        again = bool(now.get("restartCount", 0) > container(self.pods.get(name, {})).get("restartCount", 0))
        self.pods[name] = pod
        if (grace_s := pod["metadata"].get("deletionGracePeriodSeconds")) is not None:
            self.graces_s.setdefault(name, grace_s)
        if again:
            self.deaths.append(now["lastState"]["terminated"])
        return again

    def look(self) -> None:
        """Take down the sizes of what the stores hold now, and keep what has got its final name."""
        for path in (each for new in self.stores() for each in new.glob("*")):
            role = path.parent.name.rpartition("-")[2]
            with suppress(FileNotFoundError):
                found = path.stat()
                if role == "subject":
                    self.sizes[path.name] = found.st_size
                if path.suffix == ".pt" and self.copied.get((role, path.name)) != found.st_ino:
                    shutil.copyfile(path, self.copy_of(role, path.name))
                    self.copied[role, path.name] = found.st_ino

    def stores(self) -> set[Path]:
        """Return the directories that trainings of the run save to."""
        return set(self.store.glob("*")) - self.past

    def copy_of(self, role: str, name: str) -> Path:
        """Return where a training's checkpoint is kept: its own goes with the run, or makes room for the next."""
        path = self.kept / role / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def container(pod: Json) -> Json:
    """Return what the kubelet says of the training's container."""
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    found: Json = statuses[0]
    return found


@contextmanager
def watched(site: Site, node: str) -> Iterator[Seen]:
    """Watch the killed trainings on a node meanwhile."""
    store, over = site.cluster.layout.node(node) / "upper" / STORE.lstrip("/"), threading.Event()
    seen = Seen(store, site.folder / "kept", frozenset(store.glob("*")))
    subjects = ("get", "pods", f"--namespace={OURS}", f"--selector={ROLE}=subject")
    with site.kubectl.stream(*subjects, "--watch", '--output=jsonpath={@}{"\\n"}') as events:

        def follow() -> None:
            for line in events.stdout or ():
                pod = json.loads(line)
                if seen.take(pod) and not seen.first_life:
                    seen.first_life += _log(site, pod["metadata"]["name"])

        def look() -> None:
            while not over.wait(LOOK_S):
                seen.look()

        threads = [threading.Thread(target=each) for each in (follow, look)]
        for each in threads:
            each.start()
        try:
            yield seen
        finally:
            over.set()
            events.terminate()
            for each in threads:
                each.join()


def _log(site: Site, pod: str) -> list[Json]:
    said = site.kubectl.try_run("logs", pod, f"--namespace={OURS}", "--previous").stdout
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]
