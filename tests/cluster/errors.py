"""What can go wrong while a cluster is brought up."""


class ClusterError(RuntimeError):
    """A step failed; the message says which, why, and shows the last log lines if a program failed."""
