"""Whoever stops a run, and whenever: it ends in order, says what stopped it, judges nothing, and leaves nothing behind.

SIGNALS_SEED repeats the random instants.
"""

import asyncio
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.site import Ended, Json, Site, activity, experiment, inject, over
from tests.engine.traces import Leftovers, look
from tests.lab.conftest import ApiError
from tests.support.proxy import AFTER, Proxy, When, at, request, send_signal

TERM, INT, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
SETTLED_S = 4 + 4 + 2 + 30
"""Lease, reaction window, uncordon window and 30 s: by then the reverter has undone a run that nobody else undoes."""
NUMBERS = itertools.count(1)
REQUESTS = 75
"""About how many requests the experiment of these tests makes."""
SEED = int(os.environ.get("SIGNALS_SEED") or random.SystemRandom().randrange(10_000))


def kept() -> Json:
    return activity("probe", "xid-13-keeps", "chaos_gpu.probes.device", "node_kept", fault="xid-13")


def held(seconds: float) -> Json:
    return activity("action", "holding", "chaos_gpu.actions.run", "hold", seconds=seconds)


def judging(*more: Json) -> Json:
    """Make an experiment that injects Xid 13, judges it, does some more, and undoes it."""
    return experiment(inject(), kept(), *more, *over(), criteria=["DEV-06"])


@pytest.fixture
def proxy(site: Site, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(site.lab.kubeconfig, tmp_path / "kubeconfig") as proxy:
        yield proxy


class Stage:
    """One run through a proxy."""

    def __init__(self, site: Site, proxy: Proxy, made: Json, run: str) -> None:
        self.site, self.proxy, self.run, self._made = site, proxy, run, made
        self.ended: Ended

    def start(self) -> None:
        self.ended = self.site.start(self._made, KUBECONFIG=str(self.proxy.kubeconfig), CHAOS_GPU_RUN=self.run)

    @property
    def pid(self) -> int:
        return self.ended.process.pid

    def signal_at(self, when: When, number: signal.Signals, stage: str = "before") -> None:
        """Send the runner (alone) a signal when it makes a request."""
        self.proxy.on(when, send_signal(lambda: self.pid, number, group=False), stage=stage)

    def await_text(self, text: str) -> None:
        """Wait until the run has logged a text."""
        until(lambda: text in self.ended.process.text, f"{text!r} in the log")

    def await_state(self, state: str) -> None:
        """Wait until the run's ledger is in a state."""
        until(lambda: self.state() == state, f"ledger {state}")

    def state(self) -> str:
        try:
            return str(self.site.ledger(self.run)["state"])
        except ApiError:
            return ""

    def await_calm(self) -> Leftovers:
        """Wait until nothing of the run is left; the reverter Job ends by itself."""
        left = look(self.site, self.run, processes=True)
        end = time.monotonic() + SETTLED_S
        while (left.ours or left.reactions or left.state == "open") and time.monotonic() < end:
            time.sleep(0.1)
            left = look(self.site, self.run, processes=True)
        return left

    def check_ended_by(self, name: str) -> None:
        """See that the run has written its journal, names the signal, passes nothing and left nothing."""
        assert self.ended.process.wait() >= 0, f"killed by the signal:\n{self.ended.text}"
        assert self.ended.guard["signal"] == name
        assert self.ended.guard["recovery"]["open"] == []
        assert self.ended.result.exit_code == 2
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        left = self.await_calm()
        assert (left.ours, left.reactions, left.state in ("closed", "")) == ([], [], True)


def until(holds: Callable[[], bool], what: str, limit_s: float = SETTLED_S) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)


@pytest.fixture
def stage(site: Site, proxy: Proxy) -> Callable[[Json], Stage]:
    return lambda made: Stage(site, proxy, made, f"signal-{next(NUMBERS)}")


def closes(exchange: object) -> bool:
    """Whether a request closes the ledger."""
    return getattr(exchange, "method", "") == "PATCH" and b'"closed"' in getattr(exchange, "body", b"")


INSTANTS: dict[str, tuple[signal.Signals, When, str]] = {
    "arming": (TERM, request("POST", "subjectaccessreviews$", nth=20), "before"),
    "securing": (HUP, request("POST", "/leases$"), "before"),
    "lease taken": (INT, request("POST", "/leases$"), AFTER),
    "ledger opened": (TERM, request("POST", "/configmaps$"), AFTER),
    "marked": (INT, request("PATCH", "/nodes/"), AFTER),
    "injecting": (TERM, request("POST", "/namespaces/chaos-gpu/pods$"), AFTER),
    "landed": (HUP, request("GET", "/exec$"), AFTER),
    "judging": (INT, request("PATCH", "/leases/", nth=2), AFTER),
    "reverting": (TERM, request("DELETE", "/pods/"), "before"),
    "settling": (HUP, request("GET", "/nodes$", nth=4, stream=False), AFTER),
    "closing": (TERM, closes, "before"),
    "leaving": (INT, request("DELETE", "/leases/"), AFTER),
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_signal_at_any_stage_of_a_run(instant: str, stage: Callable[[Json], Stage]) -> None:
    number, when, where = INSTANTS[instant]
    play = stage(judging())
    play.signal_at(when, number, where)
    play.start()
    play.check_ended_by(number.name)


@pytest.mark.parametrize("turn", range(4))
def test_a_signal_at_a_random_request(turn: int, stage: Callable[[Json], Stage]) -> None:
    chance = random.Random(f"{SEED}/{turn}")
    ordinal, number, where = chance.randrange(1, REQUESTS), chance.choice([TERM, INT, HUP]), chance.choice([AFTER, ""])
    print(f"SIGNALS_SEED={SEED}: {number.name} {where or 'before'} request {ordinal}")
    play = stage(judging())
    play.signal_at(at(ordinal), number, where or "before")
    play.start()
    play.check_ended_by(number.name)


@pytest.mark.parametrize("number", [TERM, INT, HUP])
def test_a_signal_ends_a_hold(number: signal.Signals, stage: Callable[[Json], Stage]) -> None:
    play = stage(judging(held(600)))
    play.start()
    play.await_text("Action: holding")
    play.ended.process.kill(number)
    play.check_ended_by(number.name)


def test_a_second_signal_does_not_stop_the_undoing(stage: Callable[[Json], Stage]) -> None:
    play = stage(judging(held(600)))
    play.signal_at(request("DELETE", "/pods/"), HUP)
    play.signal_at(request("PATCH", "/nodes/", nth=2), TERM, AFTER)
    play.start()
    play.await_text("Action: holding")
    play.ended.process.kill(INT)
    play.check_ended_by("SIGINT")
    assert play.ended.text.count("noted, the undo goes on") == 2


def test_abort_ends_a_hold(stage: Callable[[Json], Stage], site: Site) -> None:
    play = stage(judging(held(600)))
    play.start()
    play.await_text("Action: holding")
    code, text = site.cli("abort", play.run)
    assert code == 0, text
    play.check_ended_by("abort")


def test_chaos_gpu_run_relays_a_signal_and_says_inconclusive(site: Site, proxy: Proxy, tmp_path: Path) -> None:
    place = site.place()
    (place / "experiment.json").write_text(json.dumps(judging(held(600))))
    env = site.env(KUBECONFIG=str(proxy.kubeconfig))
    process = site.nursery.start(["chaos-gpu", "run", "experiment.json", "--run-dir", "out"], env, place)
    proxy.wait_for(request("PATCH", "/leases/", nth=3))
    process.kill(TERM)
    assert process.wait() == 2, process.text
    assert "SIGTERM" in process.text
    until(lambda: not look(site, "", processes=True).ours, "nothing left")


# --- the runner is not killed, but out of the game -------------------------------------------------------------------


@contextmanager
def asleep(play: Stage) -> Iterator[None]:
    """Stop the runner (a closed laptop) until its reverter has undone it all; then let it go on."""
    os.kill(play.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(play.pid, signal.SIGCONT)


def test_a_runner_that_slept_through_its_lease_acts_no_more(stage: Callable[[Json], Stage], site: Site) -> None:
    play = stage(judging(held(600)))
    play.start()
    play.await_text("Action: holding")
    with asleep(play):
        play.await_state("closed")
        asked = len(site.audit())
    play.ended.process.wait()
    lines = (line for line in site.audit()[asked:] if line["userAgent"] == "chaos-gpu" and line["code"] < 400)
    changes = {(line["verb"], line["resource"]) for line in lines}
    assert changes <= {("delete", "jobs")}, "all that it may still do is send its reverter home"
    assert play.ended.guard["signal"] == "the loss of its Lease"
    assert play.ended.result.exit_code == 2
    assert play.ended.guard["recovery"]["open"] == []
    play.check_nothing_left()


@pytest.mark.parametrize("path", ["/namespaces/chaos-gpu/pods$", "/nodes/"], ids=["injector", "mark"])
def test_a_request_that_was_on_its_way_when_the_runner_fell_asleep(
    path: str, stage: Callable[[Json], Stage], site: Site
) -> None:
    play = stage(judging())

    async def sleep_and_deliver(_: object) -> None:
        """Stop the runner, hold its request back until the reverter is done, deliver it, wake the runner up."""
        os.kill(play.pid, signal.SIGSTOP)
        end = time.monotonic() + SETTLED_S
        while await asyncio.to_thread(play.state) != "closed" and time.monotonic() < end:
            await asyncio.sleep(0.1)

    async def wake(_: object) -> None:
        os.kill(play.pid, signal.SIGCONT)

    late = request("POST" if "pods" in path else "PATCH", path, nth=1)
    play.proxy.on(late, sleep_and_deliver)
    play.proxy.on(late, wake, stage=AFTER)
    play.start()
    assert play.ended.process.wait() >= 0
    assert play.ended.result.exit_code == 2
    play.check_nothing_left()
    kernel_logs = [(site.lab.root / "nodes" / f"gpu-node-{n}" / "kmsg").read_text() for n in range(4)]
    assert not any(play.ended.guard["plans"][0]["facts"]["marker"] in text for text in kernel_logs)


def test_a_runner_that_is_cut_off_judges_nothing(stage: Callable[[Json], Stage]) -> None:
    play = stage({**(made := judging(held(600))), "configuration": {**made["configuration"], "settle_s": 1}})
    play.start()
    play.await_text("Action: holding")
    play.proxy.cut_off()
    assert play.ended.process.wait(180) >= 0
    assert play.ended.result.exit_code == 3
    assert "is not known" in play.ended.guard["recovery"]["open"][0]
    play.check_nothing_left()


# --- the reverter has a hard time ------------------------------------------------------------------------------------


def reverter_pid(site: Site) -> int:
    """Return the process of the reverter pod."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command, environ = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if b"payload.py" in command and site.lab.facts["mark"].encode() in environ:
                pods = {each["metadata"]["uid"]: each["metadata"]["name"] for each in site.items("api/v1/pods")}
                if any(uid.encode() in environ for uid, name in pods.items() if "reverter" in name):
                    return int(entry.name)
    raise AssertionError("no reverter runs")


def killed_in_hold(play: Stage) -> None:
    play.start()
    play.await_text("Action: holding")
    play.ended.process.kill(signal.SIGKILL)


def test_a_reverter_that_dies_at_work_is_followed_by_another(stage: Callable[[Json], Stage], site: Site) -> None:
    play = stage(judging(held(600)))
    killed_in_hold(play)

    def taken_over() -> bool:
        lease = site.lab.get("apis/coordination.k8s.io/v1/namespaces/chaos-gpu/leases/chaos-gpu-run")
        return str(lease["spec"]["holderIdentity"]).endswith(".reverter")

    until(taken_over, "the reverter takes over")
    os.kill(reverter_pid(site), signal.SIGKILL)
    play.check_nothing_left()
    assert site.ledger(play.run)["recovery"]["by"] == "reverter"


def test_a_reverter_rides_out_an_api_server_that_is_away(stage: Callable[[Json], Stage], site: Site) -> None:
    play = stage(judging(held(600)))
    killed_in_hold(play)
    server = site.lab.facts["server"]
    os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(12)  # longer than the reverter's limit of 10 s for one call
    finally:
        os.kill(server, signal.SIGCONT)
    play.check_nothing_left()
    assert site.ledger(play.run)["recovery"]["by"] == "reverter"
