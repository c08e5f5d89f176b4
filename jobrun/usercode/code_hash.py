"""Hashes of the user's code: the files that a run uses, and which have changed since."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from jobrun.core.paths import resolved
from jobrun.errors import JobrunError
from jobrun.storage.regular_file import read_run_file

__all__ = ["changed_code", "loaded_code"]

_LARGEST = 64 << 20
"""The largest code file read, in bytes: its path comes from an untrusted file of the run."""


def loaded_code(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the modules below ``folder`` imported now: relative path to sha256."""
    root = os.path.realpath(folder)
    real = cache(os.path.realpath)  # hundreds of modules are in a few folders
    found: dict[str, str] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not os.path.isabs(file):
            continue
        place = os.path.join(real(os.path.dirname(file)), os.path.basename(file))
        path = Path(os.path.realpath(place) if os.path.islink(place) else place)
        if path.is_relative_to(root) and "site-packages" not in path.parts:
            found[path.relative_to(root).as_posix()] = _sha256(path)
    return dict(sorted(found.items()))


def changed_code(recorded: Mapping[str, str], folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Return the files of ``recorded`` (relative path to sha256) whose content has changed."""
    return tuple(f for f, digest in recorded.items() if _sha256(Path(folder) / f) != digest)


def _sha256(path: Path) -> str:
    """Return the digest of a file, empty if it cannot be read."""
    try:
        return sha256(read_run_file(resolved(path), _LARGEST)).hexdigest()
    except (JobrunError, OSError, ValueError):
        return ""
