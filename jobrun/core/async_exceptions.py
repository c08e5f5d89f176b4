"""Exceptions that other code raises asynchronously in a thread of jobrun.

``PyThreadState_SetAsyncExc`` raises an exception in whatever a thread executes next.  Some timeout
libraries use it on the thread that called them.  One that comes late, when the task has returned,
meets jobrun's own code.
"""

from __future__ import annotations

import sys
import traceback

from jobrun.errors import EXIT_SIGINT, JobrunError, TaskError

__all__ = ["asynchronous_error"]

_KNOWN = {
    *("jobrun", "click", "crc32c", "numcodecs", "numpy", "pydantic", "pydantic_core"),
    *("rich", "yaml", "zarr"),
    *sys.stdlib_module_names,
}
"""Packages whose exceptions jobrun's own code may meet in the usual way."""
_WITHOUT_ARGUMENTS = (AssertionError, GeneratorExit, MemoryError, StopAsyncIteration, StopIteration)
"""Exceptions that the interpreter itself raises without arguments."""


def asynchronous_error(error: BaseException) -> TaskError | None:
    """Return the error to report if ``error`` was raised asynchronously; None if it was not.

    Python does not mark such an exception.  It is recognised by three signs: the innermost frame is
    jobrun's or the standard library's and is not at a ``raise``, and the exception is of a class
    that none of this code knows, or has no arguments, since Python makes it from its class alone.
    The exit code is 130 for KeyboardInterrupt, else 1.
    """
    if isinstance(error, (JobrunError, *_WITHOUT_ARGUMENTS)):
        return None
    kind = type(error)
    frames = traceback.extract_tb(error.__traceback__)
    known = kind.__module__.partition(".")[0] in _KNOWN
    if not frames or (known and error.args) or (frames[-1].line or "").startswith("raise"):
        return None
    module = _module_of(error)
    if module not in _KNOWN:
        return None
    place = next((f for f in reversed(frames) if "jobrun" in f.filename), frames[-1])
    told = TaskError(
        f"{kind.__name__} was raised asynchronously in jobrun's own code "
        f"(at {place.filename}:{place.lineno})",
        hint="a task, or a library that it uses, raises exceptions in threads "
        "(PyThreadState_SetAsyncExc, as timeout libraries do): let it stop that before the task "
        "returns, or give the task a 'timeout'",
    )
    if isinstance(error, KeyboardInterrupt):
        told.exit_code = EXIT_SIGINT
    return told


def _module_of(error: BaseException) -> str:
    """Return the package of the innermost frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return str(name).partition(".")[0]
