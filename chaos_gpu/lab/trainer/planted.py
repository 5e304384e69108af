"""The planted defects of the training job: name, what it does differently, which criteria must notice. Plain data."""

COMPONENT = "trainer"

PLANTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("trainer-writes-in-place", "saves under the final name, and resumes from the newest name", ("CKPT-01",)),
    ("trainer-points-before-data", "writes the pointer first, and resumes from what it names", ("CKPT-01",)),
    ("trainer-resumes-torn", "takes a torn file for a checkpoint", ("CKPT-01",)),
    ("trainer-repeats-a-step", "does the saved step again", ("CKPT-02",)),
    ("trainer-restarts-at-zero", "begins anew after a restart", ("CKPT-02",)),
    ("trainer-skips", "leaves out the step after the saved one", ("CKPT-02",)),
    ("trainer-drops-model", "does not save the model", ("CKPT-03",)),
    ("trainer-drops-optimizer", "does not save the optimizer", ("CKPT-03",)),
    ("trainer-drops-scheduler", "does not save the learning rate schedule", ("CKPT-03",)),
    ("trainer-drops-rng", "does not save the state of its random numbers", ("CKPT-03",)),
    ("trainer-drops-data", "does not save its place in the data", ("CKPT-03",)),
    ("trainer-drops-scaler", "does not save the loss scale", ("CKPT-03",)),
    ("trainer-loss-jumps", "has a loss ten times as high after a resume", ("CKPT-04",)),
    ("trainer-resets-lr", "begins the learning rate schedule anew after a resume", ("CKPT-04",)),
    ("trainer-saves-slowly", "takes three times as long for every save after its second", ("CKPT-05",)),
    ("trainer-deletes-before-saving", "removes the old checkpoints before it saves a new one", ("CKPT-06",)),
    ("trainer-never-cleans", "leaves torn files where they are", ("CKPT-06",)),
    ("trainer-ignores-sigterm", "goes on when it is told to end", ("CKPT-07",)),
    ("trainer-grace-too-short", "has a grace period that is shorter than a save", ("CKPT-07",)),
)
