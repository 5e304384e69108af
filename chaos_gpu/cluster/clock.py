"""Compare the runner's clocks with those of nodes and the API server, and say how well we know the difference."""

import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from chaos_gpu.cluster.client import Api
from chaos_gpu.cluster.exec import Exec
from chaos_gpu.errors import ApiUnavailable

ROUNDS = 8
_ECHO = "import sys, time\nfor line in sys.stdin: print(time.monotonic_ns(), flush=True)"
ECHO_COMMAND: Sequence[str] = ("python3", "-I", "-S", "-c", _ECHO)


class ClockOffset(NamedTuple):
    """Node's monotonic clock minus the runner's, in seconds, and the half-width of what the comparison leaves open."""

    offset_s: float
    error_s: float

    def on_runner(self, node_ns: float) -> float:
        """Put a reading of the node's monotonic clock (ns) on the runner's (s)."""
        return node_ns / 1e9 - self.offset_s


def compare_clocks(api: Api, namespace: str, pod: str, container: str = "", rounds: int = ROUNDS) -> ClockOffset:
    """Ask a pod on the node for its clock several times; the fastest round trip tells most.

    The node read its clock somewhere inside the round trip, so the error is half of that: no assumption is made
    about which way was the faster one.
    """
    with Exec(api, namespace, pod, ECHO_COMMAND, container=container) as session:
        return min((_round_trip(session) for _ in range(rounds)), key=lambda found: found.error_s)


def _round_trip(session: Exec) -> ClockOffset:
    before = time.monotonic()
    session.send_line()
    node_s = int(session.read_line()) / 1e9
    after = time.monotonic()
    return ClockOffset(node_s - (before + after) / 2, (after - before) / 2)


def compare_with_server(api: Api) -> ClockOffset:
    """Compare our time of day with the API server's, by the `Date` of an answer, which is cut to whole seconds.

    Raises: ApiUnavailable when it gives none.
    """
    before = time.time()
    said = api.date()
    after = time.time()
    try:
        server_s = parsedate_to_datetime(said).timestamp()
    except ValueError:
        raise ApiUnavailable("the API server does not say what time it is") from None
    return ClockOffset(server_s + 0.5 - (before + after) / 2, 0.5 + (after - before) / 2)
