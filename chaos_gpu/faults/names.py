"""The names that the objects of a run carry in the cluster."""

import hashlib
import re
from typing import Any

NAMESPACE = "chaos-gpu"
ENABLED = "chaos-gpu/enabled"
ENVIRONMENT = "chaos-gpu/environment"
RUN = "chaos-gpu/run"
FAULT = "chaos-gpu/fault"
ROLE = "chaos-gpu/role"
LEDGER = "chaos-gpu/ledger"
TARGET = "chaos-gpu/target"
PROTECTED = "chaos-gpu/protected"
EXERCISE = "chaos-gpu/exercise"
EXERCISE_REASON = "ChaosGpuExercise"
DETECTOR = "chaos-gpu/detector"
DETECTOR_PROFILE = "chaos-gpu/detector-profile"
REMEDIATOR = "chaos-gpu/remediator"
LEASE = "chaos-gpu-run"

RUNNER = "chaos-gpu-runner"
REVERTER = "chaos-gpu-reverter"
INJECTOR = "chaos-gpu-injector"

GPU = "nvidia.com/gpu"
GPU_NODES = "nvidia.com/gpu.present=true"

RUN_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
FAULT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?")


def pods_path() -> str:
    """Where our pods live."""
    return f"/api/v1/namespaces/{NAMESPACE}/pods"


def ledgers_path() -> str:
    """Where the ledgers live."""
    return f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def leases_path() -> str:
    """Where the Lease of the active run lives."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


def jobs_path() -> str:
    """Where our Jobs live."""
    return f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


def collection_of(body: dict[str, Any]) -> str:
    """Where an object of a fault is made: a Job, or a ConfigMap that it reads."""
    return {"ConfigMap": ledgers_path, "Job": jobs_path}[body["kind"]]()


def marker_of(run: str, fault: str) -> str:
    """Make the token by which a fault's record is known again, the same for the same run and fault."""
    return "cgpu-" + hashlib.sha256(f"{run}/{fault}".encode()).hexdigest()[:8]
