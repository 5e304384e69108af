"""The health policy's decisions, without I/O: what is next for a node, and what a diagnostic came to. Stdlib only.

One part of the controller's single file; see `policy_source` in `health_manifests`.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

Json = dict[str, Any]

POLICY = "gpu-health-policy"
DETECTOR = "gpu-health-agent"
CONDITION = "GpuXidError"
CORDONED_BY = "gpu-health.lab/cordoned-by"
R2_RESULT = "gpu-health.lab/r2-result"
CONFIRMED_BY = "gpu-health.lab/r2-confirmed-by"
R3 = "gpu-health.lab/r3"
DAY_S = 86_400.0
DUE_S = 6 * DAY_S
"""A node's r2 is repeated at this age, so that no idle node's is ever a week old."""

WARNINGS = (1, 5)
"""Severities of DCGM (monitor, config) that are warnings, though its JSON prints Fail."""
_GPU_LINE = re.compile(r"^\|\s*(\d+)\s*\|.*?\|?\s*$")
_UUID = re.compile(r"Device UUID:\s*(GPU-[0-9a-fA-F-]{36})")
_WORST = ("Fail", "Warn", "Pass")
_DECISIONS = {"Pass": "return", "Warn": "hold", "Fail": "isolate"}


class Facts(NamedTuple):
    """All that a decision about a node rests on."""

    name: str
    schedulable: bool
    note: str
    """Who cordoned it and why: the text of the annotation, "" for none."""
    r2: str
    """Pass, Warn, Fail; anything else is no r2."""
    confirmed: bool
    """An operator has let a warning pass."""
    sick: bool
    """The detector's condition is raised."""
    busy: bool
    """A pod on it has GPUs; only known where somebody cordoned it or its r2 is due."""
    r3: Json
    """{for, result}: what the last r3 came to, and for which note."""
    age_s: float | None
    """Since its newest r2; None without one."""

    @property
    def is_due(self) -> bool:
        """Whether r2 must be repeated."""
        return self.age_s is None or self.age_s > DUE_S


class Step(NamedTuple):
    """What to do with a node next."""

    do: str
    """cordon, diagnose or return."""
    level: int = 0
    why: str = ""


class Rules(NamedTuple):
    """The policy: right as it stands, each defect changes one answer."""

    defects: frozenset[str] = frozenset()

    def has(self, defect: str) -> bool:
        """Whether a defect is planted in this controller."""
        return f"policy-{defect}" in self.defects

    def next_step(self, node: Facts) -> Step | None:
        """Return what is due for a node, or None."""
        by = author(node.note)
        if by == DETECTOR:
            return self._after_xid(node)
        if by == POLICY:
            return self._while_out(node)
        return self._in_service(node) if node.schedulable else None  # a cordon of somebody else is theirs

    def _after_xid(self, node: Facts) -> Step | None:
        """Cordoned by the detector: r3 once the node is idle, then the decision."""
        if self.has("returns-without-r3"):
            return None if node.sick or node.busy else Step("return")
        if node.r3.get("for") == node.note:
            admits = node.r3.get("result") == "Pass" or self.has("returns-failed")
            admits = admits or (node.r3.get("result") == "Warn" and node.confirmed)
            return Step("return") if admits and not node.sick else None
        if node.busy and not self.has("diagnoses-busy-node"):
            return None
        return Step("diagnose", 3, "r3 after an Xid")

    def _while_out(self, node: Facts) -> Step | None:
        """Cordoned by this policy: r2 where it is missing or due, return where it admits."""
        admitted = self._admitted(node)
        if not node.busy and (self._is_due(node) if admitted else not _is_result(node.r2)):
            return Step("diagnose", 2, "r2 before work" if not admitted else "weekly r2")
        return Step("return") if admitted else None

    def _in_service(self, node: Facts) -> Step | None:
        if not self._admitted(node):
            return Step("cordon", 2, f"r2: {node.r2 if _is_result(node.r2) else 'none'}")
        return Step("cordon", 2, "weekly r2") if self._is_due(node) and not node.busy else None

    def _admitted(self, node: Facts) -> bool:
        if node.r2 == "Pass":
            return True
        if node.r2 == "Warn":
            return node.confirmed or self.has("admits-warn")
        return self.has("admits-failed" if node.r2 == "Fail" else "admits-undiagnosed")

    def _is_due(self, node: Facts) -> bool:
        return node.is_due and not (self.has("skips-week") or self.has("never-diagnoses"))


def author(note: str) -> str:
    """Return who wrote a cordon's note, "" for nobody known."""
    try:
        said = json.loads(note) if note else {}
    except ValueError:
        return ""
    return str(said.get("detector", "")) if isinstance(said, dict) else ""


def facts_of(node: Json, age_s: float | None) -> Facts:
    """Read a node; whether it is busy is to be asked elsewhere."""
    notes = node["metadata"].get("annotations") or {}
    conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or ()}
    try:
        r3 = json.loads(notes.get(R3) or "{}")
    except ValueError:
        r3 = {}
    return Facts(
        name=node["metadata"]["name"],
        schedulable=not (node.get("spec") or {}).get("unschedulable"),
        note=notes.get(CORDONED_BY, ""),
        r2=notes.get(R2_RESULT, ""),
        confirmed=bool(notes.get(CONFIRMED_BY)),
        sick=conditions.get(CONDITION) == "True",
        busy=False,
        r3=r3 if isinstance(r3, dict) else {},
        age_s=age_s,
    )


def has_gpus(pod: Json) -> bool:
    """Whether a pod keeps its node busy: it has GPUs and is not over."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    containers = pod["spec"].get("containers") or ()
    limits = (((each.get("resources") or {}).get("limits") or {}) for each in containers)
    return any(key.startswith("nvidia.com/") and str(count) != "0" for each in limits for key, count in each.items())


def results_by_uuid(discovery: str, diagnosis: str) -> dict[str, str]:
    """Return Pass, Warn or Fail by GPU UUID, from what `dcgmi discovery -l` and `dcgmi diag -j` printed.

    Raises:
        ValueError, LookupError: the output holds no diagnosis.
    """
    document = json.loads(diagnosis[diagnosis.index("{") :])["DCGM Diagnostic"]
    uuids = _uuids(discovery)
    found = dict.fromkeys(uuids.values(), "Pass")
    for test in (test for category in document["test_categories"] for test in category.get("tests") or ()):
        for result in test.get("results") or ():
            uuid = uuids.get(result.get("entity_id"), "")
            if uuid and result.get("entity_group") == "GPU":
                found[uuid] = min(found[uuid], _weighed(result), key=_WORST.index)
    if not found:
        raise ValueError("no GPU was found")
    return found


def records_of(node: str, level: int, results: dict[str, str], span: tuple[str, str], rules: Rules) -> list[Json]:
    """Make the records of one diagnosis, one for each GPU; the decision is the node's.

    Args:
        node: its name.
        level: of the diagnosis.
        results: by GPU UUID.
        span: when it started and ended, RFC 3339.
        rules: the policy.
    """
    worst = min(results.values(), key=_WORST.index)
    action = _DECISIONS[worst]
    if rules.has("record-wrong-action"):
        action = "isolate" if action == "return" else "return"
    records: list[Json] = [
        {
            "node": node,
            "gpu_uuid": uuid,
            "level": f"r{level}",
            "result": result,
            "action": action,
            "started_at": span[0],
            "ended_at": span[1],
        }
        for uuid, result in sorted(results.items())
    ]
    if rules.has("record-lost"):
        records = records[1:]
    if rules.has("record-without-uuid"):
        records[0] = {**records[0], "gpu_uuid": ""}
    return records


def worst_of(results: Iterable[str]) -> str:
    """Return the worst of some results."""
    return min(results, key=_WORST.index)


def _is_result(word: str) -> bool:
    return word in _WORST


def _weighed(result: Json) -> str:
    """Tell a warning from a failure by the severity of its errors: the JSON prints Fail for both."""
    if result.get("status") != "Fail":
        return "Pass"
    errors = result.get("warnings") or ()
    return "Warn" if errors and all(each.get("error_severity") in WARNINGS for each in errors) else "Fail"


def _uuids(discovery: str) -> dict[int, str]:
    """Return UUID by GPU number: a GPU's first line bears the number, one of the next its UUID."""
    found: dict[int, str] = {}
    number = -1
    for line in discovery.splitlines():
        if match := _GPU_LINE.match(line):
            number = int(match[1])
        if (match := _UUID.search(line)) and number >= 0:
            found[number] = match[1]
    return found
