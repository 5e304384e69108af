"""What Chaos Toolkit itself has to say of a run: probes and activities that are not ours count as well."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

OURS = "chaos_gpu."
LONGEST = 300


class Findings(NamedTuple):
    """What speaks against a pass: a steady state that was not kept, and what keeps the run from proving anything."""

    broken: tuple[str, ...]
    doubtful: tuple[str, ...]


def findings(journal: Mapping[str, Any]) -> Findings:
    """Read status, hypothesis and activities of a journal; total on whatever it holds.

    Our own probes say more in their verdicts, so only other people's count as a broken steady state here.
    """
    after = _mapping(_mapping(journal.get("steady_states")).get("after"))
    broken, doubtful = [], []
    for probe in _entries(after.get("probes")):
        if _is_foreign(probe) and probe.get("status") == "succeeded" and probe.get("tolerance_met") is False:
            broken.append(f"steady-state probe {_name(probe)} is not within its tolerance afterwards")
    for entry in [*_entries(after.get("probes")), *_entries(journal.get("run")), *_entries(journal.get("rollbacks"))]:
        if entry.get("status") != "succeeded":
            doubtful.append(f"activity {_name(entry)} did not succeed{_why(entry)}")
    if journal.get("status") != "completed":
        doubtful.append(f"Chaos Toolkit ended the run as {journal.get('status')}")
    if journal.get("deviated") is True and not broken:
        doubtful.append("Chaos Toolkit says that the steady state was not kept")
    return Findings(tuple(broken), tuple(doubtful))


def failures(journal: Mapping[str, Any]) -> tuple[str, ...]:
    """Say why our own activities of the method failed, in their own words; of one fault, what failed first.

    What follows it (a probe of a fault that did not land) has nothing to add.
    """
    found: dict[str, str] = {}
    for entry in _entries(journal.get("run")):
        if entry.get("status") != "succeeded" and not _is_foreign(entry):
            arguments = _mapping(_mapping(_mapping(entry.get("activity")).get("provider")).get("arguments"))
            said = _said(entry).partition(": ")[2]
            found.setdefault(str(arguments.get("fault") or _name(entry)), said or f"activity {_name(entry)} failed")
    return tuple(dict.fromkeys(found.values()))


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_foreign(entry: Mapping[str, Any]) -> bool:
    provider = _mapping(_mapping(entry.get("activity")).get("provider"))
    return not str(provider.get("module", "")).startswith(OURS)


def _name(entry: Mapping[str, Any]) -> str:
    return repr(str(_mapping(entry.get("activity")).get("name", ""))[:LONGEST])


def _why(entry: Mapping[str, Any]) -> str:
    said = _said(entry)
    return f": {said}" if said else ""


def _said(entry: Mapping[str, Any]) -> str:
    """Return the exception of an activity, its class first."""
    told = entry.get("exception")
    last = str(told[-1]).strip() if isinstance(told, list) and told else ""
    return last.splitlines()[0].rpartition("chaos_gpu.errors.")[2][:LONGEST] if last else ""
