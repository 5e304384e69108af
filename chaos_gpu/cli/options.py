"""Options that many commands share."""

import codecs
import json
import sys
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


def context_option(command: Command) -> Command:
    """Add --context: the only way, besides CHAOS_GPU_CONTEXT, to name a cluster."""
    text = "Context of the kubeconfig, or in-cluster. The current-context is never used."
    return click.option("--context", envvar="CHAOS_GPU_CONTEXT", default="", show_envvar=True, help=text)(command)


def json_option(command: Command) -> Command:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print facts as JSON.")(command)


def print_json(value: Any) -> None:
    """Print one JSON document, in the letters that the output's encoding has."""
    ascii_only = codecs.lookup(sys.stdout.encoding or "ascii").name != "utf-8"
    click.echo(json.dumps(value, indent=2, ensure_ascii=ascii_only))
