"""Start a lab, find it, end it: what the commands do. Stdlib only, so that it starts at once."""

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chaos_gpu.lab.layout import Layout
from chaos_gpu.lab.sweep import MARK, carriers, sweep

Json = dict[str, Any]
STOP_S = 15.0


class LabError(Exception):
    """The lab could not be started; `remedy` says what to do."""

    def __init__(self, message: str, remedy: str = "") -> None:
        """Say what and what next."""
        super().__init__(message)
        self.remedy = remedy


def start(
    root: Path,
    *,
    defects: Sequence[str] = (),
    without: Sequence[str] = (),
    port: int = 0,
    cordon_s: float = 3.0,
    tied: bool = False,
    remove: bool = False,
) -> Json:
    """Start a lab and wait until it is ready.

    Args:
        root: its state directory; made, or that of an earlier lab.
        defects: names of planted defects.
        without: components to leave out.
        port: on loopback; 0 takes a free one.
        cordon_s: the cordon limit that slow defects overrun, in seconds.
        tied: end the lab when this process ends, even by SIGKILL.
        remove: remove the directory when the lab ends.

    Returns:
        What its lab.json holds: mark, guardian, server (process ids), url, pod_url, defects, without, started, ready_s.

    Raises:
        LabError: it runs already, the directory is something else, or the start failed.
    """
    layout = Layout(root.absolute())
    _check_directory(layout)
    options = [f"--dir={layout.root}", f"--port={port}", f"--cordon-s={cordon_s}", f"--begun={time.monotonic()}"]
    options += [f"--defect={name}" for name in defects] + [f"--without={name}" for name in without]
    options += [f"--with-parent={os.getpid()}"] if tied else []
    options += ["--remove"] if remove else []
    facts = _launch(layout, options)
    if "url" in facts:
        return facts
    error = str(facts.get("error", "the lab did not start"))
    again = f"chaos-gpu lab down --dir {layout.root}, or choose another --dir"
    raise LabError(error, again if "is running" in error else f"see {layout.server_log}")


def _launch(layout: Layout, options: Sequence[str]) -> Json:
    """Start the guardian, and return what it or its server says when the lab is ready, or not."""
    reader, writer = os.pipe()
    log = os.open(layout.server_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    mark = secrets.token_hex(12)
    subprocess.Popen(
        [sys.executable, "-P", "-m", "chaos_gpu.lab.guardian", f"--mark={mark}", f"--ready-fd={writer}", *options],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env={**os.environ, MARK: mark},
        start_new_session=True,
        pass_fds=[writer],
    )
    os.close(log)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        facts: Json = json.loads(answer.read() or b"{}")
    return facts


def _check_directory(layout: Layout) -> None:
    try:
        layout.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        foreign = not layout.lock.exists() and any(layout.root.iterdir())
    except OSError as error:
        raise LabError(f"no lab can be kept in {layout.root}: {error}", "choose another --dir") from error
    if foreign:
        raise LabError(f"{layout.root} holds something else than a lab", "choose an empty or new --dir")


def running(layout: Layout) -> Json | None:
    """Return the state of the lab that runs in this directory; None if none does."""
    facts = layout.read_state()
    if facts is None or facts["server"] not in carriers(MARK, facts["mark"]):
        return None
    return facts


def stop(root: Path) -> bool:
    """End the lab in this directory and everything it started; False if none was running."""
    facts = Layout(root.absolute()).read_state()
    if facts is None:
        return False
    alive = list(carriers(MARK, facts["mark"]))
    if facts["guardian"] in alive:
        with contextlib.suppress(ProcessLookupError):
            _end(facts["guardian"])
    sweep(MARK, facts["mark"])
    Layout(root.absolute()).state.unlink(missing_ok=True)
    return bool(alive)


def _end(guardian: int) -> None:
    """Ask the guardian to stop, and wait until it has."""
    handle = os.pidfd_open(guardian)
    try:
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        select.select([handle], [], [], STOP_S)
    finally:
        os.close(handle)
