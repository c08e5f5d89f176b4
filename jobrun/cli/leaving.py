"""The report of what keeps a process alive after its run: it would seem to hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["report_waiting"]

_SOON = 1.0
"""The seconds for the interpreter's exit before a report of what it waits for."""


def report_waiting() -> None:
    """Report on stderr what holds up the exit of the interpreter, if it is not soon.

    Called last of all.  Threads of pools end by themselves then.
    """
    threading.Thread(target=_report_later, name="jobrun-leaving", daemon=True).start()


def _report_later() -> None:
    time.sleep(_SOON)
    names = ", ".join(_waited_for())
    if names:
        text = f"the run is over; waiting for {names} of the job's code (Ctrl-C exits now)"
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)


def _waited_for() -> Iterator[str]:
    main = threading.main_thread()
    for thread in threading.enumerate():
        if thread is not main and not thread.daemon:
            yield f"thread {thread.name!r}"
    processes = sys.modules.get("multiprocessing.process")
    for child in tuple(getattr(processes, "_children", ())):  # the processes its own exit waits for
        if not child.daemon:
            yield f"process {child.name!r} ({child.pid})"
