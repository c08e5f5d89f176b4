"""Hashes of the user's files: the code and the weights that a run uses, and what has changed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from jobrun.core.paths import resolved
from jobrun.errors import JobrunError
from jobrun.storage.regular_file import read_run_file

__all__ = ["changed_code", "digests", "loaded_code", "names_of", "own_modules"]

_LARGEST = 64 << 20
"""The largest file that is read, in bytes; of a larger one size and time stand for the content.

Reading many gigabytes of weights would delay each start, and the paths come from an untrusted file
of the run.
"""


def own_modules(folder: str | os.PathLike[str], names: Iterable[str]) -> dict[str, str]:
    """Return those of some imported modules that are the code of a folder, with their files.

    The files are relative to the folder.  Packages that are installed below it, in an environment
    there, are not its code.
    """
    root = os.path.realpath(folder)
    below = os.path.join(root, "")
    real = cache(os.path.realpath)  # hundreds of modules are in a few folders
    found: dict[str, str] = {}
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if not isinstance(file, str) or not os.path.isabs(file):
            continue
        place = os.path.join(real(os.path.dirname(file)), os.path.basename(file))
        place = os.path.realpath(place) if os.path.islink(place) else place
        if place.startswith(below) and "/site-packages/" not in place:
            found[name] = Path(place).relative_to(root).as_posix()
    return found


def loaded_code(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the modules below ``folder`` imported now: relative path to sha256."""
    root = Path(os.path.realpath(folder))
    files = {*own_modules(folder, list(sys.modules)).values()}
    return {file: _sha256(root / file) for file in sorted(files)}


def names_of(paths: Iterable[Path], folder: str | os.PathLike[str]) -> list[str]:
    """Return the names under which files are recorded: relative to ``folder`` if below it."""
    root = Path(os.path.realpath(folder))
    found = [Path(os.path.realpath(path)) for path in paths]
    return [(p.relative_to(root) if p.is_relative_to(root) else p).as_posix() for p in found]


def digests(paths: Iterable[Path], folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the sha256 of files by their names."""
    return {name: _sha256(Path(folder) / name) for name in names_of(paths, folder)}


def changed_code(recorded: Mapping[str, str], folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the files of ``recorded`` (relative path to sha256) whose content has changed."""
    return tuple(f for f, digest in recorded.items() if _sha256(Path(folder) / f) != digest)


def _sha256(path: Path) -> str:
    """Return the digest of a file, empty if it cannot be read."""
    try:
        place = resolved(path)
        status = os.stat(place)
        if stat.S_ISREG(status.st_mode) and status.st_size > _LARGEST:
            return sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
        return sha256(read_run_file(place, _LARGEST)).hexdigest()
    except (JobrunError, OSError, ValueError):
        return ""
