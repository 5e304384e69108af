"""One output of DCGM in, one report out."""

import re

from chaos_gpu.criteria.dcgm.diag import is_diag, read_diag
from chaos_gpu.criteria.dcgm.discovery import read_discovery
from chaos_gpu.criteria.dcgm.document import QUOTED_CHARS, Found, find_documents
from chaos_gpu.criteria.dcgm.exported import read_exported
from chaos_gpu.criteria.dcgm.health import is_health, read_health
from chaos_gpu.criteria.dcgm.judge import judge_reading
from chaos_gpu.criteria.dcgm.metrics import looks_like_metrics, read_metrics
from chaos_gpu.criteria.dcgm.report import Reading, Report
from chaos_gpu.criteria.dcgm.returns import meaning_of
from chaos_gpu.errors import UsageError

_REMEDIES = (
    ("health watches not enabled", "dcgmi health -g 0 -s a, wait a minute, then check again"),
    ("unable to establish a connection", "run it where the engine is: in the node's nvidia-dcgm pod"),
    ("host engine connection invalid", "run it where the engine is: in the node's nvidia-dcgm pod"),
    ("trying to parse the command line", "see dcgmi diag --help: -r takes 1 to 4 or names of tests"),
    ("health monitor report", "run it again with -j: dcgmi health -g 0 -c -j"),
    ("successfully ran diagnostic", "run it again with -j: dcgmi diag -r 2 -j"),
    ("command terminated with exit code 127", "choose a container that has dcgmi: the node's nvidia-dcgm pod"),
)
_REMEDY = "give what dcgmi diag -j, or dcgmi health -c -j, printed, whole"
_LETTER = re.compile(r"[^\W\d_]")


def read_output(output: bytes, exit_status: int | None = None) -> Report:
    """Read and judge what `dcgmi diag -j` or `dcgmi health -c -j` printed, or dcgm-exporter.

    Args:
        output: any bytes up to `MAX_BYTES`; standard output, with whatever was printed around the JSON; if that is what
            `dcgmi discovery -l` prints, GPUs are known by their UUIDs.
        exit_status: of the command, if it is known.

    Raises:
        UsageError: it holds no such document, or more than one, or one that is cut off, broken, or built otherwise.
    """
    if looks_like_metrics(output):
        return judge_reading(read_exported(read_metrics(output)), exit_status)
    found = find_documents(output)
    ours = [each for each in found if is_diag(each.document) or is_health(each.document)]
    if len(ours) > 1:
        raise UsageError(f"it holds {len(ours)} documents of DCGM", remedy="give one command's output at a time")
    if not ours:
        raise _nothing(output, found, exit_status)
    document = ours[0].document
    reading = read_diag(document) if is_diag(document) else read_health(document)
    return judge_reading(_with_uuids(reading, read_discovery(ours[0].noise)), exit_status, noise=ours[0].noise)


def _with_uuids(reading: Reading, uuids: dict[str, str]) -> Reading:
    """Name GPUs by their UUIDs, and know of those that were not tested."""
    if not uuids:
        return reading
    told = frozenset[str]() if reading.schema == "health" else frozenset(uuids)  # health may not have seen them
    gpus = reading.gpus | told
    results = tuple(result._replace(uuid=uuids.get(result.entity or "")) for result in reading.results)
    return reading._replace(results=results, gpus=gpus, gpu_count=max(reading.gpu_count, len(gpus)))


def _nothing(output: bytes, found: list[Found], exit_status: int | None) -> UsageError:
    text = output.decode("utf-8", errors="replace")
    said = next((line.strip() for line in text.splitlines() if _LETTER.search(line)), "")
    status = "" if exit_status is None else f"; exit status {exit_status}: {meaning_of(exit_status)}"
    if not text.strip():
        return UsageError(f"the output is empty{status}", remedy=_REMEDY)
    what = "its JSON is none of DCGM's" if found else f"there is no JSON in it; it says {said[:QUOTED_CHARS]!r}"
    lower = text.casefold()
    remedy = next((remedy for known, remedy in _REMEDIES if known in lower), _REMEDY)
    return UsageError(f"{what}{status}", remedy=remedy)
