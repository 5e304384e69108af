"""Kill a run at every one of its requests, one after the other, and print what became of each: `make sweep`.

Several labs at once; a lab that a kill left as it found it is used again. Exits 1 on any violation.
"""

import argparse
import contextlib
import itertools
import json
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[2]))  # behind the installed wheel: the checkout holds only parts of it

from tests.engine.kill_points import SUBJECTS, Outcome, Point, as_json, kill_at, open_site, points_of, record
from tests.engine.site import Json, Nursery, Site

MAY_STICK = {"detector-never-returns"}
TRIES = 4


class Sweeper:
    """Workers, each with a lab of its own, that share a list of points. Leaving it ends them and their labs."""

    def __init__(self, root: Path, nursery: Nursery, experiment: Json, defect: str = "") -> None:
        self._root, self._nursery, self._experiment, self._defect = root, nursery, experiment, defect
        self._todo: queue.Queue[tuple[int, int, Point]] = queue.Queue()
        self._workers: list[threading.Thread] = []
        self._labs = itertools.count(1)
        self.seen: queue.Queue[Outcome | BaseException] = queue.Queue()
        """Outcomes as they come, and what went wrong in a worker."""

    def record(self) -> list[Point]:
        """Return the kill points of a run on a healthy lab."""
        with open_site(self._root / "healthy", self._nursery) as site:
            return points_of(record(site, self._experiment))

    def start(self, points: Sequence[Point], jobs: int) -> None:
        """Kill a run at each point."""
        for number, point in enumerate(points):
            self._todo.put((number, TRIES, point))
        self._workers = [threading.Thread(target=self._work) for _ in range(jobs)]
        for worker in self._workers:
            worker.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._todo.get_nowait()
        for worker in self._workers:
            worker.join()

    def _work(self) -> None:
        options = ["--defect", self._defect] if self._defect else []
        try:
            while not self._todo.empty():
                with open_site(self._root / f"lab-{next(self._labs)}", self._nursery, *options) as site:
                    self._use(site)
        except BaseException as failure:  # noqa: BLE001 - the main thread raises it
            self.seen.put(failure)

    def _use(self, site: Site) -> None:
        """Work on one lab as long as it is clean; a run that did not come to its point may have left anything."""
        while True:
            try:
                number, left, point = self._todo.get_nowait()
            except queue.Empty:
                return
            run = f"kill-{number}-{TRIES - left}"
            outcome = kill_at(site, self._experiment, point, run, self._defect in MAY_STICK)
            if outcome is None and left > 1:
                self._todo.put((number, left - 1, point))
                return
            missed = Outcome(str(point), violations=[f"{TRIES} runs ended without coming to this point"])
            self.seen.put(outcome or missed)
            if outcome is None or outcome.verdict != "as before":
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
    outcomes: list[Outcome] = []
    with Nursery() as nursery, Sweeper(root, nursery, SUBJECTS[subject](), defect) as sweeper:
        points = list(filter(among, sweeper.record()))
        if sample:
            points = random.Random(seed).sample(points, min(sample, len(points)))
        sweeper.start(points, jobs)
        for number in range(1, len(points) + 1):
            outcome = sweeper.seen.get(timeout=600)
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
