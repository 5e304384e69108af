"""A watch that is silent must show that it is alive: only what it has caught up with counts as watched."""

import threading
from typing import Any

from chaos_gpu.cluster.watch import Recorder

Json = dict[str, Any]


class Server:
    """Lists what it has; its watch passes on events only while it is not stuck."""

    def __init__(self) -> None:
        self.version = "1"
        self.stuck = threading.Event()
        self.changed = threading.Event()

    def object(self) -> Json:
        return {"metadata": {"name": "n", "uid": "u", "resourceVersion": self.version}}

    def get(self, path: str, query: Json) -> Json:
        return {"metadata": {"resourceVersion": self.version}, "items": [self.object()]}

    def items(self, path: str, labels: str = "") -> list[Json]:
        return [self.object()]

    def watch(self, path: str, query: Json, read_s: float, opened: Any) -> Any:
        opened()
        while True:
            self.changed.wait()
            self.changed.clear()
            if not self.stuck.is_set():
                yield {"type": "MODIFIED", "object": self.object()}

    def change(self, version: str) -> None:
        self.version = version
        self.changed.set()


def recorder() -> tuple[Server, Recorder]:
    server = Server()
    found = Recorder(server, "/api/v1/nodes", "")  # type: ignore[arg-type]
    found.start()
    return server, found


def test_a_quiet_watch_on_a_quiet_fleet_is_fine() -> None:
    _, found = recorder()
    assert found.confirm(5)
    assert not found.gaps


def test_a_change_that_arrives_is_fine() -> None:
    server, found = recorder()
    server.change("2")
    assert found.confirm(30)
    assert not found.gaps


def test_a_watch_that_does_not_show_what_the_list_shows_leaves_a_gap_since_it_was_last_known_alive() -> None:
    server, found = recorder()
    assert found.confirm(5)
    server.stuck.set()
    server.change("2")
    assert not found.confirm(0.2)
    (gap,) = found.gaps
    server.stuck.clear()
    server.change("3")
    assert found.confirm(30)
    assert found.gaps == [gap]


def test_whatever_ends_the_watching_thread_leaves_a_gap_that_lasts() -> None:
    """An object without a resourceVersion is nothing that the recorder can go on from."""
    server, found = recorder()
    threading.excepthook, hook = (lambda _: None), threading.excepthook
    try:
        broken = {"metadata": {"name": "n", "uid": "u"}}
        server.object = lambda: broken  # type: ignore[method-assign]
        server.changed.set()
        assert found.wait_for(lambda _: found._lost_at is not None, float("inf"), 0.05)
    finally:
        threading.excepthook = hook
