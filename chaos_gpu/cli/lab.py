"""`chaos-gpu lab`: a GPU platform on this machine, to try, teach and test everything without a cluster."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from chaos_gpu.lab.defects import COMPONENTS, DEFECTS, unknown_defects
from chaos_gpu.lab.layout import CONTEXT, Layout, default_directory
from chaos_gpu.lab.lifecycle import LabError, running, start, stop
from chaos_gpu.lab.sweep import MARK
from chaos_gpu.lab.trainer.manifest import write_manifest
from chaos_gpu.lab.trainer.planted import COMPONENT as TRAINER

SHORT_LIMITS = {
    "CHAOS_GPU_CORDON_S": "3",
    "CHAOS_GPU_UNCORDON_S": "3",
    "CHAOS_GPU_CONDITION_S": "3",
    "CHAOS_GPU_HOLD_S": "0.5",
    "CHAOS_GPU_ECHO_S": "4",
    "CHAOS_GPU_DIAGNOSIS_S": "15",
    "CHAOS_GPU_SKEW_S": "0.05",
}
"""Windows of the experiments on the lab, unless the environment has others already; its clock is ours."""
_RELAYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_INSTALL = "import sys; from chaos_gpu.cli.main import main; sys.exit(main())"


def _refuse(message: str, remedy: str = "") -> NoReturn:
    from chaos_gpu.errors import Refused

    raise Refused(message, remedy)


def _known_defects(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := unknown_defects(names):
        known = "\n".join(f"  {defect.name}" for defect in DEFECTS)
        raise click.BadParameter(f"no defect {unknown[0]!r}. The defects are:\n{known}")
    return names


def _known_components(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in COMPONENTS:
            raise click.BadParameter(f"no component {name!r}. The components are:\n  " + "\n  ".join(COMPONENTS))
    return names


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_defect: Decorator = click.option(
    "--defect", "defects", multiple=True, metavar="NAME", callback=_known_defects, help="Plant a defect (repeatable)."
)
_without: Decorator = click.option(
    "--without",
    multiple=True,
    metavar="COMPONENT",
    callback=_known_components,
    help="Leave one out (repeatable).",
)
_only: Decorator = click.option(
    "--only",
    multiple=True,
    metavar="COMPONENT",
    callback=_known_components,
    help="Start this one and no other (repeatable): sooner ready, less to do.",
)
_dir: Decorator = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="State directory. Default: $CHAOS_GPU_LAB_DIR, else ~/.cache/chaos-gpu/lab.",
)
_json: Decorator = click.option("--json", "as_json", is_flag=True, help="Print facts as JSON.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def lab() -> None:
    """Run a GPU platform on this machine: 4 nodes with 8 simulated GPUs each, and a detector of Xid errors.

    Pods are local processes of this user, so whoever can read the lab's kubeconfig can run programs as this user.
    """


@lab.command()
@_dir
@_defect
@_without
@_only
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback. Default: a free one.")
@_json
def up(
    directory: Path | None,
    defects: Sequence[str],
    without: Sequence[str],
    only: Sequence[str],
    port: int,
    as_json: bool,
) -> None:
    """Start a lab and return when its API, nodes and platform are ready."""
    root = directory or default_directory()
    facts = _start(root, defects=defects, without=_left_out(without, only), port=port)
    if as_json:
        click.echo(json.dumps({"kubeconfig": str(Layout(root.absolute()).kubeconfig), **_public(facts)}, indent=1))
        return
    click.echo(f"lab ready in {facts['ready_s']:.2f} s; to use it:")
    here = shlex.quote(str(root.absolute()))
    click.echo(f"  export KUBECONFIG={shlex.quote(str(Layout(root.absolute()).kubeconfig))} CHAOS_GPU_LAB_DIR={here}")
    click.echo(f"  export CHAOS_GPU_CONTEXT={CONTEXT} CHAOS_GPU_ENVIRONMENT=lab")
    click.echo(f"  export {' '.join(f'{key}={value}' for key, value in SHORT_LIMITS.items())}  # it reacts in seconds")
    for key, value in _health_policy().items():
        click.echo(f"  export {key}={shlex.quote(value)}")
    for key, value in _training(Layout(root.absolute()), facts).items():
        click.echo(f"  export {key}={shlex.quote(value)}  # a training to interrupt")
    click.echo("  chaos-gpu install")


@lab.command()
@_dir
def down(directory: Path | None) -> None:
    """End the lab and every process that it has started."""
    root = directory or default_directory()
    click.echo("lab ended" if stop(root) else f"no lab was running in {root}")


@lab.command()
@_dir
@_json
def status(directory: Path | None, as_json: bool) -> None:
    """Show address, nodes, pods and planted defects. Exits 4 if no lab is running."""
    layout = Layout((directory or default_directory()).absolute())
    facts = running(layout)
    if facts is None:
        _refuse(f"no lab is running in {layout.root}", "chaos-gpu lab up")
    shown = {"kubeconfig": str(layout.kubeconfig), **_public(facts), **_objects(facts["url"])}
    click.echo(json.dumps(shown, indent=1) if as_json else _as_text(shown))


@lab.command()
@_json
def defects(as_json: bool) -> None:
    """List the defects that --defect can plant, and the components that --without can leave out."""
    if as_json:
        listed = {"defects": [defect._asdict() for defect in DEFECTS], "components": COMPONENTS}
        click.echo(json.dumps(listed, indent=1))
        return
    width = max(len(defect.name) for defect in DEFECTS)
    for defect in DEFECTS:
        criteria = f" ({', '.join(defect.criteria)})" if defect.criteria else ""
        click.echo(f"{defect.name:{width}}  {defect.changes}{criteria}")
    for name, what in COMPONENTS.items():
        click.echo(f"{'--without ' + name:{width}}  {what}")


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_defect
@_without
@_only
@click.option("--keep", is_flag=True, help="Keep the lab's directory with its logs when it has ended.")
@click.option("--install/--no-install", default=True, help="Install chaos_gpu and opt in first. Default: yes.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    defects: Sequence[str],
    without: Sequence[str],
    only: Sequence[str],
    keep: bool,
    install: bool,
    command: Sequence[str],
) -> int:
    """Run COMMAND with a fresh lab around it, and exit with its exit code.

    COMMAND finds KUBECONFIG, CHAOS_GPU_CONTEXT, CHAOS_GPU_ENVIRONMENT and short time limits in its environment. The lab
    ends when COMMAND does, with everything that runs in it; also when this command is killed.
    """
    root = Path(tempfile.mkdtemp(prefix="chaos-gpu-lab-"))
    with _leaving_on_signals():
        try:
            facts = _start(root, defects=defects, without=_left_out(without, only), tied=True, remove=not keep)
            environment = _environment(Layout(root), facts)
            code = _install(environment) if install else 0
            return code or _run_command(command, environment)
        finally:
            stop(root)
            if keep:
                click.echo(f"the lab's files are in {root}", err=True)
            else:
                shutil.rmtree(root, ignore_errors=True)


def _left_out(without: Sequence[str], only: Sequence[str]) -> list[str]:
    return [name for name in COMPONENTS if name in without or (only and name not in only)]


def _start(root: Path, **options: Any) -> dict[str, Any]:
    try:
        cordon_s = float(os.environ.get("CHAOS_GPU_CORDON_S") or SHORT_LIMITS["CHAOS_GPU_CORDON_S"])
        return start(root, cordon_s=cordon_s, **options)
    except ValueError:
        raise click.UsageError("CHAOS_GPU_CORDON_S is not a number of seconds") from None
    except LabError as error:
        _refuse(str(error), error.remedy)


def _environment(layout: Layout, facts: dict[str, Any]) -> dict[str, str]:
    """Return the environment of COMMAND; `chaos-gpu` in it is the one that runs now."""
    own_programs = Path(sys.executable).parent
    return {
        **SHORT_LIMITS,
        **os.environ,
        "PATH": f"{own_programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "KUBECONFIG": str(layout.kubeconfig),
        "CHAOS_GPU_CONTEXT": CONTEXT,
        "CHAOS_GPU_ENVIRONMENT": "lab",
        "CHAOS_GPU_LAB_DIR": str(layout.root),
        **_training(layout, facts),
        **_health_policy(),
        MARK: facts["mark"],
    }


def _training(layout: Layout, facts: dict[str, Any]) -> dict[str, str]:
    """Write the manifest of the lab's training, unless that is left out; return where experiments find it."""
    if TRAINER in facts["without"]:
        return {"CHAOS_GPU_JOB": ""}
    return {"CHAOS_GPU_JOB": str(write_manifest(layout.root, facts["defects"]))}


def _health_policy() -> dict[str, str]:
    """Say to experiments where the lab's health policy keeps its records and a node's admission."""
    from chaos_gpu.lab.platform.health_manifests import MARK_OF_ADMISSION, SOURCE

    return {"CHAOS_GPU_RECORDS": json.dumps(SOURCE), "CHAOS_GPU_ADMISSION": json.dumps(MARK_OF_ADMISSION)}


def _install(environment: dict[str, str]) -> int:
    """Install chaos_gpu in the lab and opt in; return the exit code, having shown what went wrong."""
    argv = [sys.executable, "-P", "-c", _INSTALL, "install", "--context", CONTEXT, "--environment", "lab"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        click.echo(f"{done.stdout}{done.stderr}could not install into the lab", err=True)
    return done.returncode


@contextlib.contextmanager
def _leaving_on_signals() -> Iterator[None]:
    """Turn signals into an orderly exit while COMMAND does not run yet, or no more."""

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in _RELAYED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_command(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run COMMAND in a process group of its own, in the foreground if there is a terminal; return its exit code."""
    terminal = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
    try:
        child = subprocess.Popen(  # noqa: S603 - running what the caller asks for is the purpose
            command, env=environment, process_group=0
        )
    except OSError as error:
        click.echo(f"{command[0]}: {error.strerror}", err=True)
        return 127 if isinstance(error, FileNotFoundError) else 126
    before = {number: signal.signal(number, lambda n, _: child.send_signal(n)) for number in _RELAYED}
    try:
        with _foreground(terminal, child.pid):
            code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _foreground(terminal: int | None, group: int) -> Iterator[None]:
    """Lend the terminal to a process group, as a shell does, so that Ctrl-C reaches COMMAND once and only it."""
    if terminal is None:
        yield
        return
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    own = os.tcgetpgrp(terminal)
    try:
        os.tcsetpgrp(terminal, group)
        os.killpg(group, signal.SIGCONT)  # it may have stopped because it wanted the terminal first
        yield
    finally:
        os.tcsetpgrp(terminal, own)
        signal.signal(signal.SIGTTOU, before)


def _public(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: facts[name] for name in ("url", "defects", "without", "started", "ready_s", "guardian", "server")}


def _objects(url: str) -> dict[str, Any]:
    """Return what the lab's API says about nodes and pods."""
    nodes, pods = _items(f"{url}/api/v1/nodes"), _items(f"{url}/api/v1/pods")
    return {
        "nodes": [
            {
                "name": node["metadata"]["name"],
                "schedulable": not node["spec"].get("unschedulable", False),
                "conditions": [c["type"] for c in node["status"]["conditions"] if c["status"] == "True"],
                "gpus": int(node["status"]["allocatable"].get("nvidia.com/gpu", 0)),
            }
            for node in nodes
        ],
        "pods": [
            {
                "namespace": pod["metadata"]["namespace"],
                "name": pod["metadata"]["name"],
                "node": pod["spec"].get("nodeName", ""),
                "phase": pod["status"]["phase"],
            }
            for pod in pods
        ],
    }


def _items(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the lab's own loopback URL
        items: list[dict[str, Any]] = json.load(answer)["items"]
    return items


def _as_text(shown: dict[str, Any]) -> str:
    lines = [f"kubeconfig  {shown['kubeconfig']}", f"started     {shown['started']}, ready in {shown['ready_s']:.2f} s"]
    lines += [f"defects     {', '.join(shown['defects']) or 'none'}"]
    lines += [f"left out    {', '.join(shown['without'])}"] if shown["without"] else []
    for node in shown["nodes"]:
        state = "schedulable" if node["schedulable"] else "cordoned"
        lines.append(f"node        {node['name']}  {node['gpus']} GPUs, {state}, {' '.join(node['conditions'])}")
    for pod in shown["pods"]:
        lines.append(f"pod         {pod['namespace']}/{pod['name']}  {pod['phase']} on {pod['node'] or 'no node'}")
    return "\n".join(lines)
