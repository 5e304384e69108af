"""The lab's server process: API server, kubelet, controllers and kernel logs on one event loop."""

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from chaos_gpu.lab.apiserver.server import ApiServer, write_kubeconfig
from chaos_gpu.lab.client import Api
from chaos_gpu.lab.controllers.manager import Manager
from chaos_gpu.lab.dcgm.nodes import FOUND_BY_R3, write_engine_files, write_programs
from chaos_gpu.lab.kernel_log import KernelLog
from chaos_gpu.lab.kubelet.devices import Devices, gpus_of, switches_of, write_driver_files, write_switch_files
from chaos_gpu.lab.kubelet.environment import NodeEnvironment
from chaos_gpu.lab.kubelet.kubelet import Kubelet, Node
from chaos_gpu.lab.kubelet.streams import KubeletStreams
from chaos_gpu.lab.layout import NODE_NAMES, Layout, write_private
from chaos_gpu.lab.platform.health_rules import DETECTOR, POLICY
from chaos_gpu.lab.platform.policy import platform_file
from chaos_gpu.lab.seed import seed
from chaos_gpu.lab.times import rfc3339

READY_S = 60.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def serve(options: argparse.Namespace, layout: Layout) -> int:
    """Run the lab until told to stop; return the exit code. `options` are the guardian's."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        asyncio.run(_serve(options, layout))
    except TimeoutError:  # an OSError too
        report = {"error": f"the platform was not ready within {READY_S:.0f} s"}
    except OSError as error:
        report = {"error": f"the lab did not start: {error}"}
    else:
        return 0
    with contextlib.suppress(OSError):  # closed: it was ready before
        os.write(options.ready_fd, json.dumps(report).encode())
    logging.error(report["error"])
    return 1


async def _serve(options: argparse.Namespace, layout: Layout) -> None:
    stop = asyncio.Event()
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as ends:
        server = ApiServer(secrets.token_urlsafe(24), secrets.token_urlsafe(24), layout.audit)
        ends.push_async_callback(server.stop)
        await server.start(port=options.port)
        write_platform(layout, options.defect, options.cordon_s, options.without)
        nodes = [_make_node(name, index, options.mark, layout, server, ends) for index, name in enumerate(NODE_NAMES)]
        if "policy-returns-failed" in options.defect:
            break_gpus(layout)
        session = await ends.enter_async_context(_session())
        api = Api(server.admin_url, session)
        manager = Manager(api)
        kubelet = Kubelet(api, nodes, layout.pods, urlsplit(server.admin_url).port or 0)
        manager.pods.on_event(kubelet.on_pod)
        server.use_streams(KubeletStreams(kubelet))
        await seed(api, nodes, options.without, options.defect)
        ends.push_async_callback(manager.stop)
        ends.push_async_callback(kubelet.close)
        await manager.start()
        heartbeat = asyncio.create_task(kubelet.heartbeat())
        ends.callback(heartbeat.cancel)
        await asyncio.wait_for(_platform_ready(manager), READY_S)
        gc.freeze()
        gc.enable()
        _announce(options, layout, server)
        await _until_stopped(stop, manager)


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    return aiohttp.ClientSession(connector=connector, headers={"User-Agent": "chaos-gpu-lab"})


def write_platform(layout: Layout, defects: list[str], cordon_s: float, without: list[str]) -> None:
    """Write the platform's file, and the programs that pods find first on their PATH."""
    returned_by = DETECTOR if "health-policy" in without else POLICY
    write_private(layout.platform, json.dumps(platform_file(defects, cordon_s, returned_by), indent=1))
    layout.stand_ins.mkdir(parents=True, exist_ok=True)
    for name in ("python3", "python"):
        script = layout.stand_ins / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    write_programs(layout.stand_ins)


def break_gpus(layout: Layout) -> None:
    """Give each node a GPU that r3 finds at fault, and no lower level."""
    for name in NODE_NAMES:
        write_private(layout.node(name) / "dcgm" / "faults.json", json.dumps(FOUND_BY_R3))


def _make_node(
    name: str, index: int, mark: str, layout: Layout, server: ApiServer, ends: contextlib.AsyncExitStack
) -> Node:
    directory = layout.node(name)
    log = KernelLog(directory)
    ends.callback(log.close)
    gpus = gpus_of(index)
    write_driver_files(directory / "driver", gpus)
    write_switch_files(directory / "driver-nvswitch", switches_of(index))
    write_engine_files(directory / "dcgm", gpus, index)
    environment = NodeEnvironment(
        node=name,
        lab=mark,
        directory=directory,
        platform_file=layout.platform,
        stand_ins=layout.stand_ins,
        pod_url=server.pod_url,
        port=int(server.pod_url.split("/")[2].rpartition(":")[2]),
    )
    return Node(name, index, environment, Devices(gpus))


async def _platform_ready(manager: Manager) -> None:
    """Wait until all that was seeded runs: daemon sets on every node, deployments as often as they say."""
    ready = asyncio.Event()
    workloads = (manager.daemon_sets, manager.deployments)

    def check(_kind: str, _obj: dict[str, Any]) -> None:
        if all(_is_ready(obj) for each in workloads for obj in each.objects.values()):
            ready.set()

    for each in workloads:
        each.on_event(check)
    check("", {})
    await ready.wait()


def _is_ready(workload: dict[str, Any]) -> bool:
    status = workload.get("status") or {}
    if "replicas" in workload["spec"]:
        return bool(status.get("readyReplicas", 0) == workload["spec"]["replicas"])
    return bool(status.get("numberReady", 0) == status.get("desiredNumberScheduled", 0) == len(NODE_NAMES))


async def _until_stopped(stop: asyncio.Event, manager: Manager) -> None:
    """Wait for the request to stop, or raise what broke a controller."""
    waits = [asyncio.create_task(stop.wait()), asyncio.create_task(manager.run())]
    done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()


def _announce(options: argparse.Namespace, layout: Layout, server: ApiServer) -> None:
    """Write kubeconfig and state, and tell who waits that the lab is ready."""
    write_kubeconfig(Path(layout.kubeconfig), server.admin_url)
    facts = {
        "mark": options.mark,
        "guardian": os.getppid(),
        "server": os.getpid(),
        "url": server.admin_url,
        "pod_url": server.pod_url,
        "defects": options.defect,
        "without": options.without,
        "started": rfc3339(),
        "ready_s": round(time.monotonic() - options.begun, 3),
    }
    write_private(layout.state, json.dumps(facts, indent=1))
    os.write(options.ready_fd, json.dumps(facts).encode())
    os.close(options.ready_fd)
