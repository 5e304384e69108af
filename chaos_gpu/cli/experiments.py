"""`chaos-gpu experiments`: what ships with us; and how every command finds an experiment by name."""

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import yaml

from chaos_gpu.cli.options import json_option, print_json
from chaos_gpu.errors import UsageError

SUFFIXES = (".yaml", ".yml", ".json")


def shipped() -> dict[str, Path]:
    """Return the experiments of the installed package, by name (`device/xid-fatal-cordons-node`)."""
    roots = [Path(root) for root in import_module("chaos_gpu.experiments").__path__]
    return {
        path.relative_to(root).with_suffix("").as_posix(): path
        for root in roots
        for path in sorted(root.glob("*/*.yaml"))
    }


def resolve(name: str) -> Path:
    """Find an experiment: a file, or one that ships with us, with or without `experiments/` and its suffix.

    Raises:
        UsageError: there is none; the remedy names what is like it.
    """
    path = Path(name)
    if path.is_file():
        return path
    known = shipped()
    short = name.removeprefix("experiments/")
    for suffix in SUFFIXES:
        short = short.removesuffix(suffix)
    if short in known:
        return known[short]
    last = short.rpartition("/")[2]
    alike = [each for each in known if last and last in each] or get_close_matches(short, known, 3)
    raise UsageError(f"no experiment {name!r}", remedy=f"a file, or one of: {', '.join(alike or known)}")


def name_of(path: Path) -> str:
    """Return the name by which an experiment is spoken of: ours by theirs, a file by its path."""
    return next((name for name, known in shipped().items() if known == path), str(path))


def load_experiment(name: str) -> dict[str, Any]:
    """Find and read an experiment.

    Raises:
        UsageError: there is none, or it is not a mapping in YAML or JSON.
    """
    path = resolve(name)
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(
            f"{path} is not YAML: {_why(error)}", remedy="chaos-gpu experiments show NAME shows one"
        ) from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not an experiment", remedy="chaos-gpu experiments show NAME shows one")
    return document


def _why(error: Exception) -> str:
    """Say in one line where a parser stopped."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


@click.group()
def experiments() -> None:
    """List, show or copy the experiments that ship with chaos-gpu."""


@experiments.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List every experiment with what it judges."""
    rows = [_row(name) for name in shipped()]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        click.echo(f"{row['name']}\n    {row['title']} ({', '.join(row['criteria']) or 'judges nothing'})")
        if row["real_gpus"]:
            click.echo(f"    for real GPUs only, not proven on the lab: {row['real_gpus']}")


@experiments.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the experiment NAME as it stands in its file."""
    click.echo(resolve(name).read_text(encoding="utf-8"), nl=False)


@experiments.command()
@click.argument("name")
@click.argument("to", type=click.Path(path_type=Path), default=".")
@click.option("--force", is_flag=True, help="Write over a file that is there already.")
def copy(name: str, to: Path, force: bool) -> None:
    """Copy the experiment NAME to a file or into a directory, to be changed there."""
    source = resolve(name)
    target = to / source.name if to.is_dir() else to
    if target.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"{target}: the copy is YAML, and Chaos Toolkit reads a file by its ending",
            f"name it {target.with_suffix('.yaml')}",
        )
    if target.exists() and not force:
        raise UsageError(f"{target} is there already", remedy="give another name, or --force")
    try:
        target.write_bytes(source.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from error
    click.echo(target)


def _row(name: str) -> Mapping[str, Any]:
    from chaos_gpu.criteria.registry import REAL_GPUS, owed

    document = load_experiment(name)
    facts = {"name": name, "title": str(document.get("title", "")), "criteria": sorted(owed(document))}
    return {**facts, "real_gpus": REAL_GPUS.get(name, "")}
