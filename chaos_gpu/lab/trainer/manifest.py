"""The training job as its team would apply it: a Job and the ConfigMap with its program."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

NAME = "trainer"
IMAGE = "python:3.12-slim"
CODE_PATH, STORE_PATH = "/opt/trainer", "/checkpoints"
PARTS = ("torch_zip", "model", "store", "main")
GRACE_S = 2
SAVE_S = 0.5
SLOW_SAVE_S = 2 * GRACE_S
"""A save that does not fit into the grace period."""
SETTINGS = {"STEPS": "32", "SAVE_EVERY": "4", "KEEP": "2", "STEP_S": "0.02"}
_OWN_IMPORT = re.compile(r"^from chaos_gpu\.\S+ import .*\n", re.MULTILINE)


def write_manifest(directory: Path, defects: Sequence[str]) -> Path:
    """Write the manifest of the lab's training job, with its store beside it; return the file.

    Args:
        directory: the lab's own.
        defects: names of planted defects; most of them the trainer finds out itself.
    """
    short = "trainer-grace-too-short" in defects
    objects = trainer_objects(str(directory / "checkpoints"), save_s=SLOW_SAVE_S if short else SAVE_S)
    path = directory / "trainer.yaml"
    path.write_text("\n---\n".join(json.dumps(each, indent=1) for each in objects), encoding="utf-8")  # JSON is YAML
    return path


def trainer_source() -> str:
    """Return the trainer as one file that imports nothing of ours."""
    here = Path(__file__)
    return "\n\n".join(_OWN_IMPORT.sub("", here.with_name(f"{part}.py").read_text(encoding="utf-8")) for part in PARTS)


def trainer_objects(store: str, *, image: str = IMAGE, save_s: float = SAVE_S) -> list[Json]:
    """Return the ConfigMap and the Job.

    Args:
        store: directory of the node that holds the checkpoints.
        image: an image with python3.
        save_s: how long a save is to take, seconds.
    """
    template = {"metadata": {"labels": {"app": NAME}}, "spec": _pod_spec(store, image, save_s)}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": {"trainer.py": trainer_source()}},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": NAME, "annotations": {"chaos-gpu/store": STORE_PATH}},
            "spec": {"backoffLimit": 4, "podReplacementPolicy": "Failed", "template": template},
        },
    ]


def _pod_spec(store: str, image: str, save_s: float) -> Json:
    settings = {"CHECKPOINT_DIR": "$(CHAOS_GPU_STORE)", **SETTINGS, "SAVE_S": str(save_s)}
    container: Json = {
        "name": NAME,
        "image": image,
        "command": ["python3", "-ISB", f"{CODE_PATH}/trainer.py"],
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "volumeMounts": [
            {"name": "code", "mountPath": CODE_PATH, "readOnly": True},
            {"name": "store", "mountPath": STORE_PATH},
        ],
    }
    return {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        "volumes": [
            {"name": "code", "configMap": {"name": NAME}},
            {"name": "store", "hostPath": {"path": store, "type": "DirectoryOrCreate"}},
        ],
    }
