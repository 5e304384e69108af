"""The stand-in prints what the real `dcgmi` printed, command by command, on an engine with the same GPUs."""

import fcntl
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos_gpu.lab.dcgm.dcgmi import answer
from chaos_gpu.lab.dcgm.engine import hosted, write_inventory

DATA = Path(__file__).parents[2] / "data" / "dcgm" / "transcripts.json"
INVENTORY = {
    "version": "4.6.0",
    "driver": "570.10.00",
    "gpus": [
        {
            "uuid": f"GPU-11111111-0000-4000-8000-00000000000{number}",
            "pci": f"00000000:{number}0:00.0",
            "name": "Synthetic GPU A",
            "device_id": "2330",
            "serial": f"100000000000{number}",
            "missing": [311],
            "sram_threshold": False,
        }
        for number in (1, 2)
    ],
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Path]:
    """A node whose engine runs."""
    write_inventory(tmp_path, INVENTORY)
    with hosted(tmp_path).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


def _settled(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(re.sub(r"(?<=: )(?!Thu Jan  1 ).*", "*", line) if _varies(line) else line for line in lines)


def _varies(line: str) -> bool:
    return any(word in line for word in ("Timestamp", "Fetch Usec", "Usec Per Fetch"))


def test_every_command_of_the_session_prints_the_same(node: Path) -> None:
    session: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))["4.6.0"]
    for step in session:
        said = answer(step["argv"][1:], node)
        assert said.rc == step["rc"], step["argv"]
        assert _settled(said.out) == _settled(step["stdout"]), step["argv"]
        assert said.err == step["stderr"], step["argv"]
