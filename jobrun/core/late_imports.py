"""Packages that only some jobs need, imported on first use by one thread at a time.

Several threads of jobrun write, read and report at once.  Packages that import each other in a
circle (``numcodecs`` imports its codecs, and they import it) fail if two threads enter the circle
in two places, so every late import of jobrun, on any thread, happens in this context::

    with importing():
        import zarr
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any

__all__ = ["imported", "importing"]

_one_at_a_time = RLock()  # an import may itself import late


@contextmanager
def importing() -> Iterator[None]:
    """Keep every other thread of jobrun from importing late while the context lasts."""
    with _one_at_a_time:
        yield


def imported(name: str) -> Any:
    """Return the module ``name``, without a lock or a search if it was imported before.

    Raises ImportError if it is not installed.
    """
    found = sys.modules.get(name)
    if found is None or getattr(getattr(found, "__spec__", None), "_initializing", False):
        with importing():
            found = import_module(name)
    return found
