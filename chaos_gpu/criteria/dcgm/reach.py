"""DEV-08 and DEV-09: are DCGM's own words right, and does an error in DCGM reach whoever relies on it?

An injected sample is a known truth: the named errors of `injection` say what health must call them. Nothing passes on
missing evidence, and "Healthy" that names no GPU is none.

Source: GPU platform verification, layer 2, "error injection", the second way; "diagnostic levels".
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from chaos_gpu.criteria.attribution import episode_names_record
from chaos_gpu.criteria.dcgm.injection import Injection
from chaos_gpu.criteria.dcgm.metrics import read_metrics
from chaos_gpu.criteria.dcgm.reader import read_output
from chaos_gpu.criteria.dcgm.report import RAN, Report, Result, Says, Status
from chaos_gpu.criteria.dcgm.returns import SUCCESS, UNWATCHED, meaning_of
from chaos_gpu.criteria.timeline import Landed, Scene, Timeline, evidence_of
from chaos_gpu.errors import UsageError
from chaos_gpu.verdict import Judgement, Outcome, failed, inconclusive, passed

Said = Mapping[str, Any]
"""What one command said: `rc`, `out`, `err`."""

_BAD = (Status.WARN, Status.FAIL)
_OUTPUT_CHARS = 2000
_REMEDY_HEALTH = "dcgmi health -g 0 -s a on that engine; dcgmi test --resume if it is paused; see its log"
_REMEDY_EXPORTER = "see that the exporter asks this engine (DCGM_REMOTE_HOSTENGINE_INFO) and was not left behind by it"
_REMEDY_DRIVER = "see /proc/driver/nvidia/gpus on that node; choose one with CHAOS_GPU_NODE whose driver is loaded"
_REMEDY_BEFORE = "choose another GPU (CHAOS_GPU_GPU), or mend what it has"
_REMEDY_DIAG = "run the command on the node by hand, and compare; report to NVIDIA what contradicts itself"
_REMEDY_PLATFORM = "see whether something watches DCGM's health on that node, and its right to patch nodes"
_REMEDY_WATCH = "repeat the experiment: the watch on the nodes was interrupted or ended too early"


def judge_diagnosis(said: Said, discovery: Said, uuids: Sequence[str], level: int) -> Judgement:
    """DEV-08: a diagnosis can be read, of the level asked for, about every GPU, and its exit status agrees.

    A failing GPU is no failure of this criterion: it asks whether what DCGM says can be relied upon.

    Args:
        said: what `dcgmi diag -r LEVEL -j` said.
        discovery: what `dcgmi discovery -l` said: which GPU each number is.
        uuids: of the node's GPUs, as the driver lists them.
        level: 1 to 4.
    """
    what = f"r{level}"
    evidence = {"level": level, "exit_status": said["rc"], "output": str(said["out"])[:_OUTPUT_CHARS]}
    if not uuids:
        return inconclusive(f"{what}: the driver lists no GPU there to compare with", evidence, _REMEDY_DRIVER)
    try:
        report = read_output((str(discovery["out"]) + str(said["out"])).encode(), int(said["rc"]))
    except UsageError as problem:
        return _unreadable(what, said, str(problem), evidence)
    evidence |= {"report": report.as_json(), "reasons": list(report.reasons)}
    silent = sorted(set(uuids) - {result.uuid for result in report.reading.results if result.status in RAN})
    if not report.reading.results or (report.verdict is Says.INCONCLUSIVE and not silent):
        why = "; ".join(report.reasons[:3])
        return inconclusive(f"{what} can be read, and shows nothing: {why}", evidence, _REMEDY_DIAG)
    if silent:
        return failed(f"{what} says nothing about {', '.join(silent[:3])}", evidence, _REMEDY_DIAG)
    if report.reading.level != f"r{level}":
        return inconclusive(f"{what} was asked for, {report.reading.level} was run", evidence, "install the plugins")
    status = f"exit status {said['rc']} ({meaning_of(int(said['rc']))})"
    if report.verdict is Says.FAIL and said["rc"] == SUCCESS:
        return failed(f"{what} reads {report.verdict}, its {status} says otherwise", evidence, _REMEDY_DIAG)
    return passed(f"{what} of {len(uuids)} GPUs reads {report.verdict}, action {report.action}, {status}", evidence)


def _unreadable(what: str, said: Said, problem: str, evidence: dict[str, Any]) -> Judgement:
    """Judge an output that cannot be read: with exit status 0 it claims to be whole, and JSON that begins, too.

    Of a diagnosis that could not run `dcgmi` says why on its standard output, in words.
    """
    rc = int(said["rc"])
    reason = f"{what} cannot be read: {problem}"
    if rc == SUCCESS or "{" in str(said["out"]):
        return failed(reason, evidence, _REMEDY_DIAG)
    return inconclusive(f"{reason} ({meaning_of(rc)})", evidence, _REMEDY_DIAG)


def judge_grade(said: Said, discovery: Said, sample: Injection, uuid: str, before: str) -> Judgement:
    """DEV-08: health calls an error that is in the engine what its rules say, a warning or a failure.

    Args:
        said: what `dcgmi health -c -j` said while the sample was held.
        discovery: what `dcgmi discovery -l` said.
        sample: what was injected; a named error.
        uuid: of the GPU.
        before: what `dcgmi health -c -j` printed before the injection.
    """
    named = sample.named
    evidence: dict[str, Any] = {"sample": str(sample), "gpu": uuid, "exit_status": said["rc"]}
    evidence["output"] = str(said["out"])[:_OUTPUT_CHARS]
    if named is None:
        return inconclusive("a raw field has no grade of its own", evidence, "inject an error by its name")
    if had := _had(before, discovery, uuid, named.system):
        return inconclusive(f"what health says cannot be told from what was there: {had}", evidence, _REMEDY_BEFORE)
    report, problem = _health(said, discovery)
    if report is None:
        return failed(f"health cannot be read: {problem}", evidence, _REMEDY_HEALTH)
    found = _of_gpu(report, uuid, named.system)
    if not found:
        return failed(f"health does not say {named.grade} of {sample}: {_instead(report)}", evidence, _REMEDY_HEALTH)
    grades = sorted({str(result.status) for result in found})
    if grades != [str(named.grade)]:
        return failed(f"health says {', '.join(grades)} of {sample}, it is a {named.grade}", evidence, _REMEDY_DIAG)
    return passed(f"health says {named.grade} of {sample}", evidence)


def judge_health_watch(said: Said, discovery: Said, sample: Injection, uuid: str, before: str) -> Judgement:
    """DEV-09: the engine's health watch sees the error; takes what `judge_grade` takes."""
    evidence: dict[str, Any] = {"sample": str(sample), "gpu": uuid, "output": str(said["out"])[:_OUTPUT_CHARS]}
    report, problem = _health(said, discovery)
    if report is None:
        return inconclusive(f"health cannot be read: {problem}", evidence, _REMEDY_HEALTH)
    if sample.named is None:
        return inconclusive("what health makes of a raw field is not known", evidence, "inject an error by its name")
    if had := _had(before, discovery, uuid, sample.named.system):
        return inconclusive(f"what health sees cannot be told from what was there: {had}", evidence, _REMEDY_BEFORE)
    if _of_gpu(report, uuid, sample.named.system):
        return passed(f"health sees {sample}", evidence)
    return failed(f"health does not see {sample}: {_instead(report)}", evidence, _REMEDY_HEALTH)


def _health(said: Said, discovery: Said) -> tuple[Report | None, str]:
    try:
        report = read_output((str(discovery["out"]) + str(said["out"])).encode(), int(said["rc"]))
    except UsageError as problem:
        return None, str(problem)
    return report, ""


def _of_gpu(report: Report, uuid: str, system: str = "") -> list[Result]:
    """Return what health has against a GPU, in one system or in any."""
    against = [result for result in report.reading.results if result.uuid == uuid and result.status in _BAD]
    return [result for result in against if result.test.casefold().startswith(system)]


def _had(before: str, discovery: Said, uuid: str, system: str = "") -> str:
    """Say what health had against a GPU before the injection, or why that is not known; "" if it had nothing."""
    report, problem = _health({"rc": SUCCESS, "out": before}, discovery)
    if report is None:
        return f"health before the injection cannot be read: {problem}"
    return ", ".join(f"{result.status} of {result.test} before" for result in _of_gpu(report, uuid, system))


def _instead(report: Report) -> str:
    told = [f"{result.status} of {result.test} on {result.entity}" for result in report.reading.results]
    return "; ".join(told[:3]) or "Healthy, naming no GPU"


def judge_exported(page: str, sample: Injection, uuid: str, prior: float, injected: float) -> Judgement:
    """DEV-09: the exporter shows the sample at the GPU's UUID.

    Args:
        page: the exporter's metrics, "" where the node has no exporter.
        sample: what was injected.
        uuid: of the GPU.
        prior: the value that was there before.
        injected: the first value injected; of a counter, above what it had.
    """
    metric = sample.facts.metric
    values, problem = _series(page, metric, uuid)
    evidence = {"metric": metric, "gpu": uuid, "values": list(values), "prior": prior, "injected": injected}
    if problem:
        return inconclusive(f"the exporter shows nothing of {sample}: {problem}", evidence, _REMEDY_EXPORTER)
    if injected == prior:
        return inconclusive(f"{metric}: {injected:g} was there before the injection", evidence, _REMEDY_BEFORE)
    if any(_shows(value, sample, injected) for value in values):
        return passed(f"{metric} shows {sample}", evidence)
    shown = ", ".join(f"{value:g}" for value in values)
    held = f"{injected:g} or more" if sample.grows else f"{injected:g}"
    return failed(f"{metric} shows {shown}, DCGM holds {held} ({sample})", evidence, _REMEDY_EXPORTER)


def _shows(value: float, sample: Injection, injected: float) -> bool:
    """Tell whether an exported value is one that was injected: a counter goes on growing from the first."""
    return value >= injected if sample.grows else value == injected


def _series(page: str, metric: str, uuid: str) -> tuple[tuple[float, ...], str]:
    if not metric:
        return (), "this field is not exported by any version"
    if not page:
        return (), "there is no exporter on the node"
    try:
        gpus = read_metrics(page.encode())
    except UsageError as problem:
        return (), str(problem)
    if uuid not in gpus:
        return (), f"no series of {uuid}"
    values = gpus[uuid].values(metric)
    return values, "" if values else f"no series of {metric}; it may be off in its list of counters"


def judge_reaction(landed: Landed, timeline: Timeline, sample: Injection, limit_s: float) -> Judgement:
    """DEV-09: the platform takes the node out of service in time, and says that this error was why.

    Args:
        landed: the sample, seen by introspection.
        timeline: all GPU nodes around it.
        sample: what was injected; health must call it a failure.
        limit_s: longest time to the cordon.
    """
    scene = Scene.of(landed, timeline)
    evidence = evidence_of(scene) | {"limit_s": limit_s}
    what = f"{sample} on {landed.node}:"
    if sample.named is None or sample.named.grade is not Status.FAIL:
        return inconclusive(f"{what} not a failure by health's rules", evidence, "inject one, e.g. double-bit-ecc")
    if not scene.clocks_known or scene.before is None or not scene.before.schedulable:
        return inconclusive(f"{what} the node's state before it is not known", evidence, _REMEDY_WATCH)
    cordons = scene.cordons()
    ours = next((each for each in cordons if episode_names_record(each, landed)), None)
    if ours is None and cordons:
        return inconclusive(f"{what} cordoned, but nothing says that it was for this", evidence, _REMEDY_PLATFORM)
    if ours is None and scene.unwatched(limit_s):
        return inconclusive(f"{what} not watched all of {limit_s:g} s", evidence, _REMEDY_WATCH)
    if ours is None:
        return failed(f"{what} not cordoned within {limit_s:g} s", evidence, _REMEDY_PLATFORM)
    measured = scene.measure(ours.from_s)
    reason = f"{what} cordoned after {measured}, limit {limit_s:g} s"
    within = measured.within(limit_s)
    outcome = {True: Outcome.PASS, False: Outcome.FAIL, None: Outcome.INCONCLUSIVE}[within]
    return Judgement(
        outcome, reason, evidence | {"seconds": round(measured.seconds, 6)}, "" if within else _REMEDY_WATCH
    )


class Put(NamedTuple):
    """What is known of a sample that was put into an engine: what was there before, and what then."""

    prior: float
    injected: float
    """The first value."""
    before: str
    """What `dcgmi health -c -j` printed before it."""
    watch_set: bool
    """Whether the health watches were set for it, and cleared with it."""


def judge_restored(said: Said, discovery: Said, page: str, sample: Injection, uuid: str, put: Put) -> Judgement:
    """DEV-09: after the end, neither health nor exporter tells of the error any more.

    Health that nobody watched before, and nobody watches now, tells of nothing: then the exporter alone is asked.

    Args:
        said: what `dcgmi health -c -j` said, when the echo of a counter's change was over.
        discovery: what `dcgmi discovery -l` said.
        page: the exporter's metrics.
        sample: what was injected.
        uuid: of the GPU.
        put: what is known of it.
    """
    metric = sample.facts.metric
    values, hidden = _series(page, metric, uuid)
    evidence = {"sample": str(sample), "gpu": uuid, "prior": put.prior, "exported": list(values)}
    evidence["output"] = str(said["out"])[:_OUTPUT_CHARS]
    unwatched = put.watch_set and said["rc"] == UNWATCHED
    if not unwatched and (problem := _health_after(said, discovery, sample, uuid, put, evidence)):
        return problem
    if hidden and (metric or unwatched):
        return inconclusive(f"whether the exporter tells of {sample} is not seen: {hidden}", evidence, _REMEDY_EXPORTER)
    if put.injected != put.prior and any(_shows(value, sample, put.injected) for value in values):
        shown = ", ".join(f"{value:g}" for value in values)
        return failed(f"{metric} still shows {shown}", evidence, _REMEDY_EXPORTER)
    who = "the exporter" if unwatched else "health and exporter" if metric else "health"
    what = "tell" if who == "health and exporter" else "tells"
    note = "; nobody else watches health there" if unwatched else "" if metric else "; this field is not exported"
    return passed(f"{who} {what} of {sample} no more{note}", evidence)


def _health_after(
    said: Said, discovery: Said, sample: Injection, uuid: str, put: Put, evidence: dict[str, Any]
) -> Judgement | None:
    """Judge what health says after the end; None if it has nothing against the GPU."""
    report, problem = _health(said, discovery)
    if report is None:
        return inconclusive(f"health cannot be read: {problem}", evidence, _REMEDY_HEALTH)
    against = _of_gpu(report, uuid)
    if not against:
        return None
    if sample.sticky:
        return inconclusive(f"{sample.sticky}", evidence, "restart the node's nvidia-dcgm pod")
    first = f"{against[0].status} of {against[0].test}"
    if had := _had(put.before, discovery, uuid):
        return inconclusive(f"health says {first}, and the GPU was not well before: {had}", evidence, _REMEDY_BEFORE)
    return failed(f"health still says {first}", evidence, _REMEDY_HEALTH)
