"""What a criterion is: one promise of the platform, its limits, who judges it, and what it must catch."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict


class Threshold(BaseModel):
    """A number that a criterion compares with, and the environment variable that changes it."""

    model_config = ConfigDict(frozen=True)

    name: str
    default: float
    unit: str
    env: str


class Criterion(BaseModel):
    """One promise of the platform."""

    model_config = ConfigDict(frozen=True)

    id: str
    layer: str
    statement: str
    source: str
    thresholds: tuple[Threshold, ...]
    probes: tuple[str, ...]
    """Those that give a verdict on it, one for every time an experiment calls them."""
    catches: Mapping[str, tuple[str, ...]]
    """Experiment → planted defects with which it must fail this criterion."""

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments that judge it."""
        return tuple(self.catches)

    @property
    def defects(self) -> tuple[str, ...]:
        """The planted defects that it must catch."""
        return tuple(dict.fromkeys(defect for caught in self.catches.values() for defect in caught))

    def as_json(self) -> dict[str, Any]:
        """Return what `chaos-gpu criteria --json` prints."""
        return {
            "id": self.id,
            "layer": self.layer,
            "statement": self.statement,
            "source": self.source,
            "thresholds": [threshold.model_dump() for threshold in self.thresholds],
            "probes": list(self.probes),
            "experiments": list(self.experiments),
            "defects": list(self.defects),
        }


class Layer(NamedTuple):
    """The rows of one layer of the platform.

    Attributes:
        criteria: in the order of their ids.
        blocks_recovery: experiment → planted defects with which it must end as "not recovered".
        needs: experiment → components of the platform without which it can say nothing.
        uses: experiment → components that it also needs; that it says nothing without them is shown elsewhere.
        real_gpus: experiment → why only real GPUs can show it: no cell of the matrix, no lab.
    """

    criteria: tuple[Criterion, ...]
    blocks_recovery: Mapping[str, tuple[str, ...]]
    needs: Mapping[str, tuple[str, ...]]
    uses: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    real_gpus: Mapping[str, str] = MappingProxyType({})
