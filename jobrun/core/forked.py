"""Processes that the job's code forks, and that return from it: they are not the run.

Such a child would run later tasks a second time, beside its parent, and write into its files.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

__all__ = ["PROCESS", "end_if_forked"]


class _Process:
    """This process.  To ask the kernel for ``id`` takes ten times as long, between two steps."""

    def __init__(self) -> None:
        self.look()
        os.register_at_fork(after_in_child=self.look)

    def look(self) -> None:
        """Take the id of the process."""
        self.id = os.getpid()


PROCESS: Final = _Process()
"""This process, in a forked child that one."""


def end_if_forked(owner: int, what: str) -> None:
    """End this process at once, with a message, unless it is ``owner``, which called ``what``."""
    if os.getpid() == owner:
        return
    error = sys.exc_info()[1]
    how = "returned" if error is None else f"raised {type(error).__name__}"
    text = (
        f"a process forked by {what} {how}, and is ended: it is not the run\n"
        "  hint: end it with os._exit(); multiprocessing does so by itself\n"
    )
    with suppress(OSError):  # all its descriptors may be closed
        os.write(2, text.encode(errors="backslashreplace"))
    os._exit(0 if error is None else 1)
