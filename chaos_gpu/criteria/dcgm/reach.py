"""DEV-08 and DEV-09: are DCGM's own words right, and does an error in DCGM reach whoever relies on it?

An injected sample is a known truth: the named errors of `injection` say what health must call them. Nothing passes on
missing evidence, and "Healthy" that names no GPU is none.

Source: GPU platform verification, layer 2, "error injection", the second way; "diagnostic levels".
"""

from collections.abc import Mapping, Sequence
from typing import Any

from chaos_gpu.criteria.attribution import episode_names_record
from chaos_gpu.criteria.dcgm.injection import Injection
from chaos_gpu.criteria.dcgm.metrics import read_metrics
from chaos_gpu.criteria.dcgm.reader import read_output
from chaos_gpu.criteria.dcgm.report import RAN, Report, Result, Says, Status
from chaos_gpu.criteria.dcgm.returns import SUCCESS, meaning_of
from chaos_gpu.criteria.timeline import Landed, Scene, Timeline, evidence_of
from chaos_gpu.errors import UsageError
from chaos_gpu.verdict import Judgement, Outcome, failed, inconclusive, passed

Said = Mapping[str, Any]
"""What one command said: `rc`, `out`, `err`."""

_BAD = (Status.WARN, Status.FAIL)
_OUTPUT_CHARS = 2000
_REMEDY_HEALTH = "dcgmi health -g 0 -s a on that engine; dcgmi test --resume if it is paused; see its log"
_REMEDY_EXPORTER = "see that the exporter asks this engine (DCGM_REMOTE_HOSTENGINE_INFO) and was not left behind by it"
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
    """Judge an output that cannot be read: with exit status 0 it claims to be whole."""
    rc = int(said["rc"])
    reason = f"{what} cannot be read: {problem}"
    if rc == SUCCESS or str(said["out"]).strip():
        return failed(reason, evidence, _REMEDY_DIAG)
    return inconclusive(f"{reason} ({meaning_of(rc)})", evidence, _REMEDY_DIAG)


def judge_grade(said: Said, discovery: Said, sample: Injection, uuid: str) -> Judgement:
    """DEV-08: health calls an error that is in the engine what its rules say, a warning or a failure.

    Args:
        said: what `dcgmi health -c -j` said while the sample was held.
        discovery: what `dcgmi discovery -l` said.
        sample: what was injected; a named error.
        uuid: of the GPU.
    """
    named = sample.named
    evidence: dict[str, Any] = {"sample": str(sample), "gpu": uuid, "exit_status": said["rc"]}
    evidence["output"] = str(said["out"])[:_OUTPUT_CHARS]
    if named is None:
        return inconclusive("a raw field has no grade of its own", evidence, "inject an error by its name")
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


def judge_health_watch(said: Said, discovery: Said, sample: Injection, uuid: str) -> Judgement:
    """DEV-09: the engine's health watch sees the error; takes what `judge_grade` takes."""
    evidence: dict[str, Any] = {"sample": str(sample), "gpu": uuid, "output": str(said["out"])[:_OUTPUT_CHARS]}
    report, problem = _health(said, discovery)
    if report is None:
        return inconclusive(f"health cannot be read: {problem}", evidence, _REMEDY_HEALTH)
    if sample.named is None:
        return inconclusive("what health makes of a raw field is not known", evidence, "inject an error by its name")
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


def _instead(report: Report) -> str:
    told = [f"{result.status} of {result.test} on {result.entity}" for result in report.reading.results]
    return "; ".join(told[:3]) or "Healthy, naming no GPU"


def judge_exported(page: str, sample: Injection, uuid: str) -> Judgement:
    """DEV-09: the exporter shows the sample at the GPU's UUID.

    Args:
        page: the exporter's metrics, "" where the node has no exporter.
        sample: what was injected.
        uuid: of the GPU.
    """
    metric = sample.facts.metric
    values, problem = _series(page, metric, uuid)
    evidence = {"metric": metric, "gpu": uuid, "values": list(values), "injected": sample.value}
    if problem:
        return inconclusive(f"the exporter shows nothing of {sample}: {problem}", evidence, _REMEDY_EXPORTER)
    if any(value >= sample.value if sample.grows else value == sample.value for value in values):
        return passed(f"{metric} shows {sample}", evidence)
    shown = ", ".join(f"{value:g}" for value in values)
    return failed(f"{metric} shows {shown}, DCGM holds {sample}", evidence, _REMEDY_EXPORTER)


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


def judge_restored(said: Said, discovery: Said, page: str, sample: Injection, uuid: str, prior: float) -> Judgement:
    """DEV-09: after the end, neither health nor exporter tells of the error any more.

    Args:
        said: what `dcgmi health -c -j` said, when the echo of a counter's change was over.
        discovery: what `dcgmi discovery -l` said.
        page: the exporter's metrics.
        sample: what was injected.
        uuid: of the GPU.
        prior: the value that was put back.
    """
    values, _ = _series(page, sample.facts.metric, uuid)
    evidence = {"sample": str(sample), "gpu": uuid, "prior": prior, "exported": list(values)}
    evidence["output"] = str(said["out"])[:_OUTPUT_CHARS]
    report, problem = _health(said, discovery)
    if report is None:
        return inconclusive(f"health cannot be read: {problem}", evidence, _REMEDY_HEALTH)
    against = _of_gpu(report, uuid)
    if against and sample.sticky:
        return inconclusive(f"{sample.sticky}", evidence, "restart the node's nvidia-dcgm pod")
    if against:
        return failed(f"health still says {against[0].status} of {against[0].test}", evidence, _REMEDY_HEALTH)
    if values and all(value == sample.value for value in values) and sample.value != prior:
        return failed(f"{sample.facts.metric} still shows {sample.value:g}", evidence, _REMEDY_EXPORTER)
    return passed(f"health and exporter tell of {sample} no more", evidence)
