"""Whether a process has ended."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["has_ended"]


def has_ended(pid: int, seconds: float = 120) -> bool:
    """Return whether a process ends within a while; a zombie, which waits for its parent, has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
