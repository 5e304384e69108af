"""PCI addresses of GPUs as the driver's kernel records write them: `0000:3b:00`."""

import re

from chaos_gpu.errors import UsageError

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([01][0-9a-f])(?:\.([0-7]))?", re.ASCII | re.IGNORECASE)


def normal_pci(address: str) -> str:
    """Bring an address to the form of kernel records: four-digit domain, lower case, no function.

    Args:
        address: as the kernel (`0000:3b:00.0`), nvidia-smi (`00000000:3B:00.0`) or an Xid record (`0000:3b:00`) has it.

    Raises:
        UsageError: no such address, or not the function (0) that a GPU has.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(f"{address!r} is not a PCI address", remedy="write it as 0000:3b:00, with its domain")
    domain, bus, device, function = match.groups()
    if int(domain, 16) > 0xFFFF:
        raise UsageError(f"PCI domain {domain} of {address} is beyond ffff", remedy="write it as 0000:3b:00")
    if function not in (None, "0"):
        raise UsageError(f"{address} is function {function} of its device; a GPU is function 0")
    return f"{int(domain, 16):04x}:{bus}:{device}".lower()


def pci_in(text: str, pci: str) -> bool:
    """Say whether a text names this GPU's address, in any of the usual forms; no text names what is no address."""
    match = _ADDRESS.fullmatch(pci)
    if match is None:
        return False
    domain, bus, device, _ = match.groups()
    form = rf"(?<![0-9a-f])(?:0000)?{domain[-4:]}:{bus}:{device}(?:\.0)?(?![0-9a-f:]|\.[0-9a-f])"
    return re.search(form, text, re.ASCII | re.IGNORECASE) is not None
