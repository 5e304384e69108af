"""The token by which a record of ours is known again."""

import re

MARKER = re.compile(r"cgpu-[0-9a-z]{8}", re.ASCII)
"""What our marker looks like; short enough for a process name (15 bytes)."""
