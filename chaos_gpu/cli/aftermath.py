"""How a run ended that left no journal: its runner was killed, so the cluster has to say."""

from typing import Any

from chaos_gpu.cluster.client import connect
from chaos_gpu.errors import ChaosGpuError
from chaos_gpu.faults.aftermath import await_closed, state_of
from chaos_gpu.faults.ledger import CLOSED
from chaos_gpu.faults.settings import Settings

INCONCLUSIVE, NOT_RECOVERED = 2, 3


def outcome_without_journal(run_id: str, configuration: dict[str, Any]) -> tuple[int, str]:
    """Wait for the run's ledger to close. Returns exit code and reason: 3 when something remains, else 2."""
    try:
        settings = Settings.read(configuration)
        entry = await_closed(connect(settings.context), run_id, settings)
    except ChaosGpuError as failure:
        return NOT_RECOVERED, f"no journal, and whether run {run_id} is undone is not known: {failure.reason}"
    if entry is None:
        return INCONCLUSIVE, f"no journal; run {run_id} changed nothing: it has no ledger"
    if entry.state == CLOSED:
        return INCONCLUSIVE, f"no journal; run {run_id} was undone by its {entry.records['recovery']['by']}"
    remains = "; ".join(entry.open_items) or f"it is still {state_of(entry)}"
    return NOT_RECOVERED, f"no journal; run {run_id}: {remains} (chaos-gpu recover {run_id})"
