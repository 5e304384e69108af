"""Read journal files."""

import json
from pathlib import Path
from typing import Any

from chaos_gpu.errors import UsageError
from chaos_gpu.report.fold import RECOVER, Ending, Reason, Result, fold

JOURNAL = "journal.json"


def journals_in(path: Path) -> list[Path]:
    """Return a journal file itself, or the journals of a run directory (or of several, one level up).

    Raises:
        UsageError: there is none.
    """
    if path.is_dir():
        found = sorted({*path.glob(JOURNAL), *path.glob(f"*/{JOURNAL}")})
        if not found:
            raise UsageError(f"no {JOURNAL} in {path}", remedy="give a run directory of chaos-gpu run, or a journal")
        return found
    if not path.is_file():
        raise UsageError(f"no file {path}", remedy="give a run directory of chaos-gpu run, or a journal")
    return [path]


def fold_file(path: Path) -> Result:
    """Fold a journal file; one that was cut off says nothing, so it is inconclusive.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    journal = _parse(text)
    if journal is None and text.lstrip().startswith("{"):
        remedy = f"{RECOVER}: whether anything is left cannot be told from it"
        return Result(Ending.INCONCLUSIVE, (Reason(reason=f"{path} is not a whole journal", remedy=remedy),))
    return fold(journal)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
