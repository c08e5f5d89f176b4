"""How a user starts jobrun, for the commands that messages offer."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

__all__ = ["program"]


def program() -> str:
    """Return the command to type: ``jobrun``, or else the way this process was started."""
    started = sys.argv[0] if sys.argv else ""
    name = os.path.basename(started)
    if shutil.which("jobrun") is not None or name not in ("jobrun", "__main__.py"):
        return "jobrun"
    if name == "jobrun":
        return shlex.quote(_typed(started))
    return f"{shlex.quote(_typed(sys.executable))} -m jobrun"


def _typed(path: str) -> str:
    """Return the path relative to the current directory if it lies below it.

    Links are kept, since the interpreter of an environment is one.
    """
    absolute = os.path.abspath(path)
    try:
        relative = os.path.relpath(absolute)
    except FileNotFoundError:  # the current directory is gone
        return absolute
    return absolute if relative.startswith(os.pardir) else relative
