"""Put one sample into the node's DCGM engine, prove that it is there, keep it there, and put the old value back.

Spec (JSON):
    mode       "inject", or "read": run commands of `dcgmi`, and fetch a page, only
  of inject:
    gpu        {"index": n} or {"uuid": "GPU-…"} or {"pci": "dddd:bb:dd"}: must be a GPU of this node
    field      DCGM's number of the field
    value      what to inject, a number
    step       added at each renewal: a rule on the change of a counter needs one that grows
    baseline   what to put back where the engine shows nothing of the field; null: then nothing is injected
    systems    letters for `dcgmi health -s`, set if nobody has set any, and taken back in the end
    refuse     {"GPU-…": "reason"}: GPUs that may not be used now
    deadline_s end after so many seconds in any case
    sticky     what stays until the engine starts anew, in words, or ""
  of read:
    commands   {name: [arguments of dcgmi]}
    url        of an exporter's metrics, or ""
    limit_s    for each of them

An engine lives in another container: its `dcgmi` is run in the mount and network namespace of nv-hostengine, found
among the node's processes. Environment (set where a node is not a real one): DCGMI_PATH, the program to run instead.
"""

import json
import os
import re
import select
import subprocess
import sys
import time
import urllib.parse
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from chaos_gpu.payloads.events import say
from chaos_gpu.payloads.node import choose, gpus_of_node, when_told_to_go

OFFSET_S = 1
RESTORED_OFFSET_S = 2
"""Later than any injected sample is dated: of two samples the one with the later date stands."""
COMMAND_S = 30.0
MOST_BYTES = 1 << 20
HEALTH_CHARS = 1 << 14
"""Kept of health's words before the injection; what is longer is cut, and then cannot be read."""
RENEW_SHARE, RENEW_LEAST_S, RENEW_MOST_S = 0.5, 0.2, 10.0
NO_WATCHES, UNREACHABLE = 253, 235
GPU_ROW = re.compile(r"\|\s*(\d+)\s*\|")
UUID = re.compile(r"Device UUID: (GPU-[0-9a-fA-F-]+)")


class Said(NamedTuple):
    """What a command said."""

    rc: int
    out: str
    err: str

    def words(self) -> str:
        """Return its first line, for a reason."""
        text = (self.out.strip() or self.err.strip()).splitlines()
        return "{} (exit status {})".format(text[0] if text else "nothing", self.rc)


class NotPossible(Exception):
    """Nothing was injected, and this is why."""


class Engine:
    """The node's standalone engine, by its own dcgmi."""

    def __init__(self) -> None:
        """Find it. Raises NotPossible where there is none, or more than one."""
        stand_in = os.environ.get("DCGMI_PATH", "")
        if stand_in:
            self.command = [stand_in]
            return
        found = host_engines()
        if len(found) != 1:
            many = f"{len(found)} run" if found else "none runs"
            raise NotPossible(f"one nv-hostengine is needed on this node, {many}: an embedded engine cannot be reached")
        self.command = ["nsenter", "--target", str(found[0]), "--mount", "--net", "--", "dcgmi"]

    def run(self, arguments: List[str], limit_s: float = COMMAND_S) -> Said:
        """Run dcgmi. Raises NotPossible when it cannot be run, or does not end."""
        try:
            done = subprocess.run([*self.command, *arguments], capture_output=True, timeout=limit_s, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotPossible("dcgmi {}: {}".format(" ".join(arguments), error)) from error
        out, err = (part.decode(errors="replace")[:MOST_BYTES] for part in (done.stdout, done.stderr))
        return Said(done.returncode, out, err)

    def numbers(self) -> Dict[str, int]:
        """Return the engine's number of each GPU, by UUID."""
        said = self.run(["discovery", "-l"])
        numbers, number = {}, -1
        for line in said.out.splitlines():
            row, uuid = GPU_ROW.match(line), UUID.search(line)
            number = int(row.group(1)) if row else number
            if uuid:
                numbers[uuid.group(1).lower()] = number
        if not numbers:
            raise NotPossible(f"the engine knows no GPU; dcgmi discovery -l says: {said.words()}")
        return numbers

    def field(self, gpu: int, field: int) -> Dict[str, str]:
        """Return what introspection says of a field; nothing if it is not watched."""
        said = self.run(["test", "--introspect", "--gpuid", str(gpu), "-f", str(field)])
        pairs = (line.split(":", 1) for line in said.out.splitlines() if ":" in line)
        return {key.strip(): value.strip() for key, value in pairs} if said.rc == 0 else {}

    def shown(self, gpu: int, field: int) -> Optional[float]:
        """Return a field's value now, None if the engine shows none."""
        said = self.run(["dmon", "-i", str(gpu), "-e", str(field), "-c", "1"])
        rows = [line.split() for line in said.out.splitlines() if line.startswith("GPU ")]
        try:
            return float(rows[-1][-1])
        except (IndexError, ValueError):
            return None

    def inject(self, gpu: int, field: int, value: str, offset_s: int) -> Said:
        """Inject one sample."""
        where = ["--gpuid", str(gpu), "-f", str(field), "-v", value]
        return self.run(["test", "--inject", *where, "--offset", str(offset_s)])


def host_engines() -> List[int]:
    """Return the processes of this node that are a standalone engine."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program = entry.read_bytes().split(b"\0")[0]
        except OSError:
            continue
        if program.rpartition(b"/")[2] == b"nv-hostengine":
            found.append(int(entry.parent.name))
    return sorted(found)


def text_of(value: float) -> str:
    """Write a number as dcgmi takes it for a field of either type."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


class Sample:
    """The sample that is kept in the engine, and what was there before."""

    def __init__(self, engine: Engine, spec: Dict[str, Any], gpu: Dict[str, Any]) -> None:
        """Look at the engine; nothing is changed. Raises NotPossible."""
        self.engine, self.spec, self.gpu = engine, spec, gpu
        numbers = engine.numbers()
        if gpu["uuid"].lower() not in numbers:
            raise NotPossible("the engine does not know {}".format(gpu["uuid"]))
        self.number = numbers[gpu["uuid"].lower()]
        self.field = int(spec["field"])
        self.value = float(spec["value"])
        self.watch_set = self.touched = False
        self.watches = self.health = self.kept = ""
        self.seen: Dict[str, str] = {}
        self.renewed = self.missed = 0
        shown = engine.shown(self.number, self.field)
        self.prior = spec["baseline"] if shown is None else shown
        if self.prior is None:
            raise NotPossible(f"the engine shows no value of field {self.field}, so none could be put back")
        self.value += 0.0 if not spec["step"] else self.prior

    def watch(self) -> Dict[str, str]:
        """See that health watches the field, setting watches where nobody has. Raises NotPossible."""
        said = self.engine.run(["health", "-g", "0", "-c", "-j"])
        if said.rc == NO_WATCHES and self.spec["systems"]:
            set_now = self.engine.run(["health", "-g", "0", "-s", self.spec["systems"]])
            if set_now.rc != 0:
                raise NotPossible(f"the health watches could not be set: {set_now.words()}")
            self.watch_set = True
            self.watches = self.systems()
            said = self.engine.run(["health", "-g", "0", "-c", "-j"])
        elif said.rc not in (0, NO_WATCHES):
            raise NotPossible(f"the engine's health cannot be read: {said.words()}")
        self.health = said.out[:HEALTH_CHARS] if said.rc == 0 else ""
        facts = self.seen = self.engine.field(self.number, self.field)
        if self.spec["systems"] and facts.get("Number of Watchers", "0") == "0":
            raise NotPossible(
                "health watches are set, but not for field {}: let the site set {} too (dcgmi health -s)".format(
                    self.field, self.spec["systems"]
                )
            )
        return facts

    def systems(self) -> str:
        """Return which systems health watches, as dcgmi words it; "" if it does not say."""
        said = self.engine.run(["health", "-g", "0", "-f"])
        return said.out if said.rc == 0 else ""

    def put(self) -> Tuple[Said, Tuple[int, int]]:
        """Inject the value; return what dcgmi says, and the node's clock before and after it."""
        before = time.monotonic_ns()
        self.touched = True  # from here on it may be there, whatever dcgmi says
        said = self.engine.inject(self.number, self.field, text_of(self.value), OFFSET_S)
        return said, (before, time.monotonic_ns())

    def renew(self) -> None:
        """Inject it again before it ages out; one that fails is counted, and tried again."""
        self.value += float(self.spec["step"])
        said, _ = self.put()
        self.renewed, self.missed = self.renewed + 1, self.missed + (said.rc != 0)

    def put_back(self) -> str:
        """Put the old value back, and take our watches back. Returns what is left, "" for nothing."""
        left = []
        for step in (self._value_back, self._watches_back):
            try:
                left.append(step())
            except NotPossible as error:
                left.append(str(error))
        return "; ".join(filter(None, left))

    def _value_back(self) -> str:
        if not self.touched:
            return ""
        before = self.engine.field(self.number, self.field)
        said = self.engine.inject(self.number, self.field, text_of(self.prior), RESTORED_OFFSET_S)
        if said.rc == UNREACHABLE:  # an engine that is gone has forgotten sample and watches
            self.watch_set = False
            return ""
        after = self.engine.field(self.number, self.field)
        if self.landed(before, after) or (after and after == self.seen):  # put back, or nothing was ever there
            return ""
        return f"field {self.field} of GPU {self.number}, the old value is not seen: {said.words()}"

    def _watches_back(self) -> str:
        """Clear our watches. Setting replaces them all: what is not as we set it is somebody else's, and stays."""
        if not self.watch_set:
            return ""
        now = self.systems()
        if now and self.watches and now != self.watches:
            self.kept = "health watches, changed by somebody else since"
            return ""
        if not now or not self.watches:
            said = self.engine.run(["health", "-g", "0", "-c", "-j"])
            gone = said.rc in (NO_WATCHES, UNREACHABLE)
            return "" if gone else "the health watches that were set for this: whose they are now cannot be told"
        cleared = self.engine.run(["health", "-g", "0", "--clear"]).rc in (0, UNREACHABLE)
        return "" if cleared else "the health watches that were set for this"

    def landed(self, before: Dict[str, str], after: Dict[str, str]) -> bool:
        """Say whether introspection shows a sample that was not there before."""
        marks = ("Number of Samples", "Newest Timestamp")
        return bool(after) and any(before.get(mark) != after.get(mark) for mark in marks)


def inject(spec: Dict[str, Any], told_to_go: int) -> int:
    """Inject, prove, keep, put back. Returns the exit code."""
    gpus = gpus_of_node()
    say("started", gpus=gpus, node=os.uname().nodename)
    gpu = choose(gpus, spec["gpu"])
    if gpu is None or gpu["uuid"] in spec.get("refuse", {}):
        reason = spec["refuse"][gpu["uuid"]] if gpu else "no GPU {} on this node".format(json.dumps(spec["gpu"]))
        say("failed", reason=reason)
        return 3
    sample = None
    try:
        sample = Sample(Engine(), spec, gpu)
        between = land(sample)
    except NotPossible as error:
        left = sample.put_back() if sample else ""
        say("failed", reason=str(error), left=left, written=bool(sample and sample.touched))
        return 4 if left else 3
    return hold(sample, between, told_to_go)


def land(sample: Sample) -> Dict[str, Any]:
    """Inject, and see it there. Raises NotPossible."""
    before = sample.watch()
    said, between = sample.put()
    after = sample.engine.field(sample.number, sample.field) if said.rc == 0 else {}
    if not sample.landed(before, after):
        raise NotPossible(f"introspection does not show the sample; the injection said: {said.words()}")
    return {"between_ns": list(between), "introspection": after}


def hold(sample: Sample, proof: Dict[str, Any], told_to_go: int) -> int:
    """Tell of it, renew it until told to go or the deadline, and put the old value back."""
    spec, facts = sample.spec, proof["introspection"]
    interval_s = int(facts.get("Monitor Interval (ms)") or 0) / 1000
    period_s = min(max(RENEW_SHARE * interval_s, RENEW_LEAST_S), RENEW_MOST_S)
    shown = "field {} ({}) = {}, {} samples, the newest of {}".format(
        sample.field, facts.get("Field ID"), text_of(sample.value), facts.get("Number of Samples"),
        facts.get("Newest Timestamp"),
    )  # fmt: skip
    what = {"field": sample.field, "value": sample.value, "prior": sample.prior, "engine_gpu": sample.number}
    watch = {"watch_set": sample.watch_set, "interval_s": interval_s, "health_before": sample.health}
    say("landed", evidence={**what, **watch, **proof, "text": shown, "gpu": sample.gpu})
    say("holding", deadline_s=spec["deadline_s"], renewed_every_s=period_s)
    end = time.monotonic() + spec["deadline_s"]
    why = "deadline"
    while time.monotonic() < end:
        if select.select([told_to_go], [], [], max(0.0, min(period_s, end - time.monotonic())))[0]:
            why = "told to"
            break
        try:
            sample.renew()
        except NotPossible:
            sample.missed += 1
    left = sample.put_back()
    counts = {"renewed": sample.renewed, "missed": sample.missed, "why": why}
    counts.update(stays=spec["sticky"], kept=sample.kept)
    say("failed" if left else "reverted", **counts, **({"reason": left} if left else {"put_back": sample.prior}))
    return 4 if left else 0


def read(spec: Dict[str, Any]) -> int:
    """Run the commands, fetch the page, and say what came. Returns the exit code."""
    try:
        engine = Engine()
        said = {name: engine.run(words, spec["limit_s"])._asdict() for name, words in spec["commands"].items()}
        page = fetch(spec["url"], spec["limit_s"]) if spec.get("url") else ""
    except NotPossible as error:
        say("failed", reason=str(error))
        return 3
    say("reverted", said=said, page=page, gpus=gpus_of_node())
    return 0


def fetch(url: str, limit_s: float) -> str:
    """Return a page. Raises NotPossible."""
    parts = urllib.parse.urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=limit_s)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        text = answer.read(4 * MOST_BYTES).decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise NotPossible(f"{url}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise NotPossible(f"{url}: HTTP {answer.status} {text[:200]}")
    return text


def main(argv: List[str]) -> int:
    """Run the spec in the file given by --spec."""
    told_to_go = when_told_to_go()
    spec = json.loads(Path(argv[argv.index("--spec") + 1]).read_text())
    return read(spec) if spec["mode"] == "read" else inject(spec, told_to_go)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
