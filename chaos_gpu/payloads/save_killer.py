"""Kill a training in the middle of a save, prove where it was, and report every save of its store until told to go.

Spec (JSON):
    subject    value of CHAOS_GPU_TRAINING in the environment of the training to kill; the directory that it saves to is
               in its CHAOS_GPU_STORE, its pod's name in CHAOS_GPU_POD
    namespace  of that pod
    references the same of each training that is only watched; how it is called in reports is what follows its last dot
    phase      data: `fraction` of the bytes of the save before (or `bytes`, or `files` of this one) are there
               sync: all data are there, names or the marker are not; commit: all bytes are there, the last name is not
               pointer: all names are there, the pointer is the old one; retention: then an old file has been removed
               step: between two saves
    means      freeze: stop all processes, look, kill them; init: the same, killing the first alone (its PID namespace
               goes with it); rank: the same, killing one rank's process alone; delete, force, evict: by the API server
    grace_s    how long a pod deleted by the API may take, seconds
    record     how far from there counts as there, bytes; 0 for one write of the save before
    attempts, wait_s, deadline_s     how often, how long to try; when to leave in any case

A try counts only if the frozen store shows an uncommitted save at the place asked for, give or take one write. If not,
all processes go on and the next save is waited for. Afterwards what still writes (an asynchronous writer of another
process tree) is waited for: it may commit. What is stopped goes on, whatever keeps this from killing it.

On SIGTERM this leaves; a killed process has no undo. Before it leaves, the directories that the trainings saved to are
removed: those that bear the run's own names, and where nobody saves any more. When it found nothing to kill, it waits
until it is told to go or its trainings have ended.
"""

import json
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from chaos_gpu.payloads.aim import Aim
from chaos_gpu.payloads.events import say
from chaos_gpu.payloads.eviction import BY_API, remove_pod
from chaos_gpu.payloads.followed import Followed, look_into
from chaos_gpu.payloads.freezer import (
    ENDED,
    MARK,
    POD,
    Freezer,
    carriers_of,
    environment_of,
    hurry,
    process_state,
    rank_of,
    writers,
)
from chaos_gpu.payloads.phases import has_come, has_gone
from chaos_gpu.payloads.store_watch import Learned, Save, StoreWatch

IDLE_S, SHARE, SPIN_S = 0.005, 0.01, 0.1
REST_S, BETWEEN_S, TELL_S, GONE_CHECK_S = 15.0, 0.5, 0.5, 2.0
OVER = 4
"""So many looks in a row without a process of a training: it is over, not only started again."""
CALM_S = 0.5
"""In a longer save no place in its data is passed between two looks: who looked without a pause would slow it down."""
STALLED = 5
"""So many times as long as the quickest look: then the writer may have stood still as well, and another look tells."""
MEMORY_BYTES = 1536 << 20
"""Less than the pod may have: a file that would take more is not read, and this lives to let the training go on."""
NOTE = "SIGKILL loses nothing that was written: this tests the order of the writes, not their durability"


class Hunt:
    """The tries, up to the one that lands."""

    def __init__(
        self, spec: Dict[str, Any], subject: Followed, others: List[Followed], told_to_go: Sequence[int] = ()
    ) -> None:
        """Set the limits; once `told_to_go` holds a signal, no further try is made."""
        self.spec, self.subject, self.others, self.told_to_go = spec, subject, others, told_to_go
        self.misses: List[Dict[str, Any]] = []
        self.tried: Optional[Save] = None
        self.met: Optional[Save] = None
        self.freezer: Optional[Freezer] = None
        self.aim: Optional[Aim] = None
        self.looked_s = self.strike_s = self.late_s = 0.0
        self.quick_s = float("inf")
        self.told_s = time.monotonic()

    def run(self) -> Optional[Dict[str, Any]]:
        """Return the evidence of the try that landed; None when the saves or the time ran out."""
        end = time.monotonic() + self.spec["wait_s"]
        hurry(True)
        seen_s, gone = time.monotonic(), 0
        while time.monotonic() < end and len(self.misses) < self.spec["attempts"] and not self.told_to_go:
            if not self.subject.attach():
                self._idle(0.02)
                continue
            self.looked_s = time.monotonic()
            watch, save = self.subject.watch, self.subject.look()
            assert watch is not None  # noqa: S101 - attached
            if self._should_find(watch, save, time.monotonic() - seen_s):
                seen_s, self.met = time.monotonic(), save
                self.freezer = Freezer(lambda: carriers_of(MARK, self.subject.mark))
                self.strike_s = min(self.freezer.rehearse() for _ in range(3))
                gone = 0 if self.freezer.pids else gone + 1
                if gone > 1:  # not only between two starts
                    break
            if self.freezer and (save is None or save is not self.tried) and self._is_time(watch, save):
                self.tried = save
                evidence = self._try(watch, save)
                if evidence:
                    return evidence
            self._pause(watch, save)
        hurry(False)
        return None

    def _should_find(self, watch: StoreWatch, save: Optional[Save], since_s: float) -> bool:
        """Whether to look for the processes anew: once a save, as it begins, or at its end if that is short."""
        if save is None:
            return self.freezer is None or since_s > GONE_CHECK_S
        if save is self.met or watch.learned is None:
            return False
        return watch.learned.duration_s > 2 * SPIN_S or bool(watch.committed(save))

    def reason(self) -> str:
        """Say why no try landed."""
        if self.told_to_go:
            return "told to go before a save was caught"
        if not self.subject.watch:
            return f"no process of the training came, or its directory, within {self.spec['wait_s']:g} s"
        if not self.subject.watch.learned:
            return f"no save was seen to its end within {self.spec['wait_s']:g} s"
        if not carriers_of(MARK, self.subject.mark):
            return (
                f"the training had ended; {len(self.misses)} of its saves were caught at another place than asked for"
            )
        last = self.misses[-1]["why"] if self.misses else "no save came to that place"
        return f"the window was missed {len(self.misses)} times; last: {last}"

    def _pause(self, watch: StoreWatch, save: Optional[Save]) -> None:
        """Look often enough: every hundredth of a save's time, and without a pause where the place may be near."""
        usual_s = watch.learned.duration_s if watch.learned else 1.0
        if save is None or save is self.tried or (usual_s > SPIN_S and self._is_past(watch, save)):
            self._idle(min(IDLE_S, max(0.0001, usual_s * SHARE)))
        elif self._rest_s(watch, save):
            self._look_aside()
            time.sleep(self._rest_s(watch, save))

    def _is_past(self, watch: StoreWatch, save: Save) -> bool:
        """Whether nothing more is to come of a save: what it removes, it does at once."""
        rests = self.spec["phase"] != "retention" or time.monotonic_ns() - save.changed_ns > SPIN_S * 1e9
        return bool(watch.committed(save)) and rests

    def _rest_s(self, watch: StoreWatch, save: Save) -> float:
        """Return the pause between two looks at a save that is going on."""
        if watch.learned is None:  # the next one is known by this, and may be as short
            return SHARE * min(1.0, (save.changed_ns - save.begun_ns) / 1e9)
        usual_s, left_s = watch.learned.duration_s, self._aim(watch.learned).left_s(save.written)
        if usual_s <= SPIN_S:
            return 0.0
        calm = self.spec["phase"] == "data" and usual_s > CALM_S
        return usual_s * SHARE / 2 if calm else max(0.0, min(usual_s * SHARE / 2, left_s - SPIN_S))

    def _idle(self, seconds: float) -> None:
        self._look_aside()
        for each in [self.subject, *self.others]:
            each.report()
        if time.monotonic() - self.told_s > 10:
            self.told_s = time.monotonic()
            say("holding", misses=len(self.misses))
        time.sleep(seconds)

    def _look_aside(self) -> None:
        """See what the others do; what they have saved is read when there is time for it."""
        for each in self.others:
            if each.attach():
                each.look()

    def _is_time(self, watch: StoreWatch, save: Optional[Save]) -> bool:
        if self.spec["phase"] != "data":
            return has_come(self.spec["phase"], watch, save)
        if save is None or watch.learned is None or watch.committed(save):
            return False
        if self.spec.get("files"):
            return len(save.tracks) >= int(self.spec["files"])
        pace = save.pace(int(self.looked_s * 1e9))
        return self._aim(watch.learned).due(save.written, pace, self._ahead_s(watch, save))

    def _ahead_s(self, watch: StoreWatch, save: Save) -> float:
        """Return from the last look to a strike now, and half the way on to what a strike after the next would take."""
        look_s = time.monotonic() - self.looked_s
        self.quick_s = min(self.quick_s, look_s)
        if look_s > STALLED * self.quick_s:
            return 0.0
        return look_s + self.strike_s + self.late_s + (look_s + self._rest_s(watch, save)) / 2

    def _aim(self, learned: Learned) -> Aim:
        if self.aim is None or self.aim.learned is not learned:
            self.aim = Aim(self.spec, learned)
        return self.aim

    def _try(self, watch: StoreWatch, save: Optional[Save]) -> Optional[Dict[str, Any]]:
        """Freeze, look, and kill or let go."""
        freezer = self.freezer
        assert freezer is not None  # noqa: S101 - set before
        try:
            return self._try_frozen(watch, save, freezer)
        except BaseException:  # raised again: whatever ends the try, nobody stays frozen
            with suppress(OSError):
                freezer.thaw()
            raise

    def _try_frozen(self, watch: StoreWatch, save: Optional[Save], freezer: Freezer) -> Optional[Dict[str, Any]]:
        first_ns = time.monotonic_ns()
        if not freezer.freeze():
            self.misses.append({"why": f"the processes did not stop: {freezer.means}"})
            return None
        frozen_ns = time.monotonic_ns()
        hurry(False)
        watch.look(frozen_ns)
        why = self._why_not(watch, save)
        if why:
            freezer.thaw()
            hurry(True)
            self.misses.append({"why": why, **self._place(watch, save)})
            if save and self.aim:
                self.late_s += self.aim.late_s(save.written)
            return None
        evidence = {
            **self._place(watch, save),
            "misses": self.misses,
            "frozen_by": freezer.means,
            "frozen_ms": round((frozen_ns - first_ns) / 1e6, 3),
            "pids": freezer.pids[:50],
            "pod": environment_of(freezer.pids[0]).get(POD, ""),
            "wall_s": time.time(),
            "store": look_into(watch.root),
        }
        if self.told_to_go:
            freezer.thaw()
            return None
        ended = self._end(watch, freezer, first_ns)
        known = bool(ended.get("dead"))  # told by the API to end, it goes on until its grace is over
        return {**evidence, **ended, "uncommitted": evidence["uncommitted"] and known}

    def _why_not(self, watch: StoreWatch, save: Optional[Save]) -> str:
        gone = has_gone(self.spec["phase"], watch, save)
        if gone or self.spec["phase"] != "data" or save is None or watch.learned is None:
            return gone
        if self.spec.get("files"):
            count = len(save.tracks)
            return "" if count == int(self.spec["files"]) else f"{count} files were there"
        return self._aim(watch.learned).missed(save.written)

    def _place(self, watch: StoreWatch, save: Optional[Save]) -> Dict[str, Any]:
        learned = watch.learned
        assert learned is not None  # noqa: S101 - nothing is tried before
        written = save.written if save else 0
        return {
            "phase": self.spec["phase"],
            "asked": {key: self.spec[key] for key in ("fraction", "bytes", "files") if self.spec.get(key)},
            "fraction": round(written / max(1, learned.size), 4),
            "written_bytes": written,
            "expected_bytes": learned.size,
            "record_bytes": self._aim(learned).record,
            "files": sorted(track.name for track in save.tracks)[:50] if save else [],
            "since_first_byte_s": round((time.monotonic_ns() - save.begun_ns) / 1e9, 6) if save else None,
            "uncommitted": save is not None and not watch.committed(save),
        }

    def _end(self, watch: StoreWatch, freezer: Freezer, first_ns: int) -> Dict[str, Any]:
        means = self.spec["means"]
        if means in BY_API:
            pod = environment_of(freezer.pids[0]).get(POD, "")
            freezer.thaw()
            asked_ns = time.monotonic_ns()
            said = remove_pod(self.spec["namespace"], pod, means)
            return {
                "means": means,
                "between_ns": [asked_ns, time.monotonic_ns()],
                "text": said,
                "grace_s": self.spec["grace_s"],
                "note": NOTE,
            }
        only = {"init": freezer.pids[:1], "rank": [rank_of(freezer.pids)]}.get(means)
        dead = freezer.kill(only)
        dead_ns = time.monotonic_ns()
        watch.cut()
        orphans = self._await_writers(watch.root, freezer.pids, alone=only is not None)
        return {
            "means": means,
            "between_ns": [first_ns, dead_ns],
            "text": f"killed ({means}, {freezer.means}), all ended: {dead}",
            "dead": dead,
            "orphans": orphans,
            **({"store": look_into(watch.root)} if orphans or only else {}),
            "note": NOTE,
        }

    def _await_writers(self, root: str, killed: List[int], alone: bool) -> List[int]:
        """Wait until nobody but a restarted training has a file of the store open. Returns who had, after the kill.

        A process that was not killed may be between two files, as before a marker: then none is open for a moment.
        """
        busy_s = time.monotonic()
        end_s, orphans = busy_s + REST_S, set()
        while time.monotonic() < end_s:
            again = set(carriers_of(MARK, self.subject.mark)) - set(killed)
            found = {pid for pid in writers(Path(root)) if pid not in again and process_state(pid) not in ENDED}
            orphans |= found
            self._look_aside()
            if found:
                busy_s = time.monotonic()
            elif time.monotonic() - busy_s >= (BETWEEN_S if alone or orphans else 0.0):
                break
            time.sleep(0.02)
        return sorted(orphans)


def follow(trainings: List[Followed], ended: Callable[[], bool], told_to_go: Sequence[int], deadline_s: float) -> str:
    """Report saves until told to go; also when the killed processes have ended. Returns why it ends."""
    end, alive, told_s = time.monotonic() + deadline_s, True, 0.0
    while time.monotonic() < end and not told_to_go:
        over = alive and ended()  # before the look: it shows all they did
        for each in trainings:
            each.attach()
            each.look()
            each.report()
        if time.monotonic() - told_s > TELL_S:
            told_s = time.monotonic()
            say("holding", saving=[each.name for each in trainings if each.watch and each.watch.current])
        if over:
            alive = False
            say("ended", ended_ns=time.monotonic_ns(), store=look_into(trainings[0].watch.root))  # type: ignore[union-attr]
        time.sleep(IDLE_S)
    return "told to" if told_to_go else "deadline"


def give_up(reason: str, hunt: Hunt, told_to_go: Sequence[int]) -> int:
    """Say why nothing was hit; go when told to, or when the trainings are over."""
    say("failed", reason=reason, misses=hunt.misses[-20:])
    trainings = [hunt.subject, *hunt.others]
    end, idle = time.monotonic() + hunt.spec["deadline_s"], 0
    while time.monotonic() < end and idle < OVER and not told_to_go:
        time.sleep(TELL_S)
        idle = 0 if any(carriers_of(MARK, each.mark) for each in trainings) else idle + 1  # not only between two starts
    clear_up(trainings)
    return 3


def clear_up(trainings: List[Followed]) -> None:
    """Remove what the trainings have saved, and say what stays."""
    left = {each.name: each.clear() for each in trainings}
    say("cleared", left={name: why for name, why in left.items() if why})


def leave_when_told(told_to_go: List[int]) -> None:
    """Note a SIGTERM, and cut short what is being read: a training may stand still meanwhile."""

    def leave(number: int, _: Any) -> None:
        told_to_go.append(number)
        signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, signal.SIG_IGN)  # only a reading listens
    signal.signal(signal.SIGTERM, leave)


def limit_memory() -> None:
    """Let what a file makes its reader ask for beyond the limit fail here, before it ends this process."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY_BYTES if most == resource.RLIM_INFINITY else min(MEMORY_BYTES, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec."""
    told_to_go: List[int] = []
    leave_when_told(told_to_go)
    limit_memory()
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    subject = Followed("subject", spec["subject"])
    others = [Followed(mark.rpartition(".")[2], mark) for mark in spec.get("references") or ()]
    say("started", subject=spec["subject"])
    hunt = Hunt(spec, subject, others, told_to_go)
    try:
        evidence = hunt.run()
    except (OSError, ValueError) as error:
        return give_up(str(error), hunt, told_to_go)
    if evidence is None or hunt.freezer is None:
        return give_up(hunt.reason(), hunt, told_to_go)
    say("landed", evidence=evidence)
    why = follow([subject, *others], hunt.freezer.ended, told_to_go, spec["deadline_s"])
    clear_up([subject, *others])
    say("reverted", undo="none: a killed process stays killed", why=why)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
