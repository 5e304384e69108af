"""Layer 6, jobs: rows CKPT-01 to CKPT-07."""

from chaos_gpu.criteria.criterion import Criterion, Layer, Threshold

_JOB = "6 jobs"
_CHECKPOINTS = "GPU platform verification, job layer, checkpoints"
_KILLED = "job/killed-in-mid-save-resumes"
_SAVES = "job/saves-in-time-and-keeps-enough"
_PREEMPTED = "job/preempted-saves-in-grace"
_RESUMES = ("chaos_gpu.probes.job.resumes",)
_PARTS = ("model", "optimizer", "scheduler", "rng", "data", "scaler")

_CRITERIA = (
    Criterion(
        id="CKPT-01",
        layer=_JOB,
        statement="A training that is killed in the middle of a save resumes from the newest complete checkpoint, and "
        "never from a torn one.",
        source=_CHECKPOINTS,
        thresholds=(Threshold(name="resume", default=1800, unit="s", env="CHAOS_GPU_RESUME_S"),),
        probes=_RESUMES,
        catches={_KILLED: ("trainer-writes-in-place", "trainer-points-before-data", "trainer-resumes-torn")},
    ),
    Criterion(
        id="CKPT-02",
        layer=_JOB,
        statement="After a resume the first step follows the saved one, then one by one: every step is done once.",
        source=_CHECKPOINTS,
        thresholds=(),
        probes=_RESUMES,
        catches={_KILLED: ("trainer-repeats-a-step", "trainer-restarts-at-zero", "trainer-skips")},
    ),
    Criterion(
        id="CKPT-03",
        layer=_JOB,
        statement="A checkpoint holds model, optimizer, scheduler, random numbers, place in the data and loss scale, "
        "and after a resume each is bit for bit what the uninterrupted reference run has.",
        source=_CHECKPOINTS,
        thresholds=(),
        probes=_RESUMES,
        catches={_KILLED: tuple(f"trainer-drops-{part}" for part in _PARTS)},
    ),
    Criterion(
        id="CKPT-04",
        layer=_JOB,
        statement="After a resume, loss and learning rate of every step are those of the uninterrupted reference run.",
        source=_CHECKPOINTS,
        thresholds=(),
        probes=_RESUMES,
        catches={_KILLED: ("trainer-loss-jumps", "trainer-resets-lr")},
    ),
    Criterion(
        id="CKPT-05",
        layer=_JOB,
        statement="Every save is all there within its limit, by default twice the median of the earlier ones.",
        source=_CHECKPOINTS,
        thresholds=(Threshold(name="save (0: twice the median)", default=0, unit="s", env="CHAOS_GPU_SAVE_S"),),
        probes=("chaos_gpu.probes.job.saves_in_time",),
        catches={_SAVES: ("trainer-saves-slowly",)},
    ),
    Criterion(
        id="CKPT-06",
        layer=_JOB,
        statement="The declared number of complete checkpoints is kept, at least one at every instant, and what "
        "interrupted saves leave behind goes.",
        source="ours; gaps and leftovers as reported by the projects",
        thresholds=(Threshold(name="keep", default=2, unit="checkpoints", env="CHAOS_GPU_KEEP"),),
        probes=("chaos_gpu.probes.job.keeps_enough",),
        catches={_SAVES: ("trainer-deletes-before-saving", "trainer-never-cleans")},
    ),
    Criterion(
        id="CKPT-07",
        layer=_JOB,
        statement="A training that is preempted saves and ends by itself before its grace period is over.",
        source="GPU platform verification, scheduling layer, grace period (D-SCHED-05)",
        thresholds=(),
        probes=("chaos_gpu.probes.job.saves_in_grace",),
        catches={_PREEMPTED: ("trainer-ignores-sigterm", "trainer-grace-too-short")},
    ),
)

JOB = Layer(
    criteria=_CRITERIA,
    blocks_recovery={},
    needs={_KILLED: ("trainer",), _SAVES: ("trainer",), _PREEMPTED: ("trainer",)},
)
