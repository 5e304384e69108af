"""Whose doing is it: does what a detector left on a node name our record?"""

import re
from collections.abc import Iterator

from chaos_gpu.criteria.pci import pci_in
from chaos_gpu.criteria.timeline import Episode, Landed, NodeState
from chaos_gpu.criteria.xid.marker import MARKER


def names_record(text: str, landed: Landed, *, on_target: bool) -> str:
    """Say by what a text names our record: its marker, or its code together with the GPU; "" if it does not.

    A text with another record's marker is about that one, whatever code it has. On another node than the target a PCI
    address proves nothing, since machines of one kind have the same ones.
    """
    markers = MARKER.findall(text)
    if landed.marker and landed.marker in markers:
        return "marker"
    if markers or not _names_code(text, landed.code):
        return ""
    if landed.gpu_uuid and landed.gpu_uuid.lower() in text.lower():
        return "code and GPU UUID"
    return "code and PCI address" if on_target and pci_in(text, landed.pci) else ""


def state_names_record(state: NodeState, landed: Landed, *, on_target: bool = True) -> str:
    """Say by what a node's attribution or any of its conditions names our record."""
    found = (names_record(text, landed, on_target=on_target) for text in (state.attribution, *_told(state)))
    return next(filter(None, found), "")


def episode_names_record(episode: Episode, landed: Landed) -> str:
    """Say by what a cordon names our record; detectors may write that a moment after the cordon itself."""
    on_target = episode.node == landed.node
    found = (state_names_record(state, landed, on_target=on_target) for state in episode.states)
    return next(filter(None, found), "")


def _told(state: NodeState) -> Iterator[str]:
    for _, reason, message in state.conditions.values():
        yield f"{reason} {message}"


def _names_code(text: str, code: int) -> bool:
    """Find the code as detectors write it: `Xid48`, `Xid (PCI:…): 48,`, `ErrorCode:48`, `"code": 48`, `{"48":true}`."""
    after_word = rf"(?:xid|code|error)(?:\s*\([^)]*\))?\W{{0,4}}{code}(?![0-9]|\.[0-9])"
    as_key = rf'"{code}"\s*:'
    return re.search(f"{after_word}|{as_key}", text, re.ASCII | re.IGNORECASE) is not None
