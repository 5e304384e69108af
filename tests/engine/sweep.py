"""Kill a run at every one of its requests, one after the other, and print what became of each: `make sweep`.

Several labs at once; a lab that a kill left as it found it is used again. Exits 1 on any violation.
"""

import argparse
import json
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # behind the installed wheel: the checkout holds only parts of it

from tests.engine.kill_points import SUBJECTS, Outcome, Point, as_json, kill_at, open_site, points_of, record
from tests.engine.site import Json, Nursery, Site

Todo = queue.Queue[tuple[int, Point]]
Seen = queue.Queue[Outcome | BaseException]
MAY_STICK = {"detector-never-returns"}


class Sweeper:
    """Workers, each with a lab of its own, that share a list of points."""

    def __init__(self, root: Path, nursery: Nursery, experiment: Json, defect: str = "") -> None:
        self._root, self._nursery, self._experiment, self._defect = root, nursery, experiment, defect
        self._labs = 0
        self._lock = threading.Lock()

    def open(self, stack: ExitStack) -> Site:
        """Start a lab that ends with `stack`."""
        with self._lock:
            self._labs += 1
            root = self._root / f"lab-{self._labs}"
        return stack.enter_context(
            open_site(root, self._nursery, *(["--defect", self._defect] if self._defect else []))
        )

    def sweep(self, points: Sequence[Point], jobs: int, seen: Seen) -> None:
        """Kill a run at each point; outcomes come through `seen`, in no particular order."""
        todo: Todo = queue.Queue()
        for number, point in enumerate(points):
            todo.put((number, point))
        workers = [threading.Thread(target=self._work, args=(todo, seen), daemon=True) for _ in range(jobs)]
        for worker in workers:
            worker.start()

    def _work(self, todo: Todo, seen: Seen) -> None:
        try:
            while not todo.empty():
                with ExitStack() as stack:
                    self._use(self.open(stack), todo, seen)
        except BaseException as failure:  # noqa: BLE001 - the main thread raises it
            seen.put(failure)

    def _use(self, site: Site, todo: Todo, seen: Seen) -> None:
        """Work on one lab as long as it is clean."""
        while True:
            try:
                number, point = todo.get_nowait()
            except queue.Empty:
                return
            outcome = kill_at(site, self._experiment, point, f"kill-{number}", self._defect in MAY_STICK)
            seen.put(outcome)
            if outcome.verdict != "as before":
                return


def sweep(
    root: Path,
    subject: str,
    defect: str,
    jobs: int,
    sample: int = 0,
    seed: int = 0,
    among: Callable[[Point], bool] = lambda _: True,
) -> list[Outcome]:
    """Record a run of the subject, kill one at each of its points (or at a sample of them), and tell each outcome."""
    experiment, outcomes = SUBJECTS[subject](), []
    with Nursery() as nursery:
        sweeper = Sweeper(root, nursery, experiment, defect)
        with ExitStack() as stack:
            points = [point for point in points_of(record(sweeper.open(stack), experiment)) if among(point)]
        if sample:
            points = random.Random(seed).sample(points, min(sample, len(points)))
        seen: Seen = queue.Queue()
        sweeper.sweep(points, jobs, seen)
        for number in range(1, len(points) + 1):
            outcome = seen.get(timeout=600)
            if isinstance(outcome, BaseException):
                raise outcome
            outcomes.append(outcome)
            print(f"[{number}/{len(points)}] {row(outcome)}", flush=True)
    order = {str(point): number for number, point in enumerate(points)}
    return sorted(outcomes, key=lambda outcome: order[outcome.point])


def row(outcome: Outcome) -> str:
    """Say one outcome in a line."""
    what = "; ".join(outcome.violations or outcome.remains)
    times = f"{outcome.gone_s:5.1f} s  {outcome.closed_s:5.1f} s  {outcome.empty_s:5.1f} s"
    return f"{times}  {outcome.verdict:17} {outcome.point}{'  ' if what else ''}{what}"


def summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    """Say the whole sweep in a line."""
    bad = sum(bool(outcome.violations) for outcome in outcomes)
    gone, closed, empty = (max(times) for times in zip(*map(times_of, outcomes), strict=True))
    return (
        f"{len(outcomes)} points, {bad} violations; at the latest our changes were gone after {gone:.1f} s, the ledger"
        f" was closed after {closed:.1f} s, the reverter gone after {empty:.1f} s; the sweep took {seconds:.0f} s"
    )


def times_of(outcome: Outcome) -> tuple[float, float, float]:
    return outcome.gone_s, outcome.closed_s, outcome.empty_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subject", choices=SUBJECTS, default="fatal", help="the experiment (default: %(default)s)")
    parser.add_argument("--defect", default="", help="plant a defect in the lab's platform")
    parser.add_argument("--jobs", type=int, default=4, help="labs at once (default: %(default)s)")
    parser.add_argument("--sample", type=int, default=0, help="only so many points, chosen at random (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of that choice (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write the table to this file, too")
    chosen = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chaos-gpu-sweep-") as root:
        outcomes = sweep(Path(root), chosen.subject, chosen.defect, chosen.jobs, chosen.sample, chosen.seed)
    print("\nchanges  ledger   reverter\ngone     closed   gone     verdict           point")
    print("\n".join(map(row, outcomes)))
    said = summary(outcomes, time.monotonic() - began)
    print(said)
    if chosen.json:
        chosen.json.write_text(json.dumps({"summary": said, "points": list(map(as_json, outcomes))}, indent=1))
    return 1 if any(outcome.violations for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
