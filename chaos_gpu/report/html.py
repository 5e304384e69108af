"""A run as one self-contained page: no script, no font, nothing fetched."""

import json
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from chaos_gpu.report.chart import WIDTH, charts
from chaos_gpu.report.fold import Result

TEMPLATE = "page.html.j2"
LONGEST_REM = 6
"""Width of the longest bar in a table: one scale for all of its columns."""


def as_html(results: Sequence[tuple[str, Result]]) -> str:
    """Return the page for several runs, each with its name."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["pretty"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    template = environment.from_string(files(__package__).joinpath(TEMPLATE).read_text(encoding="utf-8"))
    runs = [
        {"name": name, "result": result, "charts": charts(result.record.verdicts if result.record else ())}
        for name, result in results
    ]
    return template.render(runs=runs, width=WIDTH, longest_rem=LONGEST_REM)
