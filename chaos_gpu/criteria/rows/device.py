"""Layer 2, device health: rows DEV-01 to DEV-09."""

from chaos_gpu.criteria.criterion import Criterion, Layer, Threshold

_DEVICE = "2 device health"
_HEALTH_POLICY = "GPU platform verification, layer 2, node health policy"
_FATAL = "device/xid-fatal-cordons-node"
_APPLICATION = "device/xid-application-error-keeps-node"
_CODES = "device/xid-policy-code-by-code"
_COVERAGE = "device/detection-coverage"
_CORDON = Threshold(name="cordon", default=60, unit="s", env="CHAOS_GPU_CORDON_S")

_CRITERIA = (
    Criterion(
        id="DEV-02",
        layer=_DEVICE,
        statement="An Xid that the policy calls fatal takes its node, and no other, out of service at once and for "
        "good, and the detector's record names the GPU.",
        source=_HEALTH_POLICY,
        thresholds=(
            Threshold(name="condition", default=60, unit="s", env="CHAOS_GPU_CONDITION_S"),
            _CORDON,
            Threshold(name="hold", default=5, unit="s", env="CHAOS_GPU_HOLD_S"),
        ),
        probes=("chaos_gpu.probes.device.xid_detected", "chaos_gpu.probes.device.time_to_cordon"),
        catches={
            _FATAL: ("detector-never-cordons", "detector-cordons-wrong-node", "detector-cordons-and-uncordons"),
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
)

DEVICE = Layer(
    criteria=_CRITERIA,
    blocks_recovery={_FATAL: ("detector-never-returns",)},
    needs={_FATAL: ("detector",), _APPLICATION: ("detector",), _CODES: ("detector",), _COVERAGE: ("detector",)},
)
