"""Tracebacks of the user's own lines."""

from __future__ import annotations

import importlib
import os
import traceback

__all__ = ["user_trace"]

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_trace(error: BaseException) -> str:
    """Return the traceback of an error from the user's first line on, without jobrun's frames."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=False)
    seen: set[int] = set()
    _strip(shown, seen)
    return "".join(shown.format()).rstrip("\n")


def _strip(shown: traceback.TracebackException | None, seen: set[int]) -> None:
    """Remove the frames of jobrun and of the import machinery from a trace and its causes."""
    if shown is None or id(shown) in seen:
        return
    seen.add(id(shown))
    kept = [f for f in shown.stack if not _is_ours(f.filename)]
    shown.stack = traceback.StackSummary.from_list(kept)
    for inner in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        _strip(inner, seen)


def _is_ours(file: str) -> bool:
    return file.startswith((_OWN, "<frozen importlib")) or file == importlib.__file__
