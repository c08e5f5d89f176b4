"""Workflow commands of GitHub Actions: problems, shown at their lines in the changed files."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["annotation", "in_actions"]


def in_actions() -> bool:
    """Return whether this runs as a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotation(
    severity: str, message: str, file: str = "", line: int = 0, column: int = 0, width: int = 0
) -> str:
    """Return the line of an annotation: ``::error file=a.yaml,line=3,col=1::message``.

    ``severity`` is ``error``, ``warning`` or ``notice``; line and column count from 1.
    """
    places: dict[str, object] = {}
    if file:
        places["file"] = _in_workspace(file)
    if file and line:
        places |= {"line": line, "col": column}
        places |= {"endColumn": column + width} if width else {}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in places.items())
    return f"::{severity}{' ' if properties else ''}{properties}::{_data(message)}"


def _in_workspace(file: str) -> str:
    """Return the path relative to the root of the repository, if it is below it."""
    root = os.environ.get("GITHUB_WORKSPACE")
    if not root:
        return file
    try:
        return str(Path(file).resolve().relative_to(Path(root).resolve()))
    except ValueError:
        return file


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
