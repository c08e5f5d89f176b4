"""How a user starts jobrun, for the commands that messages offer."""

from __future__ import annotations

import os
import shlex
import shutil
import sys

__all__ = ["program"]


def program() -> str:
    """What to type: ``jobrun``; if that is not on the PATH, the way this process was started."""
    started = sys.argv[0] if sys.argv else ""
    name = os.path.basename(started)
    if shutil.which("jobrun") is not None or name not in ("jobrun", "__main__.py"):
        return "jobrun"
    if name == "jobrun":
        return shlex.quote(_typed(started))
    return f"{shlex.quote(_typed(sys.executable))} -m jobrun"


def _typed(path: str) -> str:
    """The path relative to the current directory where it lies below; links are left as they are,
    since an environment's interpreter is one."""
    absolute = os.path.abspath(path)
    try:
        relative = os.path.relpath(absolute)
    except FileNotFoundError:  # the current directory is gone
        return absolute
    return absolute if relative.startswith(os.pardir) else relative
