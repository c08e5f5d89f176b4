"""The stdout of commands that run or import users' code: under ``--json`` it holds JSON alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

__all__ = ["stdout_for_json"]


@contextmanager
def stdout_for_json(wanted: bool) -> Iterator[TextIO]:
    """Yield the stream of results.  Under ``--json`` all other output to stdout, by Python or
    by anything below it, goes to stderr.
    """
    if not wanted:
        yield sys.stdout
        return
    stdout = sys.stdout
    stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        out = os.fdopen(os.dup(kept), "w", encoding="utf-8")
        yield out
    finally:
        with suppress(OSError):  # reported when it was written
            out.close()
        with suppress(ValueError):  # closed by a task
            stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
