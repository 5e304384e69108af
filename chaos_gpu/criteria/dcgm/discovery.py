"""`dcgmi discovery -l`: which GPU each of the engine's numbers is. A diagnostic names only the numbers."""

import re

_NUMBER = re.compile(r"\|\s{0,8}(\d{1,6})\s{1,16}\|", re.ASCII)
_GROUP = re.compile(r"\|\s{0,8}(GPU|Switch|ConnectX|CPU)(?: ID)?\s{1,16}\|", re.ASCII)
_UUID = re.compile(r"\bDevice UUID: (GPU-[0-9a-fA-F-]{8,64})(?![0-9a-zA-Z-])", re.ASCII)


def read_discovery(text: str) -> dict[str, str]:
    """Return entity → UUID of the GPUs that the table lists, wherever in the text it stands; nothing without one.

    Args:
        text: what the command printed, with anything around it.
    """
    found: dict[str, str] = {}
    group = number = ""
    for line in text.splitlines():
        heading, row, uuid = _GROUP.match(line), _NUMBER.match(line), _UUID.search(line)
        if heading:
            group, number = heading[1], ""
        if row:
            number = str(int(row[1]))
        if uuid and number and group == "GPU":
            found[f"GPU {number}"] = uuid[1]
    return found
