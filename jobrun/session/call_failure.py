"""The message of an error in a user's function, and its hint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from jobrun.analysis.pinned import other_thread
from jobrun.model.task import Task

__all__ = ["beside_spec", "column_hint", "described", "order_hint", "remedy"]


def described(error: BaseException) -> str:
    """Return an error in one line; ``str()`` of the user's own class may fail."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_READ_ONLY = ("read-only", "readonly", "not writeable", "not writable")


def remedy(error: BaseException) -> str:
    """Return the remedy for errors that jobrun's own rules and threads cause."""
    text = described(error)
    if isinstance(error, ValueError | TypeError | BufferError) and any(
        t in text for t in _READ_ONLY
    ):
        return (
            "inputs are read-only: to change a blob in place, name it under 'update' instead of "
            "'in' and 'out'; or work on a copy"
        )
    if isinstance(error, SystemExit):
        return "a task ends by returning; raise an error to end the run"
    return other_thread(text)


_AS_ROW = (
    "'numpy.ndarray' object has no attribute",
    "truth value of an array with more than one element",
    "arrays can be converted to Python scalars",
)


def column_hint(message: str) -> str:
    """Return a hint for the error of a pipe's step that seems to take a column for one row."""
    if not any(text in message for text in _AS_ROW):
        return ""
    return "a step of a pipe gets whole columns: arrays, an entry for each row of the batch"


def beside_spec(error: BaseException, literals: Mapping[str, Any], spec_dir: str | None) -> str:
    """Return the remedy for a relative path under ``with`` that starts at the spec, or nothing.

    ``jobrun`` never changes the directory, so that a path of a task starts where it was called.
    """
    if not isinstance(error, FileNotFoundError) or spec_dir is None:
        return ""
    for name, value in literals.items():
        if not isinstance(value, str) or not value or os.path.isabs(value):
            continue
        if not os.path.exists(value) and os.path.exists(os.path.join(spec_dir, value)):
            return (
                f"{value} is in the folder of the spec: with: "
                f'{{{name}: "${{spec.dir}}/{os.path.normpath(value)}"}}'
            )
    return ""


def order_hint(task: Task, function: Callable[..., Any]) -> str:
    """Return a hint if the arguments seem to be in another order than the parameters."""
    from jobrun.usercode.signature import order_warning  # only after a failure

    found = order_warning(task, function)
    return f"{found.message}; {found.hint}" if found is not None else ""
