"""What a node brings for DCGM: the engine's inventory, and the programs that images of DCGM have."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chaos_gpu
from chaos_gpu.lab.dcgm.engine import write_inventory
from chaos_gpu.lab.kubelet.devices import Gpu

VERSION, DRIVER = "4.6.0", "580.95.05"
SPEED = 30.0
"""The lab's engines poll, and forget, so many times faster than real ones."""
PROGRAMS = "dcgm"
"""The directory, below the stand-ins, of those that only DCGM's images have."""
BARE = "dcgm-exporter"
"""Likewise of the exporter's distroless image: the exporter alone, no dcgmi."""
FOUND_BY_R3 = [{"gpu": 0, "code": 62}]
"""Content of a faults.json: a memory bandwidth below its limit, which no lower level finds."""

_PACKAGES = Path(chaos_gpu.__file__).parent.parent
_PYTHON = f'#!/bin/sh\nPYTHONPATH="{_PACKAGES}" exec "{sys.executable}" -SP -m chaos_gpu.lab.dcgm.{{}} "$@"\n'
ENGINE = """
# While it lives, the node has a standalone engine, which knows nothing of the one before. A shell's: it costs nothing.
cd "$LAB_DCGM_PATH" || exit 1
exec 9>>hostengine 8>>lock
flock 9 && flock 8 || exit 1
rm -f state.json
! grep -q dcgm-paused-says-healthy "$LAB_PLATFORM_FILE" || echo '{{"paused": true}}' > state.json
exec 8>&-
echo "Host Engine Listener Started"
exec {stay}
"""
"""The engine, as a shell's commands; `stay` must live as long as it is to live."""
_SCRIPTS = {
    "dcgmi": _PYTHON.format("dcgmi"),
    "dcgm-exporter": _PYTHON.format("exporter"),
    "nv-hostengine": "#!/bin/sh" + ENGINE.format(stay="sleep infinity"),
}


def write_engine_files(directory: Path, gpus: Sequence[Gpu], node_index: int) -> None:
    """Write what a node's engine knows of its GPUs."""
    write_inventory(directory, inventory(gpus, node_index))


def inventory(gpus: Sequence[Gpu], node_index: int) -> dict[str, Any]:
    """Return what a node's engine knows before it starts."""
    facts = [
        {
            "uuid": gpu.uuid,
            "pci": f"0000{gpu.pci.upper()}",
            "name": "NVIDIA H100 80GB HBM3",
            "device_id": "2330",
            "serial": f"16533230{node_index:02d}{gpu.number:03d}",
        }
        for gpu in gpus
    ]
    return {"version": VERSION, "driver": DRIVER, "speed": SPEED, "gpus": facts}


def write_programs(stand_ins: Path) -> None:
    """Write DCGM's programs."""
    for directory, names in ((PROGRAMS, tuple(_SCRIPTS)), (BARE, ("dcgm-exporter",))):
        (stand_ins / directory).mkdir(parents=True, exist_ok=True)
        for name in names:
            script = stand_ins / directory / name
            script.write_text(_SCRIPTS[name], encoding="utf-8")
            script.chmod(0o755)


def programs_of(image: str) -> str:
    """Return the directory, below the stand-ins, of the programs that an image brings; "" for one not of DCGM."""
    name = image.rpartition("/")[2]
    if "dcgm-exporter" in name and "distroless" in name:
        return BARE
    return PROGRAMS if "dcgm" in name else ""
