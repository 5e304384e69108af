"""The GPUs of the lab's nodes: what there is, the driver's files about it, and which pod has which.

Source of the file format: /proc/driver/nvidia/gpus/*/information of the open kernel module (nv-procfs.c).
"""

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

GPU_RESOURCE = "nvidia.com/gpu"
GPUS_PER_NODE = 8
PRODUCT = "NVIDIA-H100-80GB-HBM3"
_BUSES = (0x18, 0x2A, 0x3A, 0x5D, 0x9A, 0xAB, 0xBA, 0xDB)  # of an HGX board; each node is shifted, so no two agree
_SWITCH_BUSES = (0xC0, 0xC4, 0xC8, 0xCC)
_NAMESPACE = uuid.UUID("6f6c1f6e-3d0a-5a86-9a53-0d5a6f0b7c11")


class Gpu(NamedTuple):
    """One simulated GPU."""

    number: int
    pci: str
    """As the driver's files name it: domain:bus:device.function."""
    uuid: str


def gpus_of(node_index: int) -> list[Gpu]:
    """Return the GPUs of a node; addresses and UUIDs are the same in every lab and differ between all nodes."""
    addresses = [f"0000:{bus + node_index:02x}:00.0" for bus in _BUSES]
    return [
        Gpu(index, pci, f"GPU-{uuid.uuid5(_NAMESPACE, f'gpu-node-{node_index}/{pci}')}")
        for index, pci in enumerate(addresses)
    ]


def switches_of(node_index: int) -> list[str]:
    """Return the addresses, with function, of a node's NVSwitches."""
    return [f"0000:{bus + node_index:02x}:00.0" for bus in _SWITCH_BUSES]


def write_switch_files(directory: Path, switches: Sequence[str]) -> None:
    """Write `devices/<pci>/information` for each NVSwitch, as in /proc/driver/nvidia-nvswitch (procfs_nvswitch.c)."""
    for pci in switches:
        path = directory / "devices" / pci / "information"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"BIOS Version: 96.10.55.00.01\nBus Location: {pci}\n", encoding="ascii")


def write_driver_files(directory: Path, gpus: Sequence[Gpu]) -> None:
    """Write `gpus/<pci>/information` for each GPU as the driver shows it."""
    for gpu in gpus:
        path = directory / "gpus" / gpu.pci / "information"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "Model: \t\t NVIDIA H100 80GB HBM3\n"
            f"IRQ:   \t\t {200 + gpu.number}\n"
            f"GPU UUID: \t {gpu.uuid}\n"
            "Video BIOS: \t 96.00.89.00.01\n"
            "Bus Type: \t PCIe\n"
            "DMA Size: \t 52 bits\n"
            "DMA Mask: \t 0xfffffffffffff\n"
            f"Bus Location: \t {gpu.pci}\n"
            f"Device Minor: \t {gpu.number}\n"
            "GPU Firmware: \t 580.95.05\n"
            "GPU Excluded:\t No\n",
            encoding="ascii",
        )


class Devices:
    """Which GPUs of one node are in use; never gives one out twice."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        """All are free."""
        self._free = list(gpus)
        self._held: dict[str, list[Gpu]] = {}

    def allocate(self, pod_uid: str, count: int) -> list[Gpu] | None:
        """Give `count` GPUs to a pod until `release`; None if there are not that many."""
        if count > len(self._free):
            return None
        given, self._free = self._free[:count], self._free[count:]
        self._held.setdefault(pod_uid, []).extend(given)
        return given

    def release(self, pod_uid: str) -> None:
        """Take back what the pod has."""
        self._free = sorted(self._free + self._held.pop(pod_uid, []))
