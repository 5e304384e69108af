"""Show incidents to a person: on a terminal in colour, elsewhere as plain text."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from chaos_gpu.cli.telling import counted, labelled
from chaos_gpu.criteria.xid.catalog import CONTACT_SUPPORT, catalogue
from chaos_gpu.criteria.xid.event import Event, Kind
from chaos_gpu.criteria.xid.guide import advice_for, gravity
from chaos_gpu.criteria.xid.incidents import Incident, Incidents

MAX_SHOWN = 50
_HARMLESS_BELOW = gravity("XID_154_EVAL")
_GRAVE_FROM = gravity(CONTACT_SUPPORT)
_CODES_NAMED = 8


def show(incidents: Incidents, lines: int) -> None:
    """Print a summary, then each incident: exercises last, the gravest first, the newest of equals first."""
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    if not incidents.records:
        console.print(f"no GPU fault in {counted(lines, 'line')}")
        return
    places = {incident.pci for incident in incidents}
    console.print(
        f"{counted(len(incidents) + incidents.forgotten, 'incident')} on {counted(len(places), 'device')}, "
        f"told by {counted(incidents.records, 'record')} in {counted(lines, 'line')}{_exercises(incidents)}"
    )
    ordered = sorted(incidents, key=lambda each: (_on_purpose(each), -gravity(each.action), -each.last.line))
    for incident in ordered[:MAX_SHOWN]:
        console.print()
        for line in _told(incident):
            console.print(line)
    for note in _notes(incidents):
        console.print(f"\n{note}")


def _on_purpose(incident: Incident) -> bool:
    return incident.injected == incident.records


def _exercises(incidents: Incidents) -> str:
    count = sum(map(_on_purpose, incidents))
    return f"; {count:,} of the incidents made on purpose" if count else ""


def _told(incident: Incident) -> Iterator[Text]:
    decisive, action = incident.gravest, incident.action
    advice = advice_for(action)
    told = f"{_device(decisive)}  {_name(decisive)}: {_meaning(decisive)}"
    if _on_purpose(incident):
        yield Text(f"made on purpose  {told}", style="dim")
    else:
        yield Text(told, style=_style(action))
    yield labelled("action", f"{action}: {advice.meaning}")
    yield labelled("first", advice.first)
    yield labelled("when", _when(incident))
    yield labelled("told by", _told_by(incident))
    if (culprit := incident.culprit) is not None:
        pid = "unknown" if culprit.pid is None else culprit.pid
        yield labelled("process", f"{culprit.process or 'unknown'}, pid {pid}")
    if (resolution := decisive.resolution) is not None:
        yield labelled("decoded", f"drivers before R575: {resolution.lt_r575}; from R575 on: {resolution.ge_r575}")
    yield labelled("record", decisive.text or "(no text)")
    beside = [event for event in incident.examples.values() if event is not decisive]
    for event in sorted(beside, key=lambda each: -gravity(incident.action_of(each)))[:_CODES_NAMED]:
        yield labelled("beside", f"{_name(event)}: {_meaning(event)} ({incident.action_of(event)}) {event.text}")
    if incident.injected:
        whose = "all of it" if _on_purpose(incident) else f"{incident.injected:,} records"
        yield labelled("note", f"{whose} made on purpose: written from user space, or flagged as injected")


def _device(event: Event) -> str:
    if event.pci is None:
        return "GPU unknown (the line that names it is missing)"
    instance = "" if event.gpu_instance is None else f" GPU instance {event.gpu_instance}"
    if event.compute_instance is not None:
        instance += f" compute instance {event.compute_instance}"
    return f"{'NVSwitch' if event.kind is Kind.SXID else 'GPU'} {event.pci}{instance}"


def _name(event: Event) -> str:
    if event.kind is Kind.SXID:
        return f"SXid {event.code}"
    return f"Xid {event.code}" if event.kind is Kind.XID else f"no Xid, counts as {event.code}"


def _meaning(event: Event) -> str:
    if event.kind is Kind.SXID:
        return f"NVSwitch error{f', {event.severity}' if event.severity else ''}"
    row = catalogue().get(event.code)
    return (row.description or row.mnemonic) if row else "not in NVIDIA's catalogue"


def _when(incident: Incident) -> str:
    first, last = _time(incident.first), _time(incident.last)
    lines = f"line {incident.first.line:,}"
    if incident.records > 1:
        lines = f"lines {incident.first.line:,} to {incident.last.line:,}"
    return f"{first} to {last} ({lines})" if last != first else f"{first or 'time unknown'} ({lines})"


def _time(event: Event) -> str:
    return f"{event.usec / 1e6:.6f} s after boot" if event.usec is not None else event.stamp


def _told_by(incident: Incident) -> str:
    counts = sorted(incident.counts.items(), key=lambda each: -each[1])
    named = ", ".join(f"{code} ×{count:,}" for code, count in counts[:_CODES_NAMED])
    more = f" and {len(counts) - _CODES_NAMED} more codes" if len(counts) > _CODES_NAMED else ""
    times = f", {incident.faults:,} times" if incident.faults > 1 else ""
    return f"{counted(incident.records, 'record')}{times}: {named}{more}"


def _notes(incidents: Incidents) -> Iterator[str]:
    if len(incidents) > MAX_SHOWN:
        yield f"{counted(len(incidents) - MAX_SHOWN, 'lesser incident')} not shown; --json has every record"
    if incidents.forgotten:
        yield f"{counted(incidents.forgotten, 'older incident')} counted, but not kept; --json has every record"
    if incidents.replayed:
        yield f"{counted(incidents.replayed, 'record')} read twice (a reader began anew) and counted once"


def _style(action: str) -> str:
    if gravity(action) < _HARMLESS_BELOW:
        return "bold green"
    return "bold red" if gravity(action) >= _GRAVE_FROM else "bold yellow"
