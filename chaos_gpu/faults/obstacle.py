"""Why something cannot be judged, and what to do about just that."""

from typing import NamedTuple


class Obstacle(NamedTuple):
    """What is in the way of a judgement: said before anything is injected, and then nothing is.

    Attributes:
        why: in one sentence.
        remedy: for that, and no other reason.
    """

    why: str
    remedy: str

    def __str__(self) -> str:
        return self.why
