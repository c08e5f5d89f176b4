"""Paths as people write and read them."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["is_url", "shown"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(text: object) -> bool:
    """Whether something is a URL: a text that begins with ``scheme://``."""
    return isinstance(text, str) and _URL.match(text) is not None


def shown(path: str | os.PathLike[str]) -> str:
    """A path as a user would type it: relative where it lies below the current directory.

    A URL is shown as it is.
    """
    if is_url(path):
        return str(path)
    absolute = Path(path).resolve()
    try:
        return str(absolute.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the current directory is gone
        return str(absolute)
