"""Readiness probes: exec, httpGet and tcpSocket. Liveness and startup probes are not modelled.

Source: Kubernetes, "Configure Liveness, Readiness and Startup Probes" and pkg/kubelet/prober.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import aiohttp

from chaos_gpu.lab.kubelet.container import Container, program
from chaos_gpu.lab.kubelet.fields import Json
from chaos_gpu.lab.process import start


async def watch_readiness(container: Container, pod_ip: str, changed: Callable[[], Awaitable[None]]) -> None:
    """Probe until cancelled, keep the container's record up to date and await `changed` whenever readiness changes."""
    probe = container.spec["readinessProbe"]
    await asyncio.sleep(probe.get("initialDelaySeconds", 0))
    in_a_row = 0
    while True:
        good = await _once(container, probe, pod_ip)
        in_a_row = in_a_row + 1 if good != container.record.ready else 0
        needed = probe.get("successThreshold", 1) if good else probe.get("failureThreshold", 3)
        if in_a_row >= needed:
            container.record.ready, in_a_row = good, 0
            await changed()
        await asyncio.sleep(probe.get("periodSeconds", 10))


async def _once(container: Container, probe: Json, pod_ip: str) -> bool:
    with contextlib.suppress(OSError, TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
            if "exec" in probe:
                return await _exec(container, probe["exec"]["command"])
            if "httpGet" in probe:
                return await _http(probe["httpGet"], pod_ip)
            return await _tcp(probe["tcpSocket"], pod_ip)
    return False


async def _exec(container: Container, command: list[str]) -> bool:
    process = start(program(command, container.mounts), env=container.environment, cwd=container.working_directory)
    try:
        return await process.wait() == 0
    finally:
        process.kill_group()


async def _http(spec: Json, pod_ip: str) -> bool:
    url = f"http://{spec.get('host') or pod_ip}:{spec['port']}/{spec.get('path', '/').lstrip('/')}"
    async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
        return 200 <= response.status < 400


async def _tcp(spec: Json, pod_ip: str) -> bool:
    _reader, writer = await asyncio.open_connection(spec.get("host") or pod_ip, spec["port"])
    writer.close()
    return True
