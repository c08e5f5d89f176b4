"""Paths as people read them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["shown"]


def shown(path: str | os.PathLike[str]) -> str:
    """A path as a user would type it: relative where it lies below the current directory."""
    absolute = Path(path).resolve()
    try:
        return str(absolute.relative_to(Path.cwd()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the current directory is gone
        return str(absolute)
