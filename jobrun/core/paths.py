"""Paths as people write and read them: relative to the directory where the command started.

The code of a job may change the current directory, which is global to the process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobrun.core.plain_text import plain

__all__ = [
    "absolute",
    "directories_in",
    "file_from",
    "is_url",
    "resolved",
    "seen_from_here",
    "shown",
    "start_directory",
    "typed",
]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(text: object) -> bool:
    """Return whether a value is a URL: a string that begins with ``scheme://``."""
    return isinstance(text, str) and _URL.match(text) is not None


_start: Path | None = None


@contextmanager
def seen_from_here() -> Iterator[None]:
    """Resolve paths relative to the current directory of now, whatever it is later."""
    global _start
    before = _start
    try:
        _start = Path.cwd()
    except FileNotFoundError:  # it was removed: absolute paths can still be used
        _start = None
    try:
        yield
    finally:
        _start = before


def start_directory() -> Path:
    """Return the base of relative paths; raises FileNotFoundError if it is gone."""
    return _start if _start is not None else Path.cwd()


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return the path as an absolute one, which means the same after a chdir of the job.

    It has no ``..``, since that fails on a machine where the directory before it is missing.
    """
    found = Path(path) if os.path.isabs(path) else start_directory() / path
    return resolved(found) if ".." in found.parts else found


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return a path without links, absolute; a link that leads in a circle stays as it is."""
    return Path(os.path.realpath(path))


def directories_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the directories in a directory, and of links to such, sorted.

    An entry that cannot be looked at, such as a link that leads in a circle, is left out.
    Raise OSError if the directory itself cannot be read.
    """
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if _is_directory(entry))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def file_from(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> str:
    """Return the path of a file relative to a folder; the file itself may be a link."""
    above = os.path.relpath(resolved(Path(path).parent), resolved(folder))
    return os.path.normpath(os.path.join(above, Path(path).name))


def typed(path: str | os.PathLike[str]) -> str:
    """Return a path for programs: relative where it lies below the start directory, else absolute.

    Links stay as they are, and so does every character of a name.
    """
    found = absolute(path)
    try:
        return str(found.relative_to(start_directory()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the start directory is gone
        return str(found)


def shown(path: str | os.PathLike[str]) -> str:
    """Return the path as a user would type it: relative below the start directory.

    A URL is unchanged.  Control characters are escaped as in ``plain``: for display only.
    """
    if is_url(path):
        return plain(path)
    found = resolved(absolute(path))
    try:
        return plain(found.relative_to(start_directory()))
    except (ValueError, FileNotFoundError):  # elsewhere, or the start directory is gone
        return plain(found)
