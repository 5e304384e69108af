"""Layer 2, device health: rows DEV-01 to DEV-09."""

from chaos_gpu.criteria.criterion import Criterion, Layer, Threshold

_DEVICE = "2 device health"
_HEALTH_POLICY = "GPU platform verification, layer 2, node health policy"
_LEVELS = "GPU platform verification, layer 2, diagnostic levels"
_INJECTION = "GPU platform verification, layer 2, error injection"
_FATAL = "device/xid-fatal-cordons-node"
_APPLICATION = "device/xid-application-error-keeps-node"
_CODES = "device/xid-policy-code-by-code"
_BY_DRIVER = "device/application-xid-keeps-node"
_COVERAGE = "device/detection-coverage"
_ADMISSION = "device/admission-needs-diagnostics"
_DURING_JOB = "device/xid-during-job-runs-diagnostics"
_WEEKLY = "device/idle-nodes-are-diagnosed-weekly"
_PROBES = "chaos_gpu.probes.health"
_READ = "device/diagnostics-are-read-right"
_REACHES = "device/dcgm-error-reaches-platform"
_CORDON = Threshold(name="cordon", default=60, unit="s", env="CHAOS_GPU_CORDON_S")

_HOLD = Threshold(name="hold", default=5, unit="s", env="CHAOS_GPU_HOLD_S")
_SKEW = Threshold(name="clock skew", default=2, unit="s", env="CHAOS_GPU_SKEW_S")

_CRITERIA = (
    Criterion(
        id="DEV-01",
        layer=_DEVICE,
        statement="A node takes work only with an r2 that passed, or that warned and was confirmed by an operator; "
        "without one it is kept out of service.",
        source=_HEALTH_POLICY,
        thresholds=(_CORDON, _HOLD, _SKEW),
        probes=(f"{_PROBES}.admission_held",),
        catches={_ADMISSION: ("policy-admits-undiagnosed", "policy-admits-warn", "policy-admits-failed")},
    ),
    Criterion(
        id="DEV-02",
        layer=_DEVICE,
        statement="An Xid that the policy calls fatal takes its node, and no other, out of service at once and for "
        "good, and the detector's record names the GPU; under a job at once, and r3 waits for the job's end.",
        source=_HEALTH_POLICY,
        thresholds=(
            Threshold(name="condition", default=60, unit="s", env="CHAOS_GPU_CONDITION_S"),
            _CORDON,
            _HOLD,
        ),
        probes=(
            "chaos_gpu.probes.device.xid_detected",
            "chaos_gpu.probes.device.time_to_cordon",
            f"{_PROBES}.cordoned_during_job",
            f"{_PROBES}.diagnosed",
        ),
        catches={
            _FATAL: ("detector-never-cordons", "detector-cordons-wrong-node", "detector-cordons-and-uncordons"),
            _DURING_JOB: ("policy-diagnoses-busy-node",),
        },
    ),
    Criterion(
        id="DEV-03",
        layer=_DEVICE,
        statement="After the cordon r3 runs on the idle node and decides: a pass returns it, a failure isolates it.",
        source=_HEALTH_POLICY,
        thresholds=(
            Threshold(name="diagnosis", default=3600, unit="s", env="CHAOS_GPU_DIAGNOSIS_S"),
            Threshold(name="return", default=3600, unit="s", env="CHAOS_GPU_UNCORDON_S"),
            _HOLD,
            _SKEW,
        ),
        probes=(f"{_PROBES}.diagnosed",),
        catches={
            _DURING_JOB: ("policy-returns-without-r3", "policy-returns-failed", "policy-diagnoses-busy-node"),
        },
    ),
    Criterion(
        id="DEV-04",
        layer=_DEVICE,
        statement="The newest r2 of each idle node is at most 7 days old; busy nodes are exempt.",
        source=_HEALTH_POLICY,
        thresholds=(Threshold(name="age of r2", default=7, unit="days", env="CHAOS_GPU_R2_DAYS"), _SKEW),
        probes=(f"{_PROBES}.idle_nodes_diagnosed",),
        catches={_WEEKLY: ("policy-skips-week", "policy-never-diagnoses")},
    ),
    Criterion(
        id="DEV-05",
        layer=_DEVICE,
        statement="Each judgement leaves one whole and true record for each GPU: node, UUID, level, result, action.",
        source=_HEALTH_POLICY,
        thresholds=(_SKEW,),
        probes=(f"{_PROBES}.diagnosed",),
        catches={
            _DURING_JOB: ("policy-record-without-uuid", "policy-record-wrong-action", "policy-record-lost"),
        },
    ),
    Criterion(
        id="DEV-06",
        layer=_DEVICE,
        statement="What the platform does to the node equals its policy for the Xid's code, however it is written: 48, "
        "74 and 79 cordon it, 13 leaves it alone, and a code that nobody knows is not taken for harmless.",
        source=_HEALTH_POLICY,
        thresholds=(_CORDON,),
        probes=(
            "chaos_gpu.probes.device.time_to_cordon",
            "chaos_gpu.probes.device.node_kept",
            "chaos_gpu.probes.device.policy_followed",
        ),
        catches={
            _FATAL: ("detector-ignores-74",),
            _APPLICATION: ("detector-cordons-13",),
            _CODES: ("detector-cordons-13", "detector-ignores-74", "detector-unknown-harmless"),
            _COVERAGE: ("detector-blind-to-mig",),
        },
    ),
    Criterion(
        id="DEV-07",
        layer=_DEVICE,
        statement="The time from the Xid in the kernel log to the cordon is measured, and within its limit.",
        source=_HEALTH_POLICY,
        thresholds=(_CORDON,),
        probes=("chaos_gpu.probes.device.time_to_cordon",),
        catches={_FATAL: ("detector-slow", "detector-misses-every-second")},
    ),
    Criterion(
        id="DEV-08",
        layer=_DEVICE,
        statement="What DCGM says of a node is whole, about every GPU, of the level that was asked for, and calls a "
        "warning a warning; zero GPUs or a paused engine count as no result.",
        source=_LEVELS,
        thresholds=(),
        probes=("chaos_gpu.probes.dcgm.diagnosis_reads_right", "chaos_gpu.probes.dcgm.health_grades_right"),
        catches={_READ: ("dcgm-warn-as-fail", "dcgm-paused-says-healthy", "dcgm-truncated-json")},
    ),
    Criterion(
        id="DEV-09",
        layer=_DEVICE,
        statement="An error in DCGM reaches the platform: the health watch sees it, the exporter shows it, the "
        "platform takes the node out of service in time, and nothing of it is left afterwards.",
        source=_INJECTION,
        thresholds=(_CORDON, Threshold(name="echo", default=90, unit="s", env="CHAOS_GPU_ECHO_S")),
        probes=(
            "chaos_gpu.probes.dcgm.health_sees_error",
            "chaos_gpu.probes.dcgm.error_exported",
            "chaos_gpu.probes.dcgm.platform_acts_on_error",
            "chaos_gpu.probes.dcgm.error_gone",
        ),
        catches={_REACHES: ("exporter-not-updated", "health-not-watched")},
    ),
)

DEVICE = Layer(
    criteria=_CRITERIA,
    blocks_recovery={_FATAL: ("detector-never-returns",)},
    needs={
        _FATAL: ("detector",),
        _APPLICATION: ("detector",),
        _CODES: ("detector",),
        _COVERAGE: ("detector",),
        _ADMISSION: ("health-policy",),
        _DURING_JOB: ("detector", "health-policy"),
        _WEEKLY: ("health-policy",),
        _READ: ("dcgm-engine",),
        _REACHES: ("dcgm-agent",),
    },
    uses={
        _COVERAGE: ("journal",),
        _ADMISSION: ("dcgm-engine",),
        _DURING_JOB: ("dcgm-engine",),
        _WEEKLY: ("dcgm-engine",),
        _REACHES: ("dcgm-engine", "dcgm-exporter"),
    },
    real_gpus={_BY_DRIVER: "NVIDIA's driver itself must report the Xid, and the lab's nodes have none"},
)
