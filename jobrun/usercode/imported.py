"""The modules that were imported for a job from its folder, and whether their files have changed.

A process may run a job again after its code was changed: in a notebook, say.  Modules that the
user's own code had imported before are not among them: they belong to that code.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobrun.usercode.code_hash import changed_code, digests, own_modules

__all__ = ["forget_changed", "recorded"]

_imported: dict[str, dict[str, str]] = {}
"""By folder: the names of its modules, and their files relative to it."""
_digests: dict[str, dict[str, str]] = {}
"""By folder: the digests of these files as they were imported."""


@contextmanager
def recorded(folder: str) -> Iterator[None]:
    """Record the modules of ``folder`` that are imported meanwhile."""
    before = set(sys.modules)
    try:
        yield
    finally:
        found = own_modules(folder, sys.modules.keys() - before)
        files = [Path(folder) / file for file in found.values()]
        _imported.setdefault(folder, {}).update(found)
        _digests.setdefault(folder, {}).update(digests(files, folder))


def forget_changed(folder: str) -> None:
    """Remove the recorded modules of ``folder`` if one has changed, to import them again."""
    if not changed_code(_digests.get(folder, {}), folder):
        return
    for name in _imported[folder]:
        sys.modules.pop(name, None)
    del _imported[folder], _digests[folder]
    importlib.invalidate_caches()
    linecache.checkcache()
